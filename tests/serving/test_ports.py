"""What a running server listens on, compared with docs/security.md."""

import os
import re
from contextlib import suppress
from pathlib import Path

from deeped_ray.running.local_ray import descendants
from tests.serving.conftest import Served

PAGE = Path(__file__).parent.parent.parent / "docs" / "security.md"
LISTEN = "0A"
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F"}  # as /proc writes 127.0.0.1, in IPv4 and IPv6


def documented() -> set[tuple[str, str]]:
    """(process, interface) of every row of the table."""
    table = PAGE.read_text().partition("## What listens where")[2].partition("\n## ")[0]
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| `")]
    return {(name, row[2]) for row in rows for name in re.findall(r"`([^`]+)`", row[0])}


def listening(pids: set[int], names: set[str]) -> set[tuple[str, str]]:
    sockets = {}
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == LISTEN:
                sockets[f"socket:[{inode}]"] = "loopback" if local.partition(":")[0] in LOOPBACK else "all"
    found = set()
    for pid in pids:
        with suppress(OSError):
            name = name_of(Path(f"/proc/{pid}/cmdline").read_text(), names)
            targets = [os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()]
            found |= {(name, sockets[target]) for target in targets if target in sockets}
    return found


def name_of(command: str, names: set[str]) -> str:
    """The name in the table; other workers of Ray, which come and go, count as idle ones."""
    title = re.match(r"ray::\w+|ray-dashboard", command)
    program = " ".join(command.replace("\0", " ").split()[:4])
    if title:
        return title[0] if title[0] in names else "ray::IDLE"
    return max((name for name in names if name in program), key=len, default=program)


def test_a_server_listens_where_the_table_says_and_nowhere_else(served: Served) -> None:
    table = documented()
    found = listening(descendants(served.ray.pid), {name for name, _ in table})
    assert found <= table
    assert table - found <= {("ray::IDLE", "loopback")}
