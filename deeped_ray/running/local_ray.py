"""A private Ray on this machine: its own ports, folder and token, started and ended by process id.

Another Ray on the same host is neither used nor disturbed: nothing here calls `ray stop`, and every port is a free one.
"""

import contextlib
import os
import random
import re
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from deeped_ray.running.http import open_url
from deeped_ray.types import DeepEdError

ROOT = Path(__file__).resolve().parent.parent.parent
"""The checkout, or the folder of installed packages."""
IS_CHECKOUT = (ROOT / "jobs").is_dir() and (ROOT / "pyproject.toml").exists()
API_SERVER = "RAY_API_SERVER_ADDRESS"
"""The dashboard that processes of Ray ask about actors. Unless it is set, they take that of any Ray on this host."""
START_TIMEOUT_S = 90
# Ray Train leaves a detached actor behind, for which a raylet waits 30 s; it holds nothing worth the wait.
STOP_TIMEOUT_S = 6
KILL_TIMEOUT_S = 20
WATCH_S = 1
PORTS = range(20_000, 30_000)
"""Where no one takes a port before its server does: outgoing connections get 32768 and up, Ray's workers 10002 to 19999,
Serve's replicas 30000 and up."""


def free_ports(count: int) -> list[int]:
    """Distinct ports that are free on the loopback interface now."""
    found: list[int] = []
    for port in random.sample(PORTS, len(PORTS)):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            return found
    raise DeepEdError(f"Of the ports {PORTS.start} to {PORTS.stop - 1}, fewer than {count} are free.")


def require_free(port: int) -> None:
    """Refuse a port that another process listens on, before anything is started."""
    with socket.socket() as each:
        # what a server that has just ended left is no obstacle
        each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            each.bind(("127.0.0.1", port))
        except OSError as error:
            raise DeepEdError(f"Port {port} cannot be used: {error.strerror}. Give another --port.") from error


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

    def check_alive(self) -> None:
        """Raise an error if the head has ended, as it does soon after its raylet or its GCS has crashed."""
        if not living([self.pid]):
            raise DeepEdError("The private Ray has ended. Start the command again.")

    def wait_until_gone(self) -> NoReturn:
        """Wait until the head or one of its processes ends, for whatever reason. Then raise an error that names it."""
        children = [pid for pid, parent in _pids_with_parents() if parent == self.pid]
        core = {pid: name_of(pid) for pid in (*children, self.pid)}
        while len(alive := living(core)) == len(core):
            time.sleep(WATCH_S)
        gone = ", ".join(sorted(name for pid, name in core.items() if pid not in alive))
        raise RayGoneError(f"The private Ray is gone: {gone} ended. Start the command again.")


class RayGoneError(DeepEdError):
    """A process of the private Ray has ended, so there is nothing left to end in an orderly way."""


def executable(name: str) -> str:
    """A command installed beside this Python: `ray`, `serve`."""
    return str(Path(sys.executable).parent / name)


@contextlib.contextmanager
def local_ray(*, num_cpus: int | None = None, meanwhile: Callable[[], object] = lambda: None) -> Iterator[LocalRay]:
    """Start a head, and end it, with all its processes, when the block ends. `meanwhile` is called while it starts."""
    # short, since Ray puts Unix sockets below it, whose paths are limited to 107 bytes
    folder = Path(tempfile.mkdtemp(prefix="deeped-"))
    token = folder / "token"
    write_token(token)
    gcs, dashboard, client, agent, agent_grpc, metrics, runtime_env, head_metrics, scaler_metrics = free_ports(9)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("RAY_")},
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",
        # Ray's 15 gives replicas 3% of a core that any other process wants: requests would wait, and health checks fail
        "RAY_worker_niceness": "0",
        # a raylet ends itself if its agent takes longer to start: by default 30 s, which is too little on a busy machine
        "RAY_agent_register_timeout_ms": "300000",
        # so that Ray takes 127.0.0.1 for its address, as on macOS, and listens nowhere else
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "DASHBOARD_METRIC_PORT": str(head_metrics),
        "AUTOSCALER_METRIC_PORT": str(scaler_metrics),
        **_haproxy(folder),
        "RAY_ADDRESS": f"http://127.0.0.1:{dashboard}",
        "RAY_DASHBOARD_ADDRESS": f"http://127.0.0.1:{dashboard}",
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        **_code_of_checkout(),
        "TMPDIR": str(folder),  # Ray's dashboard leaves sockets in it
    }
    command = [
        *(executable("ray"), "start", "--head", "--block", "--disable-usage-stats"),
        *("--node-ip-address", "127.0.0.1", "--port", str(gcs), "--temp-dir", str(folder / "ray")),
        *("--dashboard-host", "127.0.0.1", "--dashboard-port", str(dashboard), "--ray-client-server-port", str(client)),
        *("--include-log-monitor", "false"),  # what workers print stays in their files
        *("--dashboard-agent-listen-port", str(agent), "--dashboard-agent-grpc-port", str(agent_grpc)),
        *("--metrics-export-port", str(metrics), "--runtime-env-agent-port", str(runtime_env)),
        *(("--num-cpus", str(num_cpus)) if num_cpus else ()),
    ]
    log = folder / "head.log"
    start_environment = {
        name: value for name, value in environment.items() if name not in ("RAY_ADDRESS", "RAY_DASHBOARD_ADDRESS")
    } | {API_SERVER: environment["RAY_ADDRESS"]}

    def start() -> "subprocess.Popen[bytes]":
        with open(log, "wb") as output:
            return subprocess.Popen(
                command, env=start_environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )

    process, grace_s = start(), STOP_TIMEOUT_S
    try:
        meanwhile()
        if not _is_ready(process, environment["RAY_ADDRESS"], token, log):
            _stop(process, grace_s=0)  # Ray gives a node 30 s to register, which a very busy machine may not
            process = start()
            if not _is_ready(process, environment["RAY_ADDRESS"], token, log):
                raise DeepEdError(f"The local Ray head does not start. Its last output:\n{_last_lines(log)}")
        yield LocalRay(
            process.pid,
            environment["RAY_ADDRESS"],
            f"127.0.0.1:{gcs}",
            environment,
            log,
            f"http://127.0.0.1:{metrics}/metrics",
        )
    except RayGoneError:
        grace_s = 0
        raise
    finally:
        _stop(process, grace_s=grace_s)
        shutil.rmtree(folder, ignore_errors=True)


