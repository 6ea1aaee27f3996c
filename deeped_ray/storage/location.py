"""Files and folders on any storage that pyarrow.fs knows: a local path, `s3://`, `gs://`, `hdfs://`.

Nodes share nothing but this storage. What a task writes appears whole or not at all: beside its place and renamed, on a
file system; uploaded as one object elsewhere. What it reads from afar is fetched into a folder of the node
(`DEEPED_CACHE`). Credentials come from the environment, never from an address. What fails for a moment is tried again,
longer and longer apart, for `DEEPED_STORAGE_PATIENCE_S` seconds.
"""

import contextlib
import errno
import fnmatch
import functools
import json
import logging
import os
import random
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.fs

from deeped_ray.storage.cache import cache_folder, caching, temporary_folder
from deeped_ray.storage.events import tell
from deeped_ray.types import DeepEdError, redacted

logger = logging.getLogger(__name__)
Result = TypeVar("Result")
_URI = re.compile(r"([a-z][a-z0-9+.-]*)://(.*?)(\?.*)?$", re.DOTALL)
_SECRET = re.compile(r"(access_key|secret|token|password)[^=]*=", re.IGNORECASE)
_FINAL = re.compile(
    r"ACCESS_DENIED|INVALID_ACCESS_KEY|SIGNATURE|NO_SUCH_BUCKET|Bucket .* not found|Unrecognized filesystem"
)
"""In pyarrow's messages, what no second try will mend."""
_BLOCK_BYTES = 8 * 2**20
_COPIED_AT_ONCE = 5 * 2**30
"""S3 copies no larger object in one request."""

Address: TypeAlias = "str | os.PathLike[str] | Location"


class StorageError(DeepEdError):
    """The storage does not do what it is asked to, and did not when asked again."""


_PATIENCE_S: ContextVar[float | None] = ContextVar("patience_s", default=None)


@contextlib.contextmanager
def patience(seconds: float) -> Iterator[None]:
    """Within the block, what fails is tried again for so long at most: somebody is waiting."""
    token = _PATIENCE_S.set(seconds)
    try:
        yield
    finally:
        _PATIENCE_S.reset(token)


def _patience_s() -> float:
    usual = float(os.environ.get("DEEPED_STORAGE_PATIENCE_S", "60"))
    return min(usual, given) if (given := _PATIENCE_S.get()) is not None else usual


