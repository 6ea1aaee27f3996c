"""A knowledge base: one folder on any storage, one manifest, parts that appear whole or not at all.

    KB/manifest.json                   format version and, per part: folder, config, parents, checksums
    KB/versions/<number>/manifest.json the same of another version (`versions`): a knowledge base of its own, whose parts
                                       lie among the others
    KB/parts/<part>-<id>/...           .npy arrays (memory-mapped), Parquet/Arrow tables, safetensors, FAISS files
    KB/parts/.new-<part>-<random>/     a part being written, on a file system; removed by the next writer if this one dies
    KB/.writer.json                    who writes

A part's id is a hash of its contents. Writing a part means: fill a folder, checksum it, put it under its id, then
replace the manifest. Each of these is atomic, so a killed job leaves the old part or the new one, and readers that hold
the old one memory-mapped keep it. On object storage, readers fetch the files of a part once per node, by checksum.
"""

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, is_dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from deeped_ray import __version__
from deeped_ray.knowledge.archive import is_archive, unpacked
from deeped_ray.knowledge.parts import (
    MAKERS,
    ArtifactError,
    FormatError,
    Part,
    Sealed,
    check_records,
    checksums_of,
    damage_of,
    id_of,
)
from deeped_ray.storage.cache import temporary_folder
from deeped_ray.storage.lease import sole_writer
from deeped_ray.storage.location import Address, Location, link_or_copy
from deeped_ray.types import DeepEdError

FORMAT = 5
VERSIONS = "versions"
REMEMBERED = 20
"""Ids of earlier parts that a record keeps, at most: they tell an older part from one of another knowledge base."""
_MANIFEST = "manifest.json"
_COPIES = 16
"""Made at once, by the storage."""


