"""Changes to a running knowledge base: a folder of small files beside the parts, which are only ever added.

    changes/000000000042-9f3a2c11.json      {"time": "...", "changes": [{"id": "P7", "entity": {...}}, {"id": "P8"}]}

An entity is what the change says; without one, it is taken off. Storage such as S3 has no locks and does not refuse to write
a file twice. So every file has a name of its own: a number above all that its writer has seen, and the writer's name. Two
that write at once may take the same number; their names then decide. All readers see the same order, whenever they look,
and of two changes to an entity the later one holds, whichever arrives first. When files are removed, since the parts hold them,
one without changes stays, so that numbers go on after theirs.
"""

import os
import re
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from hashlib import blake2b
from typing import Any, NamedTuple

from deeped_ray.storage.location import Location, StorageError
from deeped_ray.text import normalize_title
from deeped_ray.types import DeepEdError

FOLDER = "changes"
_NAME = re.compile(r"(\d{12})-[0-9a-f]{8}\.json")
_MAX_NUMBER = 10**12
_NOBODY = "0" * 8
"""Writer of the file that only keeps a number."""


class Change(NamedTuple):
    id: str
    entity: Mapping[str, Any] | None
    """As it was given, checked; None: taken off."""

    @property
    def title(self) -> str | None:
        return None if self.entity is None else normalize_title(str(self.entity.get("title") or self.id))


class Recorded(NamedTuple):
    """A change with its place in the order of all."""

    file: str
    change: Change
    time: str

    @property
    def number(self) -> int:
        return int(self.file[:12])


class ChangeLog:
    """Reads and writes the changes of one knowledge base. Threads may share it."""

    def __init__(self, kb: Location) -> None:
        self._folder, self._writer = kb / FOLDER, uuid.uuid4().hex[:8]
        self._seen: set[str] = set()
        self._lock = threading.Lock()

    def read_new(self) -> list[Recorded]:
        """What was not read before, in order."""
        with self._lock:
            new = sorted(name for name in self._names() if name not in self._seen and _NAME.fullmatch(name))
            found = [each for name in new for each in self._read(name)]
            self._seen.update(new)
            return found

    def append(self, changes: Sequence[Change]) -> list[Recorded]:
        """Write changes as one file; they are durable when this returns. They will not be read as new."""
        with self._lock:
            self._folder.make_folder()
            names = filter(_NAME.fullmatch, {*self._names(), *self._seen})
            number = max((int(name[:12]) for name in names), default=0) + 1
            if number >= _MAX_NUMBER:
                raise DeepEdError(f"{self._folder} has too many changes. Run deeped compact.")
            name = f"{number:012d}-{self._writer}.json"
            time = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
            rows = [{"id": each.id, **({"entity": each.entity} if each.entity is not None else {})} for each in changes]
            try:
                (self._folder / name).write_json({"time": time, "changes": rows})
                self._sync()
            except OSError as error:
                raise StorageError(f"Cannot write {self._folder / name}: {error.strerror or error}.") from error
            self._seen.add(name)
            return [Recorded(name, each, time) for each in changes]

    def forget(self, names: Sequence[str]) -> None:
        """Remove files that the parts now hold."""
        if not names:
            return
        last = f"{max(names)[:12]}-{_NOBODY}.json"
        (self._folder / last).write_json({"time": "", "changes": []})
        earlier = [name for name in self._names() if name.endswith(f"-{_NOBODY}.json") and name < last]
        for name in [*names, *earlier]:
            (self._folder / name).remove()

    def _names(self) -> list[str]:
        if self._folder.path is None:
            return self._folder.children()
        try:
            return os.listdir(self._folder.path)  # every poll asks: do not look at the files themselves
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StorageError(f"Cannot list {self._folder}: {error.strerror}.") from error

    def _read(self, name: str) -> Iterator[Recorded]:
        try:
            content = (self._folder / name).read_json()
            for row in content["changes"]:
                yield Recorded(name, Change(str(row["id"]), row.get("entity")), str(content["time"]))
        except FileNotFoundError:
            return  # folded into the parts meanwhile
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DeepEdError(f"{self._folder / name} is not a file of changes ({error!r}). Move it away.") from error

    def _sync(self) -> None:
        """The name of a file is in its folder, which has to reach the disk too."""
        if self._folder.path is not None:
            descriptor = os.open(self._folder.path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


class Changes:
    """What holds of many changes: the last one of each entity, whatever order they come in."""

    def __init__(self) -> None:
        self.latest: dict[str, Recorded] = {}
        self.files: set[str] = set()
        self._digest = 0

    def apply(self, recorded: Sequence[Recorded]) -> None:
        for each in recorded:
            if each.file not in self.files:
                self.files.add(each.file)
                self._digest ^= int.from_bytes(blake2b(each.file.encode(), digest_size=4).digest(), "little")
            held = self.latest.get(each.change.id)
            # of one file, the later row
            if held is None or held.file <= each.file:
                self.latest[each.change.id] = each

    def find(self, name: str) -> str | None:
        """The id of an entity that was added or changed, by its id or title; None if there is none."""
        held = self.latest.get(name)
        if held is not None and held.change.entity is not None:
            return name
        title = normalize_title(name)
        return next((each.change.id for each in self.latest.values() if each.change.title == title), None)

    @property
    def version(self) -> str:
        """The same wherever the same changes have arrived, in whatever order."""
        return f"{len(self.files)}-{self._digest:08x}" if self.files else "0"

    def since(self, number: int) -> list[Recorded]:
        """What holds of the changes with this number or a later one, in order."""
        return sorted((each for each in self.latest.values() if each.number >= number), key=lambda each: each.file)