class Location:
    """One file or folder. Another node makes the same of its pickle, with credentials of its own."""

    def __init__(self, address: Address) -> None:
        text = address.address if isinstance(address, Location) else os.fspath(address)
        match = _URI.match(text)
        if match and match[1] == "file":
            text, match = "/" + match[2].lstrip("/"), None
        if match:
            self._scheme, base, self._query = match[1], match[2].rstrip("/"), match[3] or ""
            if "@" in base.partition("/")[0] or _SECRET.search(self._query):
                raise DeepEdError(
                    f"{self._scheme}:// address with a secret in it. Give credentials by the environment instead."
                )
        else:
            self._scheme, base, self._query = "", str(Path(text).expanduser().absolute()), ""
        self._base = base

    # -- what it is

    @property
    def address(self) -> str:
        return f"{self._scheme}://{self._base}{self._query}" if self._scheme else self._base

    def __str__(self) -> str:
        return self.address

    def __repr__(self) -> str:
        return f"Location({self.address!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Location) and self.address == other.address

    def __hash__(self) -> int:
        return hash(self.address)

    def __lt__(self, other: "Location") -> bool:
        return self.address < other.address

    def __reduce__(self) -> tuple[type["Location"], tuple[str]]:
        return Location, (self.address,)

    def __truediv__(self, name: str) -> "Location":
        return self._at(f"{self._base}/{name}") if name else self

    def _at(self, base: str) -> "Location":
        return Location(f"{self._scheme}://{base}{self._query}" if self._scheme else base)

    @property
    def parent(self) -> "Location":
        return self._at(self._base.rpartition("/")[0])

    @property
    def name(self) -> str:
        return PurePosixPath(self._base).name

    @property
    def stem(self) -> str:
        return PurePosixPath(self._base).stem

    @property
    def path(self) -> Path | None:
        """On a file system of this machine; None for anything else."""
        return None if self._scheme else Path(self._base)

    # -- looking

    def exists(self) -> bool:
        return bool(self._info().type != pyarrow.fs.FileType.NotFound)

    def is_folder(self) -> bool:
        return bool(self._info().type == pyarrow.fs.FileType.Directory)

    def num_bytes(self) -> int:
        info = self._info()
        if info.type != pyarrow.fs.FileType.File:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self))
        return int(info.size)

    def version(self) -> str:
        """Changes when the file is written again."""
        info = self._info()
        return f"{info.size}-{info.mtime_ns}"

    def _info(self) -> Any:
        return self._try("look at", lambda fs, path: fs.get_file_info(path))

    def glob(self, pattern: str) -> list["Location"]:
        """Files right below this folder, sorted; none of what is still being written."""
        return [self / name for name in sorted(self.sizes()) if fnmatch.fnmatchcase(name, pattern) and "/" not in name]

    def sizes(self) -> dict[str, int]:
        """Bytes of all files below this folder, by their names within it."""
        selector = pyarrow.fs.FileSelector
        found = self._try(
            "list", lambda fs, path: (path, fs.get_file_info(selector(path, allow_not_found=True, recursive=True)))
        )
        base = found[0].rstrip("/") + "/"
        files = [info for info in found[1] if info.type == pyarrow.fs.FileType.File]
        names = {info.path.removeprefix(base): int(info.size) for info in files}
        return {name: size for name, size in names.items() if not PurePosixPath(name).name.startswith(".")}

    def children(self) -> list[str]:
        """Names of the files and folders right below this one, those that begin with a dot too."""
        selector = pyarrow.fs.FileSelector
        found = self._try("list", lambda fs, path: fs.get_file_info(selector(path, allow_not_found=True)))
        return sorted(info.base_name for info in found)

    # -- reading

    @contextlib.contextmanager
    def open(self) -> Iterator[Any]:
        """A file to read at any place: mapped into memory where that can be done."""
        is_mapped = self.path is not None and self.path.is_file() and self.path.stat().st_size > 0
        with pa.memory_map(self._base) if is_mapped else _open(self.address) as source:
            yield source

    def reading(self, read: Callable[[Any], Result]) -> Result:
        """What `read` makes of the open file; tried again as a whole."""

        def attempt(*_: Any) -> Result:
            with self.open() as source:
                return read(source)

        return attempt() if self.path is not None else self._try("read", attempt)

    def read_bytes(self, start: int = 0, end: int | None = None) -> bytes:
        def read(source: Any) -> bytes:
            source.seek(start)
            return bytes(source.read(None if end is None else end - start))

        return self.reading(read)

    def read_json(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self.read_bytes())
        return content

    def fetch(self, target: Path) -> None:
        """Copy the file to one of this machine, which appears whole or not at all."""
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}")

        def copy(fs: Any, path: str) -> None:
            with fs.open_input_stream(path) as source, open(temporary, "wb") as sink:
                shutil.copyfileobj(source, sink, _BLOCK_BYTES)

        try:
            self._try("fetch", copy)
            tell("fetched_bytes", temporary.stat().st_size)
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)

    def local(self) -> Path:
        """The file itself, or this node's copy of it, fetched again only if the file has changed."""
        if self.path is not None:
            return self.path
        if not self.exists():
            raise StorageError(f"Cannot read {self}: there is no such file.")
        folder = cache_folder() / "files" / str(uuid.uuid5(uuid.NAMESPACE_URL, f"{self} {self.version()}"))
        with caching(folder):
            if not (folder / self.name).exists():
                self.fetch(folder / self.name)
        return folder / self.name

    @contextlib.contextmanager
    def fetched(self, pattern: str = "*") -> Iterator[Path]:
        """The folder itself, or a copy of its files that match, for as long as it is needed."""
        if self.path is not None:
            yield self.path
            return
        with temporary_folder() as folder:
            for name in fnmatch.filter(self.sizes(), pattern):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (self / name).fetch(folder / name)
            yield folder

    # -- writing

    @contextlib.contextmanager
    def writing(self) -> Iterator[Path]:
        """A local file to fill, which becomes this one when the block ends without an exception."""
        if self.path is not None:
            temporary = self.path.with_name(f".{self.name}.{uuid.uuid4().hex}")
            try:
                yield temporary
                self._try("write", lambda *_: os.replace(temporary, self._base))
            finally:
                temporary.unlink(missing_ok=True)
            return
        with temporary_folder() as folder:
            yield folder / self.name
            self.upload(folder / self.name)

    @contextlib.contextmanager
    def filling(self) -> Iterator[Path]:
        """A local folder to fill; its files are put into this one when the block ends without an exception."""
        with temporary_folder(self.path) as folder:
            yield folder
            for path in sorted(path for path in folder.rglob("*") if path.is_file()):
                target = self / str(path.relative_to(folder))
                if self.path is not None:
                    os.replace(path, target.address)
                else:
                    target.upload(path)

    def upload(self, source: Path) -> None:
        """Put a local file here."""
        expected = source.stat().st_size

        def copy(fs: Any, path: str) -> None:
            with open(source, "rb") as content, fs.open_output_stream(path) as sink:
                shutil.copyfileobj(content, sink, _BLOCK_BYTES)
            if (found := fs.get_file_info(path).size) != expected:
                raise OSError(f"{found} of {expected} bytes arrived")

        self._try("write", copy)

    def copy(self, target: "Location") -> None:
        """To another place: the storage does it itself if both are on one and it can."""
        file_system, path = _file_system(target.address)
        if _file_system(self.address)[0].equals(file_system) and self.num_bytes() <= _COPIED_AT_ONCE:
            with contextlib.suppress(NotImplementedError):
                self._try("copy", lambda fs, own: fs.copy_file(own, path))
                return
        with temporary_folder() as folder:
            self.fetch(folder / self.name)
            target.upload(folder / self.name)

    def write_bytes(self, content: bytes) -> None:
        """A small file, safely on disk."""
        with self.writing() as path, open(path, "wb") as handle:
            handle.write(content)
            handle.flush()
            os.fsync(handle.fileno())

    def write_json(self, content: Mapping[str, Any]) -> None:
        self.write_bytes(json.dumps(content).encode())

    def make_folder(self) -> None:
        """With the folders above it; where there are no folders, there is nothing to do."""
        if self._scheme not in ("s3", "gs", "gcs"):
            self._try("make", lambda fs, path: fs.create_dir(path, recursive=True))

    def remove(self) -> None:
        """With all that is in it; it may be gone already.

        A folder of this machine is renamed first. So a process that still writes into it, a killed driver's task for
        instance, can neither hinder that nor leave a file behind, and a kill leaves no half of the folder.
        """

        def remove(fs: Any, path: str) -> None:
            kind = fs.get_file_info(path).type
            if kind == pyarrow.fs.FileType.File:
                fs.delete_file(path)
            elif kind == pyarrow.fs.FileType.Directory and self.path is not None:
                renamed = self.path.with_name(f".{self.name}.{uuid.uuid4().hex}")
                os.rename(self.path, renamed)
                shutil.rmtree(renamed)
            elif kind == pyarrow.fs.FileType.Directory:
                fs.delete_dir(path)

        with contextlib.suppress(FileNotFoundError):
            self._try("remove", remove)

    # -- trying

    def _try(self, action: str, operation: Callable[[Any, str], Result]) -> Result:
        """Run an operation on the file system. On a disk an error is final; elsewhere it may pass."""
        deadline = time.monotonic() + (_patience_s() if self._scheme else 0)
        delay_s, attempt = 0.25, 1
        while True:
            try:
                return operation(*_file_system(self.address))
            except (FileNotFoundError, NotImplementedError):
                raise
            except (OSError, pa.ArrowException) as error:
                is_final = isinstance(error, PermissionError) or _FINAL.search(str(error)) is not None
                reason = redacted(_reason(error))
                if is_final or time.monotonic() + delay_s > deadline:
                    hint = " What was finished is kept: run the same command when the storage is there again."
                    message = f"Cannot {action} {self}: {reason.rstrip('.')}.{hint if self._scheme else ''}"
                    raise StorageError(message) from error
            self._log_retry(action, attempt, reason)
            time.sleep(delay_s * random.uniform(0.5, 1))  # so that workers do not all come back at once
            delay_s, attempt = min(2 * delay_s, 15), attempt + 1

    def _log_retry(self, action: str, attempt: int, reason: str) -> None:
        fields = {"action": action, "address": str(self), "attempt": attempt, "error": reason}
        logger.warning("cannot %s %s, trying again: %s", action, self, reason, extra={"fields": fields})
        tell("storage_retries", action=action)