class KnowledgeBase:
    """Reads and writes the parts of one knowledge base."""

    def __init__(self, root: Address, *, create: bool = False) -> None:
        self.is_packed = is_archive(root)
        self.origin = Location(root)
        """What was given: every node can open it, also if it is an archive."""
        if create and self.is_packed:
            raise DeepEdError(f"{root} is a file. Give a folder to build into.")
        self.location = Location(unpacked(root)) if self.is_packed else self.origin
        self.home = _home_of(self.location)
        """Where the parts lie: of a version, the folder of the knowledge base that it is a version of."""
        self._sealed: dict[str, Sealed] = {}
        self.settings: dict[str, Any] = {}
        """Of the stage that writes, by section: kept in the manifest beside what it makes."""
        path = self.location.path
        if path is not None and "working_dir_files" in (*path.parts, *path.resolve().parts):
            # `ray job submit --working-dir .` runs in a throw-away copy, where a relative --kb would be lost
            raise DeepEdError(
                f"Knowledge base {root} is in the job's temporary working directory. Give --kb as an absolute path."
            )
        if create:
            (self.home / "parts").make_folder()
        elif path is not None and not path.is_dir():
            if self.location.parent.name == VERSIONS:
                raise ArtifactError(f"There is no version at {self}. See deeped versions {self.home}.")
            raise ArtifactError(f"No knowledge base at {self}. Run {MAKERS['corpus']} --kb {self} first.")

    def __str__(self) -> str:
        return str(self.origin)

    @property
    def root(self) -> Path:
        """The folder of a knowledge base on a file system."""
        assert self.location.path is not None, f"{self} is not on a file system"
        return self.location.path

    # -- reading

    def manifest(self) -> dict[str, Any]:
        file = self.location / _MANIFEST
        try:
            manifest: dict[str, Any] = file.read_json()
            found, parts = manifest["format"], manifest["parts"]
        except FileNotFoundError:
            return {"format": FORMAT, "parts": {}}
        except (ValueError, KeyError, TypeError) as error:
            raise FormatError(
                f"{file} is not a manifest ({error!r}). Restore it, or build into a new folder."
            ) from error
        if found != FORMAT:
            raise FormatError(
                f"The parts of {self} ({', '.join(parts)}) have format {found}, but deeped-ray {__version__} reads format {FORMAT}."
                f" Use the version that wrote them, or build into a new folder with {MAKERS['corpus']}."
            )
        check_records(parts, where=str(file))
        return manifest

    def __contains__(self, name: str) -> bool:
        return name in self.manifest()["parts"]

    def open(self, name: str) -> Part:
        """The current version of a part, checked: present, complete, undamaged and made from the current parents."""
        parts = self.manifest()["parts"]
        remedy = f"Run {MAKERS[name]} --kb {self}"
        if name not in parts:
            raise ArtifactError(f"No {name} part in {self}. {remedy} first.")
        record = parts[name]
        for parent, parent_id in record["parents"].items():
            if parts.get(parent, {}).get("id") != parent_id:
                whose = _whose(parent_id, parts.get(parent, {}))
                raise ArtifactError(f"The {name} part of {self} was made from {whose} {parent} part. {remedy} again.")
        part = self._part(name, record)
        problem = damage_of(part, full=False)
        if problem:
            raise self._damaged(part, problem)
        return part

    def check(self, *names: str) -> None:
        """Hash every file of these parts, also the large ones, which `open` does not hash."""
        for part in map(self.open, names):
            if part.location.path is None:
                continue  # files of a far part are hashed whenever they arrive
            if problem := damage_of(part, full=True):
                raise self._damaged(part, problem)

    def _damaged(self, part: Part, problem: str) -> ArtifactError:
        """The job makes a part anew that lacks a file. It would not notice a large file with other bytes."""
        return ArtifactError(
            f"The {part.name} part of {self} is damaged: {problem} ({part.location})."
            f" Restore that file, or delete it and run {MAKERS[part.name]} --kb {self}."
        )

    def _part(self, name: str, record: Mapping[str, Any]) -> Part:
        return Part(name, record["id"], self.home / record["folder"], record)

    def last(self, name: str) -> Part | None:
        """A part as it was last made, even if its parents have changed since; None if it is missing or damaged."""
        record = self.manifest()["parts"].get(name)
        part = self._part(name, record) if record else None
        return None if part is None or damage_of(part, full=False) else part

    def verify(self) -> dict[str, str | None]:
        """Hash every file of every part. Returns the problem of each part, or None."""
        parts = self.manifest()["parts"]
        return {name: damage_of(self._part(name, record), full=True) for name, record in parts.items()}

    def is_current(self, name: str, *, config: object, parents: Sequence[str]) -> bool:
        """Whether the part exists, is undamaged, and would be the same if it were made again now."""
        try:
            part = self.open(name)
            return part.config == _plain(config) and set(part.record["parents"]) == set(parents)
        except ArtifactError:
            return False

    # -- writing

    def require_writable(self) -> None:
        if self.is_packed:
            raise DeepEdError(f"{self} is an archive, which is only read. Build into a folder.")

    @contextlib.contextmanager
    def write(self, name: str, *, config: object, parents: Sequence[str]) -> Iterator[Path]:
        """A local folder to fill; it becomes the current part when the block ends without an exception.

        Everything that is read from the parents belongs inside the block: if one of them is replaced meanwhile, the new
        part is refused rather than recorded as made from what it was not made from. There is one writer at a time.
        """
        self.require_writable()
        self._sealed = {}
        parent_ids = {parent: self.open(parent).id for parent in parents}
        (self.home / "parts").make_folder()
        with sole_writer(self.home) as still_mine:
            self.remove_abandoned()
            with self._new_folder(name) as folder:
                yield folder
                files = checksums_of(folder) | {file: sealed.checksum for file, sealed in self._sealed.items()}
                if not files:
                    raise ArtifactError(f"Nothing was written for the {name} part.")
                part_id = id_of(name, files)
                record = {
                    "id": part_id,
                    "folder": f"parts/{name}-{part_id}",
                    "made_by": MAKERS[name],
                    "deeped_ray": __version__,
                    "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
                    "config": _plain(config),
                    "settings": _plain(self.settings),
                    "parents": parent_ids,
                    "files": files,
                }
                still_mine()
                self._commit(name, folder, record)

    def include(self, files: Mapping[str, Sealed]) -> None:
        """Files of the part that is being written, beside those in its folder: what tasks have left on the storage.

        The storage copies them to their places. On object storage no byte of them passes through this process.
        """
        self._sealed |= files

    def keep(self, name: str, *, parents: Sequence[str], config: object = None) -> None:
        """Take a part for made from the parents as they are now, or with another config: it would come out the same.

        The record says from what it was really made.
        """
        with sole_writer(self.home) as still_mine:
            manifest = self.manifest()
            record = manifest["parts"][name]
            now = {parent: manifest["parts"][parent]["id"] for parent in parents}
            made_from = record.get("made_from", record["parents"])
            changed = {
                "parents": now,
                "made_from": made_from,
                "settings": _plain(self.settings) or record.get("settings", {}),
            }
            manifest["parts"][name] = {**record, **changed, "config": _plain(config) if config else record["config"]}
            still_mine()
            self.write_manifest(manifest)

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        """In one step: readers see the old one or the new one. Only whoever holds the right to write may call this."""
        self.location.make_folder()
        (self.location / _MANIFEST).write_bytes(json.dumps(manifest, indent=2, sort_keys=True).encode())

    @contextlib.contextmanager
    def _new_folder(self, name: str) -> Iterator[Path]:
        """Where a part is filled: beside the others, or, if they are far away, on this node."""
        if self.home.path is None:
            with temporary_folder() as folder:
                yield folder
            return
        folder = Path(tempfile.mkdtemp(prefix=f".new-{name}-", dir=self.home.path / "parts"))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _commit(self, name: str, folder: Path, record: dict[str, Any]) -> None:
        manifest = self.manifest()
        for parent, parent_id in record["parents"].items():
            if manifest["parts"].get(parent, {}).get("id") != parent_id:
                raise ArtifactError(
                    f"The {parent} part of {self} changed while the {name} part was made from it. Run {MAKERS[name]} again."
                )
        part = self._part(name, record)
        if part.location.exists() and damage_of(part, full=True):
            part.location.remove()
        if not part.location.exists():
            self._put(folder, part)
        previous = manifest["parts"].get(name)
        if previous is None or "replaced" in previous:
            replaced = [*previous["replaced"], previous["id"]] if previous else []
            record["replaced"] = [each for each in dict.fromkeys(replaced) if each != record["id"]][-REMEMBERED:]
        manifest["parts"][name] = record
        self.write_manifest(manifest)
        if previous and previous["folder"] not in self._named():
            with contextlib.suppress(DeepEdError):  # the next writer will remove it
                self._part(name, previous).location.remove()

    def _put(self, folder: Path, part: Part) -> None:
        if part.location.path is None:
            for file in part.record["files"].keys() - self._sealed.keys():
                (part.location / file).upload(folder / file)
            with ThreadPoolExecutor(_COPIES) as copies:
                list(copies.map(lambda file: self._sealed[file].location.copy(part.location / file), self._sealed))
            return
        for file, sealed in self._sealed.items():
            link_or_copy(sealed.location, folder / file)
        folder.chmod(0o755)
        os.rename(folder, part.location.path)
        _sync_folder(part.location.path.parent)

    def remove_abandoned(self) -> None:
        """Delete what killed writers left behind: whoever writes now is the only one."""
        named, parts = self._named(), self.home / "parts"
        for name in parts.children():
            if f"parts/{name}" not in named:
                (parts / name).remove()

    def _named(self) -> set[str]:
        """Folders of the parts of all versions."""
        others = [name for name in (self.home / VERSIONS).children() if name.isdigit()]
        homes = [self.home, *(self.home / VERSIONS / name for name in others)]
        manifests = [KnowledgeBase(each).manifest() for each in homes]
        return {record["folder"] for manifest in manifests for record in manifest["parts"].values()}


