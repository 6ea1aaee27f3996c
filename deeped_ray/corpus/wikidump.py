"""MediaWiki export XML -> raw pages, in shards that workers read on their own.

    multistream .bz2    cut at stream offsets, from the dump's index file or, without one, by looking for stream headers
    plain XML           cut at byte offsets, each shard moving on to the next <page>
    .gz, single .bz2    cannot be cut: one shard, read as a stream

WikiExtractor's output is cut in the same way and read by `wikiextractor`.

A damaged stretch (a broken bz2 stream, XML that does not parse) is recorded with its file and offset and skipped.

Only what stands from a <page> to a </page> is ever given to an XML parser, below a root of our own: a document type, which
could declare entities that expand to gigabytes or to files of this machine, cannot stand there, and is refused in the
head. Neither is more of a file held in memory than the longest page of a real dump needs.
"""

import bz2
import html
import io
import itertools
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from deeped_ray.storage.compressed import READ_ERRORS, compression, first_content, open_decompressed
from deeped_ray.storage.location import Location, find_files
from deeped_ray.text import normalize_title
from deeped_ray.types import DeepEdError

_STREAM_HEADER = re.compile(rb"BZh[1-9]1AY&SY")  # bz2 signature and the first block's magic number
_PAGE, _END, _DOC = b"<page>", b"</page>", b"<doc "
_STREAM_HEADER_BYTES = 9
_READ_BYTES, _SCAN_BYTES = 2**20, 2**26
# MediaWiki takes no page of more than 2 MiB, which its escapes can make six times as long
_MAX_PAGE_BYTES = 2**24
ARTICLES = "https://en.wikipedia.org/wiki/"
OWN_ARTICLES = "urn:entity:"
"""Of entities that no wiki has."""


class DumpError(DeepEdError):
    """The file is not a readable MediaWiki dump."""


@dataclass(frozen=True, slots=True)
class RawPage:
    page_id: int
    title: str
    wikitext: str
    redirect: str | None


@dataclass(frozen=True)
class SiteInfo:
    """What a dump says about its wiki."""

    language: str = "en"
    namespaces: frozenset[str] = frozenset()
    """Lower-cased names of all namespaces but the main one."""
    articles: str = ARTICLES
    """What a title is put after to make the address of its page."""
    is_extracted: bool = False
    """The file is WikiExtractor's output, not a dump."""


@dataclass(frozen=True)
class DumpShard:
    """A piece of a dump that one worker reads; `offsets` are where its bz2 streams or its byte range start and end."""

    path: Location
    kind: str
    offsets: tuple[int, ...]
    site: SiteInfo

    @property
    def num_bytes(self) -> int:
        return self.offsets[-1] - self.offsets[0]

    @property
    def label(self) -> str:
        """What logs call it."""
        return f"{self.path.name} {self.offsets[0]}-{self.offsets[-1]}"


@dataclass(slots=True)
class DumpStats:
    """Counts what reading leaves out."""

    num_other_namespaces: int = 0
    untitled_page_ids: list[int] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)


# -- cutting


def find_dumps(patterns: Sequence[str]) -> list[Location]:
    """Files that match the given paths, folders and globs, in order and without index files."""
    found: list[Location] = []
    for pattern in patterns:
        matches = [file for file in find_files(pattern) if not re.search(r"-index\d*\.txt", file.name)]
        if not matches:
            raise DumpError(f"Cannot read {pattern}: No such file or directory.")
        found += matches
    return list(dict.fromkeys(found))


def cut_dump(path: Location, *, shard_bytes: int) -> list[DumpShard]:
    """Shards of about `shard_bytes` of the file as it lies on disk, in file order."""
    site, size, kind = read_siteinfo(path), path.num_bytes(), compression(path)
    if kind == "bz2" and not site.is_extracted and len(offsets := _stream_offsets(path)) > 1:
        return [DumpShard(path, "streams", cut, site) for cut in _group([*offsets, size], shard_bytes)]
    if kind:
        return [DumpShard(path, kind, (0, size), site)]
    cuts = [*range(0, max(size, 1), shard_bytes), size]
    return [DumpShard(path, "plain", cut, site) for cut in itertools.pairwise(cuts)]


def _stream_offsets(path: Location) -> list[int]:
    index = path.parent / re.sub(r"\.xml(-p\d+p\d+)?\.bz2$", r"-index.txt\1.bz2", path.name)
    if index != path and index.exists():
        return sorted({0} | _index_offsets(index))
    found = set()
    for start in range(0, path.num_bytes(), _SCAN_BYTES):
        # beyond the border, for a header that straddles it
        content = path.read_bytes(start, start + _SCAN_BYTES + _STREAM_HEADER_BYTES)
        found |= {start + match.start() for match in _STREAM_HEADER.finditer(content)}
    return sorted(found)