def _reason(error: Exception) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error).strip()


def find_files(pattern: str) -> list[Location]:
    """The file, all files below the folder, or those that the glob matches; sorted, none if there are none."""
    location = Location(pattern)
    if location.path is None:
        if location.is_folder():
            return [location / name for name in sorted(location.sizes())]
        return [location] if location.exists() else location.parent.glob(location.name)
    path = Path(pattern)
    root = Path(path.anchor) if path.is_absolute() else Path()
    if path.is_dir():
        matches = sorted(inner for inner in path.rglob("*") if inner.is_file())
    elif path.exists():
        matches = [path]
    else:
        matches = sorted(root.glob(str(path.relative_to(path.anchor)))) if path.name else []
    return [Location(match) for match in matches]


def link_or_copy(source: Location, target: Path) -> None:
    """A file that nobody will change, under a local name as well."""
    if source.path is None:
        source.fetch(target)
        return
    try:
        os.link(source.path, target)
    except OSError:  # another file system, or one without hard links
        shutil.copy(source.path, target)


def _open(address: str) -> Any:
    file_system, path = _file_system(address)
    return open(path, "rb") if file_system is _local() else file_system.open_input_file(path)


def _file_system(address: str) -> tuple[Any, str]:
    """The file system and the path on it; opened once per process, scheme and query."""
    match = _URI.match(address)
    if not match:
        return _local(), address
    scheme, base, query = match[1], match[2], match[3] or ""
    bucket, _, rest = base.partition("/")
    file_system, root = _remote(f"{scheme}://{bucket}{query}")
    return file_system, f"{root}/{rest}" if rest else root


@functools.cache
def _local() -> Any:
    return pyarrow.fs.LocalFileSystem()


@functools.cache
def _remote(address: str) -> tuple[Any, str]:
    try:
        file_system, root = pyarrow.fs.FileSystem.from_uri(address)
    except (ValueError, pa.ArrowException, OSError) as error:
        raise DeepEdError(f"Cannot use {address}: {error}. Expected a path, s3://, gs:// or hdfs://.") from error
    return file_system, root.rstrip("/")