def _code_of_checkout() -> dict[str, str]:
    """In a checkout, workers run its code, whatever is installed. As a runtime_env, it would cost each a second start."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {"PYTHONPATH": os.pathsep.join(paths)} if IS_CHECKOUT else {}


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
        "BINARY_PATH": _edge(folder),
    }
    return {f"RAY_SERVE_HAPROXY_{name}": str(value) for name, value in settings.items()} | {
        "RAY_SERVE_ENABLE_HA_PROXY": "1",
        # HAProxy sends here what comes while it knows no replica. By default that is a port which Rays on one host share:
        # one of them would then answer for another
        "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT": str(http),
        "RAY_SERVE_FALLBACK_PROXY_GRPC_PORT": str(grpc),
        # after three checks without an answer Ray starts a new HAProxy; by default a check comes every 10 s
        "RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S": "1",
        # how long a replica that is replaced stays for load balancers to notice: by default 30 s, with all its memory. The
        # only one here is Ray's own HAProxy, which is told at once and tries another replica if one refuses
        "RAY_SERVE_DIRECT_INGRESS_MIN_DRAINING_PERIOD_S": "5",
    }


def _edge(folder: Path) -> Path:
    """The program that Ray runs as its HAProxy: ours, which adds what Ray does not let us set."""
    launcher = folder / "edge"
    program = Path(__file__).resolve().parent.parent / "serving" / "edge.py"
    launcher.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -I {shlex.quote(str(program))} "$@"\n')
    launcher.chmod(0o700)
    return launcher


def _is_ready(process: "subprocess.Popen[bytes]", url: str, token: Path, log: Path) -> bool:
    """Whether the head has started; waits for it."""
    request = urllib.request.Request(f"{url}/api/version", headers={"Authorization": f"Bearer {token.read_text()}"})
    deadline = time.monotonic() + START_TIMEOUT_S
    while process.poll() is None and time.monotonic() < deadline:
        if "--block" in log.read_text(errors="replace"):  # its dashboard answers before its raylet has registered
            with contextlib.suppress(OSError), open_url(request, timeout_s=2.0):
                return True
        time.sleep(0.1)
    return False


def _last_lines(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-15:])


def _stop(process: "subprocess.Popen[bytes]", *, grace_s: float) -> None:
    """Ask the head to end, if it has time for it; kill what is left of all that descends from it, and nothing else."""
    family = descendants(process.pid)
    if grace_s and process.poll() is None:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace_s)
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


def name_of(pid: int) -> str:
    """Of a program, or of the script that Python runs."""
    cmdline = Path(f"/proc/{pid}/cmdline")
    words = cmdline.read_bytes().decode().split("\0") if cmdline.exists() else _ps("args", pid).split()
    comm = Path(f"/proc/{pid}/comm")
    words += [comm.read_text().strip()] if comm.exists() else []  # a zombie has no arguments any more
    return next((name for name in (Path(word).name for word in words) if not re.match("-|python|$", name)), "a process")


def _ps(field: str, pid: int) -> str:
    command = ["ps", "-o", f"{field}=", "-p", str(pid)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _state(pid: int) -> str:
    if Path("/proc").is_dir():
        with contextlib.suppress(OSError):
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            # of a killed process the first thread ends first; files and sockets stay open until the last one has ended
            return "R" if state == "Z" and len(os.listdir(f"/proc/{pid}/task")) > 1 else state
        return ""
    return _ps("stat", pid)[:1]


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
