"""A private Ray head beside another Ray: jobs by `ray job submit`, and nothing left behind."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request

import pytest
import ray

from deeped_ray import demo
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.running.http import open_url
from deeped_ray.running.local_ray import (
    API_SERVER,
    ROOT,
    LocalRay,
    RayGoneError,
    descendants,
    executable,
    free_ports,
    living,
    local_ray,
    name_of,
)


def test_ports_are_free_and_distinct() -> None:
    assert len(set(free_ports(20))) == 20


def test_a_process_lives_until_its_last_thread_has_ended() -> None:
    # the first thread ends, as it does when a process is killed, and leaves a zombie with another thread
    script = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
print(flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        status = Path(f"/proc/{process.pid}/status")
        try:
            while "zombie" not in status.read_text():
                time.sleep(0.01)
            assert living([process.pid]) == [process.pid]
        finally:
            process.kill()
        while "Threads:\t1" not in status.read_text():
            time.sleep(0.01)
        assert living([process.pid]) == []


def ask(head: LocalRay, body: dict[str, str] | None = None, *, token: str | None = None) -> int:
    """The status of a request to the API behind `ray job`: for the list of jobs, or to submit one."""
    authorization = f"Bearer {token or Path(head.environment['RAY_AUTH_TOKEN_PATH']).read_text()}"
    headers = {"Authorization": authorization, "Content-Type": "application/json"}
    content = json.dumps(body).encode() if body else None
    try:
        with open_url(Request(f"{head.dashboard_url}/api/jobs/", content, headers), timeout_s=60.0) as reply:
            return reply.status
    except HTTPError as error:
        error.close()
        return error.code


def command_of(pid: int) -> str:
    with suppress(OSError):  # gone meanwhile
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    return ""


def submit_with_own_environment(head: LocalRay, *command: str) -> "subprocess.CompletedProcess[str]":
    """A job that is submitted as docs/cluster.md says."""
    own = ("--entrypoint-num-cpus", "1", "--runtime-env-json", '{"env_vars": {"DEEPED_CACHE": "cache"}}')
    submit = [executable("ray"), "job", "submit", "--working-dir", str(ROOT), *own, "--", *command]
    return subprocess.run(submit, env=head.environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def started(local_ray_session: None) -> Iterator[tuple[LocalRay, ExitStack]]:
    """A head, and what ends it, for the last test here."""
    with ExitStack() as stack:
        yield stack.enter_context(local_ray(num_cpus=3)), stack


@pytest.fixture(scope="module")
def head(started: tuple[LocalRay, ExitStack]) -> LocalRay:
    return started[0]


def test_stages_run_by_job_submit(head: LocalRay, mini_kb: KnowledgeBase, tmp_path: Path) -> None:
    documents, before = tmp_path / "documents.jsonl", mini_kb.manifest()
    documents.write_text('{"text": "Montreal met Toronto in the Stanley Cup."}\n')
    to_link = ("--kb", str(mini_kb), "--input", str(documents), "--output", str(tmp_path / "out"))
    with ThreadPoolExecutor() as pool:  # they mostly wait
        linked = pool.submit(demo.submit, head, "link_corpus", *to_link)
        by_uv = (
            ("uv", "run", "--no-project", "--python", sys.executable)
            if Path(executable("uv")).exists()
            else ("python",)
        )
        nowhere = pool.submit(submit_with_own_environment, head, *by_uv, "jobs/build_index.py", "--kb", "/nowhere")
    assert (linked.result()["documents"], linked.result()["mentions"]) == (1, 3)
    assert nowhere.result().returncode != 0
    assert "No knowledge base at /nowhere" in nowhere.result().stdout
    assert mini_kb.manifest() == before


def test_workers_run_the_code_of_the_checkout_and_leave_their_rubbish_in_its_folder(head: LocalRay) -> None:
    assert head.environment["PYTHONPATH"].split(os.pathsep)[0] == str(ROOT)
    assert list(head.log.parent.glob("pymp-*"))  # by Ray's dashboard; else they would stay in /tmp


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="reads environments in /proc")
def test_its_processes_ask_its_own_dashboard(head: LocalRay) -> None:
    settings = Path(f"/proc/{head.pid}/environ").read_text().split("\0")
    assert f"{API_SERVER}={head.dashboard_url}" in settings


def test_only_who_has_the_token_may_ask(head: LocalRay) -> None:
    assert ask(head) == 200
    assert ask(head, token="another") in (401, 403)


def test_a_head_ends_with_all_its_jobs_and_no_other_ray(started: tuple[LocalRay, ExitStack]) -> None:
    head, stack = started
    other_nodes = ray.nodes()
    assert ask(head, {"entrypoint": f"{sys.executable} -c 'import time; time.sleep(600)'"}) == 200
    while not any("time.sleep" in command_of(pid) for pid in descendants(head.pid)):
        time.sleep(0.05)
    members = descendants(head.pid)
    stack.close()
    assert living(members) == []
    assert not head.log.parent.exists()
    assert ray.nodes() == other_nodes


@dataclass
class Watched:
    """Stands for `living`: kills a victim when a head looks for the first time whether it is still there."""

    victims: set[int] = field(default_factory=set)

    def __call__(self, pids: Iterable[int]) -> list[int]:
        pids = list(pids)
        for victim in self.victims.intersection(pids):
            self.victims.remove(victim)
            os.kill(victim, signal.SIGKILL)
        return living(pids)


def lose_gcs(watched: Watched) -> tuple[float, float]:
    """Seconds from the end of a head's GCS until it has ended with all it started, and those of its start."""
    begun = time.monotonic()
    with (
        pytest.raises(RayGoneError, match=r"gone: .*gcs_server.* ended\. Start the command again"),
        local_ray(num_cpus=1) as head,
    ):
        watched.victims.add(process_of(head, "gcs_server"))
        family = descendants(head.pid)
        killed = time.monotonic()
        head.wait_until_gone()
    assert living(family) == []
    return time.monotonic() - killed, killed - begun


def lose_raylet_of_a_container(_: Watched) -> tuple[float, float]:
    """The same for its raylet, without our watch: a container runs nothing but `ray start --block`."""
    begun = time.monotonic()
    with local_ray(num_cpus=1) as head:
        raylet = process_of(head, "raylet")
        killed = time.monotonic()
        os.kill(raylet, signal.SIGKILL)
        while living([head.pid]):
            time.sleep(0.05)
        ended = time.monotonic()
        assert os.waitstatus_to_exitcode(os.waitpid(head.pid, 0)[1]) > 0
    return ended - killed, killed - begun


def process_of(head: LocalRay, name: str) -> int:
    (found,) = (pid for pid in descendants(head.pid) if name_of(pid) == name)
    return found


def test_a_head_that_loses_one_of_its_processes_is_ended_within_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched()
    monkeypatch.setattr("deeped_ray.running.local_ray.living", watched)
    with ThreadPoolExecutor() as pool:  # two heads at once
        for ended_s, started_s in pool.map(lambda lose: lose(watched), [lose_gcs, lose_raylet_of_a_container]):
            assert ended_s < max(10, started_s / 2)  # a busy machine draws out both
