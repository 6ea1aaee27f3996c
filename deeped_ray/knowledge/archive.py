"""A knowledge base as one file to give away: a tar of what linking needs, the same bytes for the same knowledge base.

    manifest.json     which parts there are, with the checksums of their files; always first
    README.md         the card: source, date, sizes, settings, scores, licence
    parts/...         the files

Whoever opens an archive, by its path or address, unpacks it once into the cache of the node, and maps the files there into
memory. Nothing of an archive is written but the files that its manifest names, under names that the manifest's own rules
allow, and only if their checksums agree.
"""

import contextlib
import copy
import hashlib
import io
import json
import os
import re
import shutil
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from deeped_ray.knowledge.parts import FormatError, check_records
from deeped_ray.storage.cache import cache_folder, caching
from deeped_ray.storage.location import Address, Location
from deeped_ray.types import DeepEdError

PARTS = ("corpus", "words", "vectors", "index", "linker", "wikidata")
"""What linking needs; not the pages."""
TEXTS = frozenset({"teaching.parquet"})
"""Files with text of articles. Linking does not need them, and whoever gives text away has to name its authors."""
_MANIFEST, _CARD = "manifest.json", "README.md"
_MOST_MANIFEST_BYTES = 2**24
_BLOCK_BYTES = 2**20
_PATIENCE_S = 60.0
_PATH = re.compile(r"^([\w-]+:(?!//))?.*/([^/]*)$", re.DOTALL)
"""A file, perhaps after the kind of its content."""


class ArchiveError(DeepEdError):
    """A file that is no archive of a knowledge base, or is damaged."""


# -- packing


