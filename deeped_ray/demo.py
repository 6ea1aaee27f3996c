"""`make demo`: the whole path on this machine, by the same commands a cluster would get.

Starts a private Ray head, runs all stages by `ray job submit` on the mini encyclopedia, deploys the Serve app, sends it
a request, prints the answer. Then it keeps serving in a terminal, or, without one or with ONCE=1, ends what it started.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.linking.linker import Linker
from deeped_ray.linking.lookup import Lookup
from deeped_ray.linking.views import linked_text
from deeped_ray.running.console import stdout_style
from deeped_ray.running.local_ray import LocalRay, executable, local_ray, open_url
from deeped_ray.serving.local import deploy
from deeped_ray.types import Candidate, DeepEdError, Prediction

ROOT = Path(__file__).resolve().parent.parent
SENTENCE = "Montreal met Toronto in the Stanley Cup; Boston lead the National Hockey League after scoring on the ice."
_WORKER = re.compile(r"\x1b\[\d+m\(\w+ pid=\d+\)\x1b\[0m ")
_NOISE = re.compile(
    r"^\S+ \S+\t(INFO|SUCC|WARNING) (cli|packaging|dashboard_sdk|sdk|job_manager|working_dir|worker|authentication_token_setup)\.py"
    r"|Running entrypoint|Tailing logs|Checkpoint successfully|Reporting training result|Controller actor state"
    r"|Requesting resources|Attempting to start|Setting up process group|Started training|world_rank=|core_worker\.cc|^\s*$"
)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="make demo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--kb", type=Path, default=ROOT / "kb" / "mini", help="knowledge-base folder (default: kb/mini)"
    )
    parser.add_argument("--serve-only", action="store_true", help="serve a finished knowledge base and run no stage")
    parser.add_argument("--port", type=int, help="port to serve on (default: a free one)")
    args = parser.parse_args()
    for number in (signal.SIGTERM, signal.SIGHUP):  # so that what was started is ended
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    kb = args.kb.absolute()
    try:
        if args.serve_only:
            serve_only(kb, port=args.port)
        else:
            run_demo(kb, port=args.port, keep_serving=sys.stdout.isatty() and not os.environ.get("ONCE"))
    except DeepEdError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)


def run_demo(kb: Path, *, port: int | None, keep_serving: bool) -> None:
    start = time.monotonic()
    _say("starting a private Ray head")
    with local_ray() as ray:
        run_job(ray, kb, "pipeline", "--until", "train_linker")
        _say("deploying serve.app:build")
        url = deploy(ray, kb, port=port)
        _say(f"POST {url}/link")
        answers = linked_text(SENTENCE, post_link(url, SENTENCE), style=stdout_style())
        print(f"\n{answers}\n")
        run_job(ray, kb, "evaluate")
        print(f"done in {time.monotonic() - start:.0f} s; knowledge base: {kb}")
        if keep_serving:
            wait_for_interrupt(url, ray)


def run_job(ray: LocalRay, kb: Path, job: str, *options: str) -> None:
    _say(" ".join(["ray job submit --working-dir . -- python", f"jobs/{job}.py", "--kb", kb.name, *options]))
    submit(ray, ["python", f"jobs/{job}.py", "--kb", str(kb), *options])


def serve_only(kb: Path, *, port: int | None) -> None:
    # a knowledge base that cannot be served is told apart here, before anything starts
    Linker.open(kb)
    Lookup(KnowledgeBase(kb)).open_all()
    _say("starting a private Ray head")
    with local_ray() as ray:
        _say("deploying serve.app:build")
        wait_for_interrupt(deploy(ray, kb, port=port), ray)


def submit(ray: LocalRay, entrypoint: list[str]) -> None:
    """`ray job submit --working-dir . -- ENTRYPOINT`, with Ray's own chatter left out of what is shown."""
    command = [executable("ray"), "job", "submit", "--working-dir", str(ROOT), "--", *entrypoint]
    lines: list[str] = []
    with subprocess.Popen(
        command, env=ray.environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(_WORKER.sub("", line.rstrip()))
            if not _NOISE.search(lines[-1]):
                print(f"    {lines[-1]}", flush=True)
    if process.returncode:
        tail = "\n".join(lines[-40:])
        raise DeepEdError(f"`{' '.join(entrypoint)}` failed. Its last output:\n{tail}")


def post_link(url: str, text: str) -> list[Prediction]:
    body = json.dumps({"text": text}).encode()
    request = urllib.request.Request(f"{url}/link", body, {"Content-Type": "application/json"})
    with open_url(request, timeout_s=30.0) as reply:
        return [_prediction(answer) for answer in json.load(reply)["mentions"]]


def _prediction(answer: dict[str, Any]) -> Prediction:
    candidates = tuple(Candidate(**candidate) for candidate in answer["candidates"])
    attended = tuple((each["word"], each["weight"]) for each in answer["attended"])
    place = answer["start"], answer["end"], answer["surface"]
    return Prediction(*place, candidates, attended, reason=answer["reason"])


def wait_for_interrupt(url: str, ray: LocalRay) -> None:
    print(
        f"\nserving: page at {url}, documentation at {url}/docs; Ray dashboard at {ray.dashboard_url}; Ctrl-C ends both",
        flush=True,
    )
    try:
        signal.pause()
    except KeyboardInterrupt:
        print("shutting down", flush=True)


def _say(message: str) -> None:
    print(f"==> {message}", flush=True)


if __name__ == "__main__":
    main()