def _index_offsets(index: Location) -> set[int]:
    """Distinct offsets of an index file's lines `offset:page_id:title`."""
    try:
        with bz2.open(index.local()) as lines:
            return {int(line.partition(b":")[0]) for line in lines}
    except (OSError, EOFError, ValueError) as error:
        raise DumpError(f"{index} is not a multistream index ({error}). Fetch it again, or remove it.") from error


def _group(offsets: Sequence[int], shard_bytes: int) -> Iterator[tuple[int, ...]]:
    """Cut a rising list of offsets into runs that span about `shard_bytes` and share their borders."""
    start = 0
    for end in range(1, len(offsets)):
        if offsets[end] - offsets[start] >= shard_bytes or end == len(offsets) - 1:
            yield tuple(offsets[start : end + 1])
            start = end


# -- reading


def read_siteinfo(path: Location) -> SiteInfo:
    """Language and namespaces from the head of a dump; also the check that it is one."""
    try:
        head = first_content(path, 2**16)
    except READ_ERRORS as error:
        raise DumpError(f"{path} ends early or is damaged at its start: {error}. Fetch the dump again.") from error
    if head[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\0" in head[:4]:
        reader = {"bz2": "bzcat", "gz": "zcat"}.get(compression(path) or "", "cat")
        raise DumpError(
            f"{path} is UTF-16; dumps are UTF-8. Convert it: {reader} {path.name} | iconv -f UTF-16 -t UTF-8 > new.xml"
        )
    if head.lstrip().startswith(_DOC):
        return SiteInfo(is_extracted=True)
    root = re.search(rb"<([A-Za-z_][\w.-]*)[^>]*>", head.replace(b"<?xml", b"", 1))
    if root is None or root.group(1) != b"mediawiki":
        found = f"its root is <{root.group(1).decode('ascii', 'replace')}>" if root else f"it starts with {head[:20]!r}"
        raise DumpError(
            f"{path} is not a MediaWiki dump: {found}, expected <mediawiki>, or <doc ...> of WikiExtractor."
        )
    if b"<!DOCTYPE" in head.replace(b"<?xml", b"", 1)[: root.start()]:
        raise DumpError(f"{path} declares a document type (<!DOCTYPE), as no MediaWiki dump does: it is not read.")
    language = re.search(rb'xml:lang="([^"]+)"', root.group(0))
    names = re.findall(rb'<namespace key="-?[1-9]\d*"[^>]*>([^<]+)</namespace>', head)
    main_page = re.search(rb"<base>(https?://[^<\s]+/)[^</]*</base>", head)
    return SiteInfo(
        language.group(1).decode() if language else "en",
        frozenset(name.decode().lower() for name in names),
        html.unescape(main_page.group(1).decode()) if main_page else ARTICLES,
    )


def read_shard(shard: DumpShard, stats: DumpStats) -> Iterator[RawPage]:
    """The titled namespace-0 pages of a shard, in file order."""
    if shard.kind == "plain":
        for offset, xml in plain_range(shard, _PAGE):
            yield from _pages_of_chunk(shard.path, offset, xml, stats)
    else:
        yield from _pages_of_streams(shard, stats) if shard.kind == "streams" else _pages_of_file(shard, stats)


def read_dump(path: Location, stats: DumpStats) -> Iterator[RawPage]:
    """All pages of a file, one shard after the other."""
    for shard in cut_dump(path, shard_bytes=_READ_BYTES):  # a tree of more than the cache holds takes twice as long
        yield from read_shard(shard, stats)


def _pages_of_streams(shard: DumpShard, stats: DumpStats) -> Iterator[RawPage]:
    first = shard.offsets[0]
    content = shard.path.read_bytes(first, shard.offsets[-1])
    for start, end in itertools.pairwise(shard.offsets):
        where = f"{shard.path.name} at byte {start:,}"
        try:
            for _, xml in _stretches(bz2.BZ2File(io.BytesIO(content[start - first : end - first])), where, stats):
                yield from _pages_of_chunk(shard.path, start, xml, stats)
        except READ_ERRORS as error:
            stats.damage.append(f"{where}: {error}")


def _pages_of_file(shard: DumpShard, stats: DumpStats) -> Iterator[RawPage]:
    """Pages of a file that cannot be cut, as they come; what follows a broken place of the compression is lost."""
    num_pages = 0
    try:
        with open_decompressed(shard.path) as source:
            for offset, xml in _stretches(source, shard.path.name, stats):
                for page in _pages_of_chunk(shard.path, offset, xml, stats):
                    num_pages += 1
                    yield page
    except READ_ERRORS as error:
        stats.damage.append(f"{shard.path.name} after {num_pages:,} pages: {error}")


def _stretches(source: io.BufferedIOBase, where: str, stats: DumpStats) -> Iterator[tuple[int, bytes]]:
    """What is read, in stretches of about a megabyte that end with a page, each with its place; then what is left."""
    held, position, is_overlong = b"", 0, False
    while block := source.read(_READ_BYTES):
        # an end may straddle the border of two blocks
        searched = max(0, len(held) - len(_END))
        held += block
        end = held.rfind(_END, searched) + len(_END)
        if end >= len(_END):
            yield position, held[:end]
            is_overlong = False
        elif len(held) <= _MAX_PAGE_BYTES:
            continue
        else:
            if not is_overlong:
                stats.damage.append(f"{where}: a page of more than {_MAX_PAGE_BYTES:,} bytes")
            end, is_overlong = len(held) - len(_END), True
        held, position = held[end:], position + end
    yield position, held


def plain_range(shard: DumpShard, mark: bytes) -> Iterator[tuple[int, bytes]]:
    """What begins with `mark` within the range, however far beyond it the last one ends, and where the first begins."""
    start, end = shard.offsets
    # a mark that straddles the border begins before it, and so belongs to the shard before
    content = shard.path.read_bytes(start, end + len(mark) - 1)
    first = content.find(mark)
    if first < 0 or first >= end - start:
        return
    while content.find(mark, end - start) < 0 and len(content) < end - start + _MAX_PAGE_BYTES:
        more = shard.path.read_bytes(start + len(content), start + len(content) + _READ_BYTES)
        if not more:
            break
        content += more
    following = content.find(mark, end - start)
    yield start + first, content[first : following if following >= 0 else None]


def _pages_of_chunk(path: Location, offset: int, xml: bytes, stats: DumpStats) -> Iterator[RawPage]:
    first, last = xml.find(_PAGE), xml.rfind(_END)
    if first < 0:
        return  # header or footer
    if last < first:
        stats.damage.append(f"{path.name} at byte {offset:,}: a page without an end")
        return
    for element in _elements(path, offset + first, xml[first : last + len(_END)], stats):
        page = _page(element, stats)
        if page:
            yield page
    if _PAGE in xml[last:]:
        stats.damage.append(f"{path.name} at byte {offset + last:,}: a page without an end{_title_of(xml[last:])}")


def _elements(path: Location, offset: int, xml: bytes, stats: DumpStats) -> Iterator[ElementTree.Element]:
    """All pages at once. If that fails, one by one, so that only the damaged ones are lost."""
    try:
        yield from ElementTree.fromstring(b"<pages>" + xml + b"</pages>")
        return
    except ElementTree.ParseError:
        pass
    starts = [found.start() for found in re.finditer(_PAGE, xml)]
    for start, end in itertools.pairwise([*starts, len(xml)]):
        page = xml[start:end]
        try:
            yield from ElementTree.fromstring(b"<pages>" + page[: page.rfind(_END) + len(_END)] + b"</pages>")
        except ElementTree.ParseError as error:
            stats.damage.append(f"{path.name} at byte {offset + start:,}{_title_of(page)}: {error}")


def _title_of(page: bytes) -> str:
    """What was lost, for those who look for it."""
    title = re.search(rb"<title>([^<]{1,255})</title>", page)
    return f", {html.unescape(title[1].decode(errors='replace'))!r}" if title else ""


def _page(element: ElementTree.Element, stats: DumpStats) -> RawPage | None:
    fields = {_local_name(child): child for child in element}
    number = _text(fields.get("id"))
    page_id = parse_id(number)
    if _text(fields.get("ns")) not in ("", "0"):
        stats.num_other_namespaces += 1
        return None
    title = normalize_title(_text(fields.get("title")))
    if not title:
        stats.untitled_page_ids.append(page_id)
        return None
    redirect = fields["redirect"].get("title") if "redirect" in fields else None
    revision = fields.get("revision")
    texts = [_text(child) for child in (revision if revision is not None else ()) if _local_name(child) == "text"]
    if revision is not None and not texts:  # an empty one is there, too
        stats.damage.append(f"page {page_id}, {title!r}: a revision without a text")
    return RawPage(page_id, title, texts[0] if texts else "", normalize_title(redirect) if redirect else None)


def parse_id(number: str) -> int:
    """-1 for what no page of MediaWiki has as its number."""
    return int(number) if number.isascii() and number.isdigit() and len(number) < 16 else -1


def _local_name(element: ElementTree.Element) -> str:
    """Tag without the schema's namespace, which changes with every export version."""
    return element.tag.rpartition("}")[2]


def _text(element: ElementTree.Element | None) -> str:
    return (element.text or "").strip() if element is not None else ""