def packed_manifest(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest of the parts that are packed, without texts and without the folders that settings name."""
    packed = copy.deepcopy(dict(manifest))
    packed["parts"] = {name: record for name, record in packed["parts"].items() if name in PARTS}
    for record in packed["parts"].values():
        record["parents"] = {name: part for name, part in record["parents"].items() if name in packed["parts"]}
        record["files"] = {file: found for file, found in record["files"].items() if file not in TEXTS}
        record["settings"] = _without_folders(record.get("settings", {}))
        record.pop("replaced", None)
    return packed


def _without_folders(settings: Any) -> Any:
    """`/home/me/wiki.xml` as `wiki.xml`: where files lay is nobody's business."""
    if isinstance(settings, dict):
        return {key: _without_folders(value) for key, value in settings.items()}
    if isinstance(settings, list):
        return [_without_folders(value) for value in settings]
    return _PATH.sub(r"\1\2", settings) if isinstance(settings, str) else settings


def write_archive(target: Location, root: Location, manifest: Mapping[str, Any], card: str) -> dict[str, Any]:
    """Write the parts of a packed manifest; returns the size and checksum of the archive."""
    content = json.dumps(manifest, indent=2, sort_keys=True).encode()
    with target.writing() as path:
        with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
            _add(archive, _MANIFEST, io.BytesIO(content), len(content))
            _add(archive, _CARD, io.BytesIO(card.encode()), len(card.encode()))
            for name, (location, expected) in _files(root, manifest).items():
                with location.open() as source:
                    hashed = _Hashed(source)
                    _add(archive, name, hashed, expected["bytes"])
                if hashed.digest.hexdigest() != expected["sha256"]:
                    raise ArchiveError(f"{location} does not match its checksum. `deeped info --verify` tells more.")
        digest = hashlib.sha256()
        with open(path, "rb") as packed:
            while block := packed.read(_BLOCK_BYTES):
                digest.update(block)
        return {"bytes": path.stat().st_size, "sha256": digest.hexdigest()}


def _files(root: Location, manifest: Mapping[str, Any]) -> dict[str, tuple[Location, dict[str, Any]]]:
    """Where all files of the parts lie, by their names in an archive, in order."""
    records = manifest["parts"].values()
    named = ((f"{record['folder']}/{file}", found) for record in records for file, found in record["files"].items())
    return {name: (root / name, found) for name, found in sorted(named)}


def _add(archive: tarfile.TarFile, name: str, content: Any, size: int) -> None:
    """No date, no owner: nothing of the machine that packs."""
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o644
    archive.addfile(member, content)


class _Hashed:
    """A file that is hashed as it is read."""

    def __init__(self, source: Any) -> None:
        self._source, self.digest, self.num_bytes = source, hashlib.sha256(), 0

    def read(self, size: int = -1) -> bytes:
        block = bytes(self._source.read(size))
        self.digest.update(block)
        self.num_bytes += len(block)
        return block


# -- opening


def is_archive(address: Address) -> bool:
    """A file, or an address that can only be one."""
    text = str(address)
    if text.startswith(("http://", "https://")):
        return True
    location = Location(address)
    return location.path.is_file() if location.path is not None else location.name.endswith(".tar")


def unpacked(address: Address) -> Path:
    """The folder of this node where an archive is unpacked; done once, by whichever process asks first."""
    try:
        with _opened(str(address)) as source, tarfile.open(fileobj=source, mode="r|") as archive:
            manifest = _read_manifest(archive)
            content = json.dumps(manifest, sort_keys=True).encode()
            folder = cache_folder() / "archives" / hashlib.sha256(content).hexdigest()[:16]
            with caching(folder):
                if not (folder / "kb").is_dir():
                    _unpack(archive, manifest, folder)
            return folder / "kb"
    except (tarfile.TarError, EOFError) as error:
        raise ArchiveError(
            f"{address} is no archive of a knowledge base, or is cut off: {error}. Fetch it again."
        ) from error
    except (ArchiveError, FormatError) as error:
        raise ArchiveError(f"{address} is no archive of a knowledge base, or is damaged: {error}") from error
    except (OSError, urllib.error.URLError) as error:
        raise ArchiveError(f"Cannot read {address}: {error}.") from error


@contextlib.contextmanager
def _opened(address: str) -> Iterator[IO[bytes]]:
    """The bytes of an archive, read once from beginning to end."""
    if not address.startswith(("http://", "https://")):
        with Location(address).open() as source:
            yield source
        return
    with urllib.request.urlopen(address, timeout=_PATIENCE_S) as reply:
        yield reply


def _read_manifest(archive: tarfile.TarFile) -> dict[str, Any]:
    first = archive.next()
    if first is None or first.name != _MANIFEST or not first.isreg() or first.size > _MOST_MANIFEST_BYTES:
        raise ArchiveError(f"it begins with {first.name if first else 'nothing'!r} instead of {_MANIFEST!r}.")
    try:
        manifest: dict[str, Any] = json.loads(_content(archive, first).read())
        check_records(manifest["parts"], where=_MANIFEST)
    except (ValueError, KeyError, TypeError) as error:
        raise ArchiveError(f"its manifest cannot be read ({error!r}).") from error
    return manifest


def _unpack(archive: tarfile.TarFile, manifest: Mapping[str, Any], folder: Path) -> None:
    """Every file that the manifest names, and no other, beside its place and then renamed as a whole."""
    missing = dict(_files(Location(folder), manifest))
    arriving = Path(tempfile.mkdtemp(prefix=".", dir=folder))
    try:
        (arriving / _MANIFEST).write_bytes(json.dumps(manifest, indent=2, sort_keys=True).encode())
        while member := archive.next():
            if member.name == _CARD and member.isreg():
                (arriving / _CARD).write_bytes(_content(archive, member).read(_MOST_MANIFEST_BYTES))
                continue
            if member.name not in missing or not member.isreg():
                raise ArchiveError(f"it holds {member.name[:100]!r}, which its manifest does not name.")
            _, expected = missing.pop(member.name)
            _write(arriving / member.name, _content(archive, member), expected)
        if missing:
            raise ArchiveError(
                f"{len(missing)} of its files are missing, the first {next(iter(missing))}. Fetch it again."
            )
        os.rename(arriving, folder / "kb")
    finally:
        shutil.rmtree(arriving, ignore_errors=True)


def _write(path: Path, source: IO[bytes], expected: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    hashed = _Hashed(source)
    with open(path, "wb") as target:
        shutil.copyfileobj(hashed, target, _BLOCK_BYTES)
    if {"bytes": hashed.num_bytes, "sha256": hashed.digest.hexdigest()} != expected:
        raise ArchiveError(f"{path.name} does not match its checksum. Fetch it again.")


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    content = archive.extractfile(member)
    assert content is not None, member.name
    return content
