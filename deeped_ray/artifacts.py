"""A knowledge base on disk: one folder, one manifest, parts that appear whole or not at all.

    KB/manifest.json                   format version and, per part: folder, config, parents, checksums
    KB/parts/<part>-<id>/...           .npy arrays (memory-mapped), Parquet/Arrow tables, safetensors, FAISS files
    KB/parts/.new-<part>-<random>/     a part being written, and its .lock; removed by the next writer if this one dies

A part's id is a hash of its contents. Writing a part means: fill a `.new-` folder, checksum it, rename it to its id,
then replace the manifest. Each of these is atomic, so a killed job leaves the old part or the new one, and readers that
hold the old one memory-mapped keep it.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from deeped_ray import __version__
from deeped_ray.types import DeepEdError

FORMAT = 5
MAKERS = {
    "pages": "jobs/build_corpus.py",
    "corpus": "jobs/build_corpus.py",
    "words": "jobs/build_corpus.py",
    "vectors": "jobs/embed_entities.py",
    "index": "jobs/build_index.py",
    "linker": "jobs/train_linker.py",
}
# Small files are hashed whenever their part is opened. Large ones only by `verify`, since hashing gigabytes would take
# longer than everything else a reader does at start; their size is always checked.
HASH_ON_OPEN_BYTES = 16 * 2**20
_RECORD_FIELDS = {"id", "folder", "config", "parents", "files"}


class ArtifactError(DeepEdError):
    """A part is missing, stale or damaged: its job makes it anew."""


class FormatError(DeepEdError):
    """The knowledge base cannot be read by this version: no job mends that."""


@dataclass(frozen=True)
class Part:
    """One opened part: `part.path / "vectors.npy"`, or `part.array("vectors")`."""

    name: str
    id: str
    path: Path
    record: Mapping[str, Any]

    @property
    def config(self) -> dict[str, Any]:
        return dict(self.record["config"])

    def array(self, name: str) -> npt.NDArray[Any]:
        """A memory-mapped, read-only array: processes of one node share its pages."""
        path = self.path / f"{name}.npy"
        try:
            array: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:  # also for arrays of objects, whose loading would run code
            raise ArtifactError(
                f"{path} is no array that is loaded: {error}. Run {MAKERS[self.name]} again."
            ) from error
        return array

    def check(self, file: str) -> None:
        """Hash a file of any size, for readers that trust what they read."""
        if _checksum(self.path / file) != self.record["files"][file]:
            raise ArtifactError(
                f"The {self.name} part is damaged: {self.path / file} does not match its checksum."
                f" Run {MAKERS[self.name]} again."
            )


class KnowledgeBase:
    """Reads and writes the parts of one knowledge-base folder."""

    def __init__(self, root: str | Path, *, create: bool = False) -> None:
        self.root = Path(root).expanduser().absolute()
        if "working_dir_files" in self.root.parts or "working_dir_files" in Path(root).resolve().parts:
            # `ray job submit --working-dir .` runs in a throw-away copy, where a relative --kb would be lost
            raise DeepEdError(
                f"Knowledge base {root} lies in the job's temporary working directory. Give --kb as an absolute path."
            )
        if create:
            try:
                (self.root / "parts").mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise DeepEdError(f"Cannot make a knowledge base at {self.root}: {error.strerror}.") from error
        elif not self.root.is_dir():
            raise ArtifactError(f"No knowledge base at {self.root}. Run {MAKERS['corpus']} --kb {self.root} first.")

    # -- reading

    def manifest(self) -> dict[str, Any]:
        path = self.root / "manifest.json"
        try:
            manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            found, parts = manifest["format"], manifest["parts"]
        except FileNotFoundError:
            return {"format": FORMAT, "parts": {}}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise FormatError(
                f"{path} is not a manifest ({error!r}). Restore it, or build into a new folder."
            ) from error
        if found != FORMAT:
            raise FormatError(
                f"The parts of {self.root} ({', '.join(parts)}) have format {found}, this deeped-ray {__version__} reads format {FORMAT}."
                f" Use the version that wrote them, or build into a new folder with {MAKERS['corpus']}."
            )
        check_records(parts, where=str(path))
        return manifest

    def __contains__(self, name: str) -> bool:
        return name in self.manifest()["parts"]

    def open(self, name: str) -> Part:
        """The current version of a part, checked: present, complete, undamaged and made from the current parents."""
        parts = self.manifest()["parts"]
        remedy = f"Run {MAKERS[name]} --kb {self.root}"
        if name not in parts:
            raise ArtifactError(f"No {name} part in {self.root}. {remedy} first.")
        record = parts[name]
        for parent, parent_id in record["parents"].items():
            if parts.get(parent, {}).get("id") != parent_id:
                raise ArtifactError(
                    f"The {name} part of {self.root} was made from an older {parent} part. {remedy} again."
                )
        part = Part(name, record["id"], self.root / record["folder"], record)
        problem = _damage(part, full=False)
        if problem:
            raise ArtifactError(f"The {name} part of {self.root} is damaged: {problem}. {remedy} again.")
        return part

    def last(self, name: str) -> Part | None:
        """A part as it was last made, though its parents may have changed since; None if there is none that is sound."""
        record = self.manifest()["parts"].get(name)
        part = Part(name, record["id"], self.root / record["folder"], record) if record else None
        return None if part is None or _damage(part, full=False) else part

    def verify(self) -> dict[str, str | None]:
        """Hash every file of every part; a problem, or None, by part name."""
        problems: dict[str, str | None] = {}
        for name, record in self.manifest()["parts"].items():
            problems[name] = _damage(Part(name, record["id"], self.root / record["folder"], record), full=True)
        return problems

    def is_current(self, name: str, *, config: object, parents: Sequence[str]) -> bool:
        """Whether the part exists, is sound, and would come out the same if it were made now."""
        try:
            part = self.open(name)
            return part.config == _plain(config) and set(part.record["parents"]) == set(parents)
        except ArtifactError:
            return False

    # -- writing

    @contextlib.contextmanager
    def write(self, name: str, *, config: object, parents: Sequence[str]) -> Iterator[Path]:
        """A folder to fill; it becomes the current part when the block ends without an exception.

        Everything that is read from the parents belongs inside the block: if one of them is replaced meanwhile, the new
        part is refused rather than recorded as made from what it was not made from.
        """
        parent_ids = {parent: self.open(parent).id for parent in parents}
        parts = self.root / "parts"
        parts.mkdir(parents=True, exist_ok=True)
        with self._lock():
            self._remove_abandoned()
            folder = Path(tempfile.mkdtemp(prefix=f".new-{name}-", dir=parts))
            alive = open(_lock_of(folder), "w")  # noqa: SIM115 - held open, and so locked, until the part is committed
            fcntl.flock(alive, fcntl.LOCK_EX)
        try:
            yield folder
            files = {
                str(path.relative_to(folder)): _checksum(path) for path in sorted(folder.rglob("*")) if path.is_file()
            }
            if not files:
                raise ArtifactError(f"Nothing was written for the {name} part.")
            part_id = hashlib.sha256(json.dumps([name, files], sort_keys=True).encode()).hexdigest()[:16]
            record = {
                "id": part_id,
                "folder": f"parts/{name}-{part_id}",
                "made_by": MAKERS[name],
                "deeped_ray": __version__,
                "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
                "config": _plain(config),
                "parents": parent_ids,
                "files": files,
            }
            with self._lock():
                self._commit(name, folder, record)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            alive.close()
            _lock_of(folder).unlink(missing_ok=True)

    def _commit(self, name: str, folder: Path, record: dict[str, Any]) -> None:
        manifest = self.manifest()
        for parent, parent_id in record["parents"].items():
            if manifest["parts"].get(parent, {}).get("id") != parent_id:
                raise ArtifactError(
                    f"The {parent} part of {self.root} changed while the {name} part was made from it. Run {MAKERS[name]} again."
                )
        target = self.root / record["folder"]
        if target.exists() and _damage(Part(name, record["id"], target, record), full=True):
            shutil.rmtree(target)
        if not target.exists():
            folder.chmod(0o755)
            os.rename(folder, target)
            _sync_folder(target.parent)
        previous = manifest["parts"].get(name)
        manifest["parts"][name] = record
        _replace(self.root / "manifest.json", json.dumps(manifest, indent=2, sort_keys=True))
        if previous and previous["folder"] != record["folder"]:
            shutil.rmtree(self.root / previous["folder"], ignore_errors=True)

    def _remove_abandoned(self) -> None:
        """Delete what killed writers left behind: a living one holds the lock on its folder."""
        current = {record["folder"] for record in self.manifest()["parts"].values()}
        for folder in (self.root / "parts").iterdir():
            if folder.suffix == ".lock" or f"parts/{folder.name}" in current:
                continue
            with contextlib.suppress(BlockingIOError), open(_lock_of(folder), "a") as alive:
                fcntl.flock(alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
                _lock_of(folder).unlink(missing_ok=True)

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        """One writer of the manifest at a time; the lock ends with its process."""
        with open(self.root / ".lock", "w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield


@dataclass(frozen=True, kw_only=True)
class ResumeConfig:
    """Where unfinished work is kept; the same pair of names takes it up again."""

    storage_path: Annotated[
        str | None, "folder for unfinished work, shared by all nodes; default: runs/ in the knowledge base"
    ] = None
    run_name: Annotated[
        str | None, "folder of this run within it; default: none, the stage's own folder tells runs apart"
    ] = None

    def __post_init__(self) -> None:
        if self.run_name is not None and (
            Path(self.run_name).name != self.run_name or self.run_name in ("", ".", "..") or "\0" in self.run_name
        ):
            raise DeepEdError(
                f"--run-name {self.run_name!r} must be a plain name: it becomes one folder below --storage-path."
            )

    def folder(self, kb: KnowledgeBase, stage: str, identity: object) -> Path:
        """The stage's own folder; its name holds a hash of all that the work depends on, so that no run takes up another's."""
        key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:12]
        storage = Path(self.storage_path).expanduser().absolute() if self.storage_path else kb.root / "runs"
        folder = storage / (self.run_name or "") / f"{stage}-{key}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DeepEdError(f"Cannot keep unfinished work in {folder}: {error.strerror}.") from error
        return folder


NEW_RUN = ResumeConfig()


def fingerprint(path: Path, *, edge_bytes: int = 2**20) -> dict[str, Any]:
    """Tells one input file from another without reading all of it: name, size, hash of the first and last mebibyte."""
    try:
        size = path.stat().st_size
        with open(path, "rb") as handle:
            digest = hashlib.sha256(handle.read(edge_bytes))
            handle.seek(max(0, size - edge_bytes))
            digest.update(handle.read(edge_bytes))
    except OSError as error:
        raise DeepEdError(f"Cannot read {path}: {error.strerror}.") from error
    return {"file": path.name, "bytes": size, "edges_sha256": digest.hexdigest()}


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


def _lock_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.lock")


def _plain(config: object) -> dict[str, Any]:
    """A config as JSON would give it back, so that tuples and lists compare equal."""
    plain = asdict(config) if is_dataclass(config) and not isinstance(config, type) else config
    result: dict[str, Any] = json.loads(json.dumps(plain))
    return result


def _checksum(path: Path) -> dict[str, Any]:
    with open(path, "rb") as handle:
        os.fsync(handle.fileno())
        digest = hashlib.sha256()
        while block := handle.read(2**20):
            digest.update(block)
    return {"bytes": path.stat().st_size, "sha256": digest.hexdigest()}


def _damage(part: Part, *, full: bool) -> str | None:
    """What is wrong with the part's files, or None."""
    for file, expected in part.record["files"].items():
        path = part.path / file
        if not path.is_file():
            return f"{file} is missing"
        size = path.stat().st_size
        if size != expected["bytes"]:
            return f"{file} has {size:,} bytes instead of {expected['bytes']:,}"
        if (full or size <= HASH_ON_OPEN_BYTES) and _checksum(path) != expected:
            return f"{file} does not match its checksum"
    return None


def _replace(path: Path, content: str) -> None:
    """Write beside, flush to disk, rename over."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with open(temporary, "w", encoding="utf-8") as handle:
        handle.write(content)
        handle.flush()
        os.fsync(handle.fileno())
    os.replace(temporary, path)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
