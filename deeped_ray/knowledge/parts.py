"""One part of a knowledge base: files with checksums, wherever they lie, mapped into memory where they are read.

On a file system a part is read in place. From object storage its files are fetched once per node, each when it is first
asked for, and hashed as they arrive.
"""

import functools
import hashlib
import json
import os
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from deeped_ray.storage.cache import cache_folder, caching
from deeped_ray.storage.location import Location
from deeped_ray.types import DeepEdError

MAKERS = {
    "pages": "jobs/build_corpus.py",
    "corpus": "jobs/build_corpus.py",
    "words": "jobs/build_corpus.py",
    "wikidata": "deeped wikidata",
    "vectors": "jobs/embed_entities.py",
    "index": "jobs/build_index.py",
    "linker": "jobs/train_linker.py",
}
# Small files are hashed when their part is opened, once a process unless they change. Large ones only by `verify`, since hashing gigabytes would take
# longer than everything else a reader does at start; their size is always checked.
HASH_ON_OPEN_BYTES = 16 * 2**20
_RECORD_FIELDS = {"id", "folder", "config", "parents", "files"}


class ArtifactError(DeepEdError):
    """A part is missing, stale or damaged: its job makes it anew."""


class FormatError(DeepEdError):
    """The knowledge base cannot be read by this version: no job mends that."""


@dataclass(frozen=True)
class Part:
    """One part: `part.path / "vectors.npy"`, or `part.array("vectors")`. Any node can be handed one."""

    name: str
    id: str
    location: Location
    record: Mapping[str, Any]

    @property
    def config(self) -> dict[str, Any]:
        return dict(self.record["config"])

    @property
    def _maker(self) -> str:
        return MAKERS.get(self.name, "its job")

    @property
    def path(self) -> Path:
        """A folder of this node with all files of the part."""
        return self._on_this_node(list(self.record.get("files", ())))

    def array(self, name: str) -> npt.NDArray[Any]:
        """A memory-mapped, read-only array: processes of one node share its pages."""
        file = f"{name}.npy"
        path = self._on_this_node([file]) / file
        try:
            array: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:  # also for arrays of objects, whose loading would run code
            raise ArtifactError(f"{path} is no array that is loaded: {error}. Run {self._maker} again.") from error
        return array

    def files(self, pattern: str) -> list[Location]:
        """Where the files are that match, in order: for readers that want some of many."""
        return [self.location / name for name in sorted(self.record["files"]) if fnmatchcase(name, pattern)]

    def summary(self) -> dict[str, Any]:
        """What its job has counted."""
        return (self.location / "summary.json").read_json()

    def check(self, file: str) -> None:
        """Hash a file of any size, for readers that trust what they read."""
        path = self._on_this_node([file]) / file
        if checksum_of(Location(path)) != self.record["files"][file]:
            raise ArtifactError(
                f"The {self.name} part is damaged: {path} does not match its checksum. Run {self._maker} again."
            )

    def _on_this_node(self, files: Sequence[str]) -> Path:
        if self.location.path is not None:
            return self.location.path
        folder = cache_folder() / "parts" / f"{self.name}-{self.id}"
        if not all((folder / file).exists() for file in files):
            with caching(folder):
                for file in files:
                    self._fetch(file, folder / file)
        os.utime(folder)  # asked for just now
        return folder

    def _fetch(self, file: str, target: Path) -> None:
        if target.exists():
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        arriving = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
        try:
            try:
                (self.location / file).fetch(arriving)
            except FileNotFoundError as error:
                raise ArtifactError(
                    f"{self.location / file} is gone: the {self.name} part was replaced while it was read. Start again."
                ) from error
            if checksum_of(Location(arriving)) != self.record["files"][file]:
                raise ArtifactError(f"{self.location / file} does not match its checksum. Run {self._maker} again.")
            arriving.replace(target)
        finally:
            arriving.unlink(missing_ok=True)


class Sealed(NamedTuple):
    """A file that a task has left on the storage, to become one of a part: nobody changes it any more."""

    location: Location
    checksum: dict[str, Any]


