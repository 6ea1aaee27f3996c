"""A private Ray head beside another Ray: jobs by `ray job submit`, and nothing left behind."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
import ray

from deeped_ray import demo
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.running.local_ray import descendants, executable, free_ports, living, local_ray
from deeped_ray.serving.local import ROOT
from deeped_ray.types import DeepEdError


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
        while "zombie" not in status.read_text():
            time.sleep(0.01)
        assert living([process.pid]) == [process.pid]
        process.kill()
        while "Threads:\t1" not in status.read_text():
            time.sleep(0.01)
        assert living([process.pid]) == []


def test_stages_run_by_job_submit_beside_another_ray(mini_kb: KnowledgeBase, tmp_path: Path) -> None:
    documents = tmp_path / "documents.jsonl"
    documents.write_text('{"text": "Montreal met Toronto in the Stanley Cup."}\n')
    other_nodes = ray.nodes()
    before = mini_kb.manifest()
    with local_ray() as head:
        members = descendants(head.pid)
        assert len(members) > 3
        sleeper = subprocess.run(
            [executable("ray"), "job", "submit", "--no-wait", "--", "python", "-c", "import time; time.sleep(600)"],
            env=head.environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert "submitted successfully" in sleeper.stderr + sleeper.stdout
        result = demo.submit(head, "build_index", "--kb", str(mini_kb.root))
        with pytest.raises(DeepEdError, match="No knowledge base at"):
            demo.submit(head, "build_index", "--kb", "/nowhere")
        linked = subprocess.run(
            [
                *(executable("ray"), "job", "submit", "--working-dir", str(ROOT), "--entrypoint-num-cpus", "1"),
                *("--runtime-env-json", '{"env_vars": {"DEEPED_CACHE": "cache"}}', "--"),
                *("python", "jobs/link_corpus.py", "--kb", str(mini_kb.root)),
                *("--input", str(documents), "--output", str(tmp_path / "out")),
            ],
            env=head.environment,
            capture_output=True,
            text=True,
            check=True,
        )
        without_token = {name: value for name, value in head.environment.items() if not name.startswith("RAY_AUTH")}
        listing = [executable("ray"), "job", "list"]
        assert (
            subprocess.run(
                listing, env={**without_token, "RAY_AUTH_MODE": "disabled"}, capture_output=True, check=False
            ).returncode
            != 0
        )
        assert subprocess.run(listing, env=head.environment, capture_output=True, check=False).returncode == 0
        folder = head.log.parent
        members = descendants(head.pid)
        commands = [Path(f"/proc/{pid}/cmdline").read_text() for pid in living(members)]
    assert (result["stage"], result["entities"]) == ("build_index", 226)
    assert '"stage": "link_corpus", "documents": 1, "mentions": 3' in linked.stdout
    assert (tmp_path / "out" / "_SUCCESS").exists()
    assert any("time.sleep" in command for command in commands), "the job was not running"
    assert living(members) == []
    assert not folder.exists()
    assert mini_kb.manifest() == before
    assert ray.nodes() == other_nodes
