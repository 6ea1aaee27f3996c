"""A private Ray on this machine: its own ports, folder and token, started and ended by process id.

Another Ray on the same host is neither used nor disturbed: nothing here calls `ray stop`, and every port is a free one.
"""

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from deeped_ray.running.http import open_url
from deeped_ray.types import DeepEdError

START_TIMEOUT_S = 90
# Ray Train leaves a detached actor behind, for which a raylet waits 30 s; it holds nothing worth the wait.
STOP_TIMEOUT_S = 6
KILL_TIMEOUT_S = 20


def free_ports(count: int) -> list[int]:
    """Distinct ports that are free on the loopback interface now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def write_token(path: Path) -> None:
    """A random token that only this user can read; Ray refuses clients that do not have it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as handle:
        handle.write(secrets.token_hex(32))


@dataclass(frozen=True)
class LocalRay:
    """A running head: how its clients reach it, and in which environment they run."""

    pid: int
    dashboard_url: str
    gcs_address: str
    environment: dict[str, str]
    log: Path
    metrics_url: str


def executable(name: str) -> str:
    """A command installed beside this Python: `ray`, `serve`."""
    return str(Path(sys.executable).parent / name)


@contextlib.contextmanager
def local_ray(*, num_cpus: int | None = None) -> Iterator[LocalRay]:
    """Start a head, and end it, with all its processes, when the block ends."""
    # short, since Ray puts Unix sockets below it, whose paths are limited to 107 bytes
    folder = Path(tempfile.mkdtemp(prefix="deeped-"))
    token = folder / "token"
    write_token(token)
    gcs, dashboard, client, agent, agent_grpc, metrics, runtime_env = free_ports(7)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("RAY_")},
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",
        **_haproxy(folder),
        "RAY_ADDRESS": f"http://127.0.0.1:{dashboard}",
        "RAY_DASHBOARD_ADDRESS": f"http://127.0.0.1:{dashboard}",
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
    }
    command = [
        *(executable("ray"), "start", "--head", "--block", "--disable-usage-stats"),
        *("--node-ip-address", "127.0.0.1", "--port", str(gcs), "--temp-dir", str(folder / "ray")),
        *("--dashboard-host", "127.0.0.1", "--dashboard-port", str(dashboard), "--ray-client-server-port", str(client)),
        *("--dashboard-agent-listen-port", str(agent), "--dashboard-agent-grpc-port", str(agent_grpc)),
        *("--metrics-export-port", str(metrics), "--runtime-env-agent-port", str(runtime_env)),
        *(("--num-cpus", str(num_cpus)) if num_cpus else ()),
    ]
    log = folder / "head.log"
    start_environment = {
        name: value for name, value in environment.items() if name not in ("RAY_ADDRESS", "RAY_DASHBOARD_ADDRESS")
    }
    with open(log, "wb") as output:
        process = subprocess.Popen(
            command, env=start_environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        _wait_until_ready(process, environment["RAY_ADDRESS"], token, log)
        yield LocalRay(
            process.pid,
            environment["RAY_ADDRESS"],
            f"127.0.0.1:{gcs}",
            environment,
            log,
            f"http://127.0.0.1:{metrics}/metrics",
        )
    finally:
        _stop(process)
        shutil.rmtree(folder, ignore_errors=True)


def _haproxy(folder: Path) -> dict[str, str]:
    """Settings for Serve's HAProxy, which comes with Ray on Linux and is several times faster than its proxy in Python."""
    sockets = {"SOCKET_PATH": folder / "a", "METRICS_SOCKET_PATH": folder / "m"}
    # a node's id, of 56 letters, is put into the path, and HAProxy takes no more than 97 bytes
    if sys.platform != "linux" or len(bytes(folder)) + 60 > 97:
        return {}
    metrics, stats, http, grpc = free_ports(4)
    settings = {
        **sockets,
        "CONFIG_FILE_LOC": folder / "haproxy.cfg",
        "SERVER_STATE_BASE": folder,
        "SERVER_STATE_FILE": folder / "haproxy-state",
        "METRICS_PORT": metrics,
        "STATS_PORT": stats,
        # all our requests only read, so one that a dying replica did not answer goes to another, if it fits the buffer
        "RETRY_ON": "conn-failure empty-response",
        "TUNE_BUFSIZE": 2**17,
    }
    return {f"RAY_SERVE_HAPROXY_{name}": str(value) for name, value in settings.items()} | {
        "RAY_SERVE_ENABLE_HA_PROXY": "1",
        # HAProxy sends here what comes while it knows no replica. By default that is a port which Rays on one host share:
        # one of them would then answer for another
        "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT": str(http),
        "RAY_SERVE_FALLBACK_PROXY_GRPC_PORT": str(grpc),
    }


def _wait_until_ready(process: "subprocess.Popen[bytes]", url: str, token: Path, log: Path) -> None:
    request = urllib.request.Request(f"{url}/api/version", headers={"Authorization": f"Bearer {token.read_text()}"})
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        with contextlib.suppress(OSError), open_url(request, timeout_s=2.0):
            return
        time.sleep(0.3)
    last_lines = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
    raise DeepEdError(f"The local Ray head did not start within {START_TIMEOUT_S} s. Its last output:\n{last_lines}")


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """Ask the head to end; kill what is left of all that descends from it, and nothing else."""
    family = descendants(process.pid)
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_TIMEOUT_S)
    left = family | descendants(process.pid)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + KILL_TIMEOUT_S
    while living(left) and time.monotonic() < deadline:  # a killed process still takes its time to give back memory
        time.sleep(0.05)


def living(pids: Iterable[int]) -> list[int]:
    """Those that still run; a zombie whose parent has not looked yet does not."""
    return [pid for pid in pids if _state(pid) not in ("", "Z")]


def _state(pid: int) -> str:
    if Path("/proc").is_dir():
        with contextlib.suppress(OSError):
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            # of a killed process the first thread ends first; files and sockets stay open until the last one has ended
            return "R" if state == "Z" and len(os.listdir(f"/proc/{pid}/task")) > 1 else state
        return ""
    return subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.strip()[:1]


def descendants(pid: int) -> set[int]:
    """A process with its children and theirs, and whatever runs in a session of theirs; a job has a session of its own."""
    parents, sessions = _process_table()
    found = {pid}
    while True:
        grown = found | {child for child, parent in parents.items() if parent in found}
        grown |= {member for member, session in sessions.items() if session in grown}
        if grown == found:
            return found
        found = grown


def _process_table() -> tuple[dict[int, int], dict[int, int]]:
    """Parent and session of every process."""
    parents, sessions = {}, {}
    for pid, parent in _pids_with_parents():
        with contextlib.suppress(OSError):
            parents[pid], sessions[pid] = parent, os.getsid(pid)
    return parents, sessions


def _pids_with_parents() -> Iterator[tuple[int, int]]:
    proc = Path("/proc")
    if proc.is_dir():  # Linux, where a slim image may lack `ps`
        for entry in proc.iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    # the second field, a name in parentheses, may itself hold spaces and parentheses
                    yield int(entry.name), int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    else:
        listing = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
        for line in listing.splitlines():
            pid, parent = line.split()
            yield int(pid), int(parent)
