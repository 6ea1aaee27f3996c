"""Annotated documents in the WNED layout (MSNBC, AQUAINT, ACE2004, ClueWeb, Wikipedia).

    NAME/NAME.xml     <document docName="d"> with <annotation>s of <mention>, <wikiName>, <offset> and <length>
    NAME/RawText/d    the text of document d

The folder may be packed as one .tar.gz. Offsets count characters of the raw text, which may hold `&amp;` where the mention
has `&`, and some have slipped: escapes are undone, and a mention is taken where it stands nearest to its offset.
"""

import bisect
import html
import itertools
import logging
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from xml.etree import ElementTree

from deeped_ray.text import normalize_title
from deeped_ray.types import DeepEdError, Document, Mention

log = logging.getLogger(__name__)
NOT_IN_WIKIPEDIA = "NIL"
MAX_ARCHIVE_BYTES = 2**30
_LAYOUT = "expected NAME.xml beside a folder RawText, or both in one .tar.gz"
_ESCAPE = re.compile(r"&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});")


def read_wned(path: Path, *, with_unlinked: bool = False) -> Iterator[Document]:
    """Documents with their mentions, in the order of the XML; NIL and empty ones are left out, or have no gold title."""
    try:
        files = _files_of_archive(path) if path.is_file() else _files_of_folder(path)
    except tarfile.TarError as error:
        raise DeepEdError(f"{path} is not a tar archive; {_LAYOUT}.") from error
    except (OSError, EOFError, zlib.error) as error:
        raise DeepEdError(f"Cannot read {path}: {error}; {_LAYOUT}.") from error
    name = _annotations(path, files)
    if b"<!DOCTYPE" in files[name] or b"\0" in files[name]:
        # entities could expand to gigabytes, or to files of this machine; UTF-16, with its zeros, could hide the word
        raise DeepEdError(f"{path}: {name} declares a document type (<!DOCTYPE) or is not in UTF-8. Neither is read.")
    try:
        root = ElementTree.fromstring(files[name])
    except ElementTree.ParseError as error:
        raise DeepEdError(f"{path}: {name} is not XML: {error}.") from error
    for element in root.iter("document"):
        yield _read_document(element, files, where=f"{path}, {name}", with_unlinked=with_unlinked)


def wned_annotations(path: Path) -> Path:
    """The file that holds a data set's annotations: the archive, or the folder's XML."""
    if path.is_file():
        return path
    return path / _annotations(path, {file.name: b"" for file in path.glob("*.xml")})


def _annotations(path: Path, files: Mapping[str, bytes]) -> str:
    """The one XML file, or of several the one named after the folder."""
    found = sorted(name for name in files if name.endswith(".xml") and "/" not in name)
    if len(found) > 1:
        found = [name for name in found if name == f"{path.name.partition('.')[0]}.xml"] or found
    if len(found) != 1:
        raise DeepEdError(f"{path} holds {', '.join(found) or 'no .xml file'}; {_LAYOUT}.")
    return found[0]


def _files_of_folder(path: Path) -> dict[str, bytes]:
    if not path.is_dir():
        raise FileNotFoundError("no such folder")
    files = itertools.chain(path.glob("*.xml"), path.glob("RawText/*"))
    return {file.relative_to(path).as_posix(): file.read_bytes() for file in files if file.is_file()}


def _files_of_archive(path: Path) -> dict[str, bytes]:
    """Files by their path within the one folder that holds the XML; nothing is unpacked, so that a path is just a name."""
    with tarfile.open(path) as archive:
        members = _members(archive, path)
        names = {PurePosixPath(member.name): archive.extractfile(member) for member in members}
        files = {name: handle.read() for name, handle in names.items() if handle is not None}
    folder = min((name.parent for name in files if name.suffix == ".xml"), key=lambda f: len(f.parts), default=None)
    return {
        str(name.relative_to(folder)): data for name, data in files.items() if folder and name.is_relative_to(folder)
    }


def _members(archive: tarfile.TarFile, path: Path) -> list[tarfile.TarInfo]:
    """Plain files, neither links nor devices; refused as soon as they are too many bytes to be documents."""
    members, size = [], 0
    for member in archive:
        size += member.size
        if member.size < 0:  # some Pythons read the same place for ever
            raise tarfile.ReadError("a member with a negative size")
        if size > MAX_ARCHIVE_BYTES:
            raise DeepEdError(f"{path} unpacks to more than {MAX_ARCHIVE_BYTES:,} bytes; {_LAYOUT}.")
        if member.isfile():
            members.append(member)
    return members


def _read_document(
    element: ElementTree.Element, files: Mapping[str, bytes], *, where: str, with_unlinked: bool
) -> Document:
    name = element.get("docName", "")
    if f"RawText/{name}" not in files:
        raise DeepEdError(f"{where} names a document {name!r} that is not in RawText; {_LAYOUT}.")
    # a stray byte in one document is not worth refusing the whole set
    raw = files[f"RawText/{name}"].decode("utf-8-sig", errors="replace")
    text, moved = _unescape(raw)
    mentions = []
    for annotation in element.iter("annotation"):
        surface, title = (_unescape(annotation.findtext(tag) or "")[0].strip() for tag in ("mention", "wikiName"))
        is_linked = title not in ("", NOT_IN_WIKIPEDIA)
        if not is_linked and not with_unlinked:
            continue
        offset = annotation.findtext("offset") or ""
        if not surface or not re.fullmatch(r"\s*\d{1,15}\s*", offset, re.ASCII):
            raise DeepEdError(f"{where}, document {name!r}: found mention {surface!r} at offset {offset!r}.")
        start, end = _find(surface, text, moved(int(offset)), name=name)
        mentions.append(Mention(start, end, normalize_title(title) if is_linked else None))
    return Document(name, text, tuple(mentions))


def _find(surface: str, text: str, offset: int, *, name: str) -> tuple[int, int]:
    """Where the mention stands nearest to its offset, as it is written, else in any case."""
    pattern = r"\s+".join(map(re.escape, surface.split()))
    for flags in (0, re.IGNORECASE):
        spans = [match.span() for match in re.finditer(pattern, text, flags)]
        if spans:
            # Differs from the authors' code, which takes the first from offset - 10 on and so never one further back
            return min(spans, key=lambda span: abs(span[0] - offset))
    # it stays a mention, so that the data set has as many as its authors counted
    log.warning("%s: mention %r is not in the text, so its offset %d is used as given", name, surface, offset)
    return min(offset, len(text)), min(offset + len(surface), len(text))


def _unescape(raw: str) -> tuple[str, Callable[[int], int]]:
    """`AT&amp;T` -> `AT&T`, and the function that gives a position of the raw text its place in the result."""
    pieces, ends, saved, last = [], [0], [0], 0
    for match in _ESCAPE.finditer(raw):
        character = html.unescape(match.group())
        pieces += [raw[last : match.start()], character]
        last = match.end()
        ends.append(last)
        saved.append(saved[-1] + len(match.group()) - len(character))
    return "".join([*pieces, raw[last:]]), lambda position: position - saved[bisect.bisect_right(ends, position) - 1]