def share(name: str, folder: Path, work: Location, patterns: Sequence[str]) -> Part:
    """Files of a part being written, for tasks on other nodes: these fetch them as they do a finished part's."""
    if not folder.is_relative_to(cache_folder()):  # else no other node sees them
        return Part(name, "", Location(folder), {})
    files = {file: checksum_of(Location(folder / file)) for file in _files_below(folder) if _matches(file, patterns)}
    part_id = id_of(name, files)
    location = work / f"{name}-{part_id}"
    location.make_folder()
    there = location.sizes()
    for file, expected in files.items():
        if there.get(file) != expected["bytes"]:
            (location / file).upload(folder / file)
    return Part(name, part_id, location, {"files": files})


def _matches(file: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(file, pattern) for pattern in patterns)


# -- checksums


def checksum_of(file: Location) -> dict[str, Any]:
    return file.reading(_hash)


def _hash(source: Any) -> dict[str, Any]:
    digest, size = hashlib.sha256(), 0
    while block := source.read(2**20):
        digest.update(block)
        size += len(block)
    return {"bytes": size, "sha256": digest.hexdigest()}


def checksums_of(folder: Path) -> dict[str, dict[str, Any]]:
    """Of all files below a folder of this machine, which are safely on disk then."""
    return {file: seal(Location(folder / file)) for file in _files_below(folder)}


def seal(file: Location) -> dict[str, Any]:
    """The checksum of a file that is safely on disk then."""
    if file.path is not None:
        with open(file.path, "rb") as handle:
            os.fsync(handle.fileno())
    return checksum_of(file)


def _files_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def id_of(name: str, files: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps([name, files], sort_keys=True).encode()).hexdigest()[:16]


def damage_of(part: Part, *, full: bool) -> str | None:
    """What is wrong with the part's files, or None."""
    sizes = part.location.sizes()
    for file, expected in part.record["files"].items():
        if file not in sizes:
            return f"{file} is missing"
        if sizes[file] != expected["bytes"]:
            return f"{file} has {sizes[file]:,} bytes instead of {expected['bytes']:,}"
        # what lies elsewhere is hashed as it arrives
        is_small = sizes[file] <= HASH_ON_OPEN_BYTES and part.location.path is not None
        if full or is_small:
            found = checksum_of(part.location / file) if full else _checksum_now(part.location / file)
            if found != expected:
                return f"{file} does not match its checksum"
    return None


def _checksum_now(file: Location) -> dict[str, Any]:
    """Of a file of this machine, hashed once as long as it is not written to: a part is opened by each of its readers."""
    assert file.path is not None
    now = file.path.stat()
    return _checksum_as_it_is(file, (now.st_ino, now.st_size, now.st_mtime_ns, now.st_ctime_ns))


@functools.lru_cache(maxsize=4096)
def _checksum_as_it_is(file: Location, _: tuple[int, ...]) -> dict[str, Any]:
    return checksum_of(file)


# -- records of a manifest


def check_records(parts: object, *, where: str) -> None:
    """Refuse records that the writer of a manifest would not have made: they lead to what is read, and what is deleted."""
    if not isinstance(parts, dict):
        raise FormatError(f"{where} is not a manifest: its parts are no mapping.")
    for name, record in parts.items():
        problem = _record_problem(name, record)
        if problem:
            raise FormatError(
                f"{where} was not written by deeped-ray, or was changed since: {name!r} has {problem}."
                " Restore it, or build into a new folder."
            )


def _record_problem(name: str, record: Any) -> str | None:
    """What is wrong with a part's record, or None."""
    if name not in MAKERS:
        return "a name that no part has"
    if not isinstance(record, dict) or not record.keys() >= _RECORD_FIELDS:
        return f"no record with {', '.join(sorted(_RECORD_FIELDS))}"
    if not isinstance(record["id"], str) or not re.fullmatch(r"[0-9a-f]{16}", record["id"]):
        return f"the id {record['id']!r}"
    if record["folder"] != f"parts/{name}-{record['id']}":
        return f"the folder {record['folder']!r} instead of 'parts/{name}-{record['id']}'"
    if not all(isinstance(record[field], dict) for field in ("config", "parents", "files")):
        return "a config, parents or files that are no mappings"
    for file, checksum in record["files"].items():
        if not all(re.fullmatch(r"[\w-][\w.-]*", step, re.ASCII) for step in file.split("/")):
            return f"a file {file!r}"
        if not isinstance(checksum, dict) or set(map(type, checksum.values())) != {int, str}:
            return f"no size and checksum of {file!r}"
    return None
