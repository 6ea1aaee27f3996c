"""`deeped demo` and `deeped serve`: everything on a private Ray of this machine, by the commands a cluster would get.

The demo starts a Ray head, runs all stages by `ray job submit` on the mini encyclopedia, deploys the Serve app, sends it
a request and shows the answer. Then it builds a second knowledge base from a German wiki that has no annotated documents:
its own links teach the linker. In a terminal the demo keeps serving; otherwise it ends what it started.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deeped_ray.linking.views import linked_text
from deeped_ray.mini import KLEINE_CONFIG, KLEINE_DUMP, KLEINE_TEST
from deeped_ray.running.console import stdout_style
from deeped_ray.running.http import open_url
from deeped_ray.running.local_ray import IS_CHECKOUT, ROOT, LocalRay, executable, local_ray, require_free
from deeped_ray.serving.config import AppArgs, read_token
from deeped_ray.serving.deploy import check
from deeped_ray.serving.local import deploy
from deeped_ray.types import Candidate, DeepEdError, Prediction

SENTENCE = "Montreal met Toronto in the Stanley Cup; Boston lead the National Hockey League after scoring on the ice."
GERMAN_SENTENCE = "Bremen verliert in Köln, und Bayern gewinnt den Pokal."
AGENT_PATIENCE_S = 120
_NOISE = re.compile(
    r"^\S+ \S+\t(INFO|SUCC|WARNING) (cli|packaging|dashboard_sdk|sdk|job_manager|working_dir|worker|authentication_token_setup)\.py"
    r"|Running entrypoint|Tailing logs|core_worker\.cc|^\s*$|^\(PlacementGroupCleaner pid=\d+\)"
)


def run_demo(kb: Path, *, port: int | None = None, keep_serving: bool = False) -> None:
    _end_with_what_was_started()
    if port:
        require_free(port)
    start = time.monotonic()
    _say("starting a private Ray")
    # two are the replicas', and a job beside them waits for a free one for ever
    with local_ray(num_cpus=max(os.cpu_count() or 1, 4)) as ray:
        submit(ray, "pipeline", "--kb", str(kb), "--until", "train_linker")
        _say("deploying the server")
        url = deploy(ray, kb, port=port, say=_say)
        _say(f"POST {url}/link")
        print(f"\n{linked_text(SENTENCE, post_link(url, SENTENCE), style=stdout_style())}\n")
        submit(ray, "evaluate", "--kb", str(kb))
        _say("a German wiki without annotated documents: its links teach the linker")
        german = kb.with_name(f"{kb.name}-german")
        wiki = ["--dump", str(KLEINE_DUMP), "--config", str(KLEINE_CONFIG), "--dataset", f"jsonl:{KLEINE_TEST}"]
        submit(ray, "pipeline", "--kb", str(german), *wiki)
        print(f"\nDone in {time.monotonic() - start:.0f} s. The knowledge bases are in {kb} and {german}. Try:")
        print(f'    deeped link --kb {kb} "{SENTENCE}"\n    deeped link --kb {german} "{GERMAN_SENTENCE}"', flush=True)
        if keep_serving:
            _wait_for_interrupt(url, ray)


def run_server(
    kb: Path | str, *, port: int | None = None, token_file: str | None = None, writers_token_file: str | None = None
) -> None:
    """Serve until Ctrl-C. Raises an error if the knowledge base cannot be served, or if Ray ends."""
    _end_with_what_was_started()
    if port:
        require_free(port)
    tokens = {"token_file": token_file, "writers_token_file": writers_token_file}
    for file in tokens.values():
        read_token(file)
    _say("checking the knowledge base, and starting a private Ray")
    with local_ray(meanwhile=lambda: _say(check(AppArgs(kb=str(kb))))) as ray:
        _say("starting Ray Serve and the replicas")
        _wait_for_interrupt(deploy(ray, kb, port=port, say=_say, **tokens), ray)


def _end_with_what_was_started() -> None:
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))


# -- jobs


def submit(ray: LocalRay, job: str, *options: str) -> dict[str, Any]:
    """`ray job submit` of a job, without Ray's own chatter in what is shown; returns its result line."""
    entrypoint = ["python", f"jobs/{job}.py"] if IS_CHECKOUT else [executable("deeped"), "job", job]
    folder = ["--working-dir", str(ROOT)] if IS_CHECKOUT else []
    _say(" ".join(["ray job submit", *(["--working-dir ."] if folder else []), "--", *entrypoint, *options]))
    command = [executable("ray"), "job", "submit", *folder, "--", *entrypoint, *options]
    deadline = time.monotonic() + AGENT_PATIENCE_S
    while True:
        code, lines, result = _run_job(command, ray, job)
        if code == 0:
            return result
        # on a busy machine Ray's agent may not have started yet, or not answer in time
        if time.monotonic() > deadline or not any("No available agent to submit job" in line for line in lines):
            raise DeepEdError(f"The job {job} failed. Its last output:\n" + "\n".join(lines[-40:]))


def _run_job(command: Sequence[str], ray: LocalRay, job: str) -> tuple[int, list[str], dict[str, Any]]:
    """Exit code, all lines, and the job's result."""
    lines: list[str] = []
    result: dict[str, Any] = {}
    with subprocess.Popen(
        command, env=ray.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line.rstrip())
            if line.startswith(f'{{"stage": "{job}"'):
                result = json.loads(line)
            elif not _NOISE.search(lines[-1]):
                print(f"    {lines[-1]}", flush=True)
    return process.returncode, lines, result


# -- the server


def post_link(url: str, text: str) -> list[Prediction]:
    body = json.dumps({"text": text}).encode()
    request = urllib.request.Request(f"{url}/link", body, {"Content-Type": "application/json"})
    with open_url(request, timeout_s=30.0) as reply:
        return [_prediction(answer) for answer in json.load(reply)["mentions"]]


def _prediction(answer: dict[str, Any]) -> Prediction:
    candidates = tuple(Candidate(**candidate) for candidate in answer["candidates"])
    attended = tuple((word["word"], word["weight"]) for word in answer["attended"])
    place = (answer["start"], answer["end"], answer["surface"])
    return Prediction(
        *place, candidates, attended, reason=answer["reason"], none_probability=answer["none_probability"]
    )


def _wait_for_interrupt(url: str, ray: LocalRay) -> None:
    print(
        f"\nServing. Page: {url}   HTTP API: {url}/docs   Ray dashboard: {ray.dashboard_url}   Ctrl-C to stop",
        flush=True,
    )
    try:
        ray.wait_until_gone()
    except KeyboardInterrupt:
        print("shutting down", flush=True)


def _say(message: str) -> None:
    print(f"==> {message}", flush=True)
