"""One writer at a time: a second job on the same folder refuses, and names the first.

On a file system the kernel keeps a lock, which ends with its process. On object storage there are no locks: the writer
renews a small file every few seconds, and one that is not renewed belongs to a job that is gone. No clocks are
compared, so that nodes need not agree on the time.
"""

import contextlib
import fcntl
import json
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from deeped_ray.storage.location import Location
from deeped_ray.types import DeepEdError

_FILE = ".writer.json"
_SETTLE_S = 1.0
"""Of two that take a free lease at once, the later write wins: after this long both see whose it was."""


class BusyError(DeepEdError):
    """Somebody else is writing."""


def _renewal_s() -> float:
    return float(os.environ.get("DEEPED_LEASE_S", "5"))


@contextlib.contextmanager
def sole_writer(folder: Location) -> Iterator[Callable[[], None]]:
    """Hold the right to write to a folder; call what it yields before anything is published, to be sure of it still."""
    me = {
        "owner": uuid.uuid4().hex,
        "job": Path(sys.argv[0]).name or "python",
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "since": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "machine": _machine(),
    }
    with _kernel_lock(folder.path, me) if folder.path is not None else _renewed(folder, me) as check:
        yield check


def _refuse(folder: Location, holder: dict[str, Any]) -> BusyError:
    return BusyError(
        f"{holder.get('job', 'Another job')}, process {holder.get('pid', '?')} on {holder.get('host', '?')}, has been"
        f" writing to {folder} since {holder.get('since', '?')}. Wait until it has ended, or end it."
    )


@contextlib.contextmanager
def _kernel_lock(folder: Path, me: dict[str, Any]) -> Iterator[Callable[[], None]]:
    with open(folder / _FILE, "a+") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.seek(0)
            with contextlib.suppress(ValueError):
                raise _refuse(Location(folder), json.loads(handle.read())) from None
            raise _refuse(Location(folder), {}) from None
        handle.truncate(0)
        handle.write(json.dumps(me))
        handle.flush()
        yield lambda: None
        handle.truncate(0)


# -- object storage


@contextlib.contextmanager
def _renewed(folder: Location, me: dict[str, Any]) -> Iterator[Callable[[], None]]:
    file = folder / _FILE
    _wait_for_silence(folder, file)
    file.write_json({**me, "beat": 0})
    time.sleep(_SETTLE_S)
    if (holder := _holder(file)) and holder["owner"] != me["owner"]:
        raise _refuse(folder, holder)
    ended = threading.Event()
    thread = threading.Thread(target=_renew, args=(file, me, ended), daemon=True, name="lease")
    thread.start()

    def check() -> None:
        holder = _holder(file)
        if holder and holder["owner"] != me["owner"]:
            raise _refuse(folder, holder)

    try:
        yield check
    finally:
        ended.set()
        thread.join()
        with contextlib.suppress(DeepEdError, OSError):
            check()
            file.remove()


def _wait_for_silence(folder: Location, file: Location) -> None:
    """Return when there is no writer, or one that has not been heard of for three renewals."""
    first = _holder(file)
    if first is None or (first.get("machine") == _machine() and not Path(f"/proc/{first.get('pid')}").exists()):
        return
    deadline = time.monotonic() + 3 * _renewal_s()
    while time.monotonic() < deadline:
        time.sleep(min(_renewal_s() / 2, 1.0))
        now = _holder(file)
        if now is None:
            return
        if (now["owner"], now["beat"]) != (first["owner"], first["beat"]):
            raise _refuse(folder, now)


def _renew(file: Location, me: dict[str, Any], ended: threading.Event) -> None:
    beat = 0
    while not ended.wait(_renewal_s()):
        beat += 1
        # a storage that is away for a while takes the lease along; `check` decides in the end
        with contextlib.suppress(DeepEdError, OSError):
            if (_holder(file) or me)["owner"] == me["owner"]:
                file.write_json({**me, "beat": beat})


def _holder(file: Location) -> dict[str, Any] | None:
    try:
        return file.read_json()
    except (FileNotFoundError, ValueError):
        return None


def _machine() -> str:
    """The same only for processes that see each other's ids."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    namespace = Path("/proc/self/ns/pid")
    return f"{boot.read_text().strip()}-{os.readlink(namespace)}" if boot.exists() and namespace.exists() else ""