def _whose(parent_id: str, record: Mapping[str, Any]) -> str:
    """Where a parent comes from that is not the current one. Records of earlier versions of this program do not tell."""
    replaced = record.get("replaced")
    is_other = isinstance(replaced, list) and parent_id not in replaced
    return "another knowledge base's" if is_other else "an older"


def _home_of(location: Location) -> Location:
    """`KB/versions/3` is a version of KB if the parts are there. Others may call a folder of theirs `versions`, too."""
    home = location.parent.parent
    is_version = location.parent.name == VERSIONS and location.name.isdigit()
    return home if is_version and (home / "parts").exists() else location


def fingerprint(file: Address, *, edge_bytes: int = 2**20) -> dict[str, Any]:
    """Tells one input file from another without reading all of it: name, size, hash of the first and last mebibyte."""
    location = Location(file)
    try:
        size = location.num_bytes()
        digest = hashlib.sha256(location.read_bytes(0, edge_bytes))
        digest.update(location.read_bytes(max(0, size - edge_bytes)))
    except OSError as error:
        raise DeepEdError(f"Cannot read {location}: {error.strerror or error}.") from error
    return {"file": location.name, "bytes": size, "edges_sha256": digest.hexdigest()}


def _plain(config: object) -> dict[str, Any]:
    """A config as JSON would give it back, so that tuples and lists compare equal."""
    plain = asdict(config) if is_dataclass(config) and not isinstance(config, type) else config
    result: dict[str, Any] = json.loads(json.dumps(plain))
    return result


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
