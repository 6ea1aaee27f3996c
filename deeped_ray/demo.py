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
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from deeped_ray.artifacts import KnowledgeBase
from deeped_ray.linking.linker import Linker
from deeped_ray.linking.lookup import Lookup
from deeped_ray.local_ray import LocalRay, executable, free_ports, local_ray, open_url
from deeped_ray.types import DeepEdError

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
        print(render(SENTENCE, post_link(url, SENTENCE)))
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


def write_config(path: Path, port: int, args: dict[str, Any], **deployment: Any) -> Path:
    """serve/config.yaml with another port, other arguments of the app and other settings of the deployment."""
    config = yaml.safe_load((ROOT / "serve" / "config.yaml").read_text())
    config["http_options"]["port"] = port
    (application,) = config["applications"]
    application["args"] |= args
    settings = application["deployments"][0] | deployment
    application["deployments"] = [{name: value for name, value in settings.items() if value is not None}]
    path.write_text(yaml.safe_dump(config))
    return path


def deploy(ray: LocalRay, kb: Path, *, port: int | None = None, **deployment: Any) -> str:
    """Serve a knowledge base on this machine, at the address returned, until the head ends.

    `serve shutdown` before that would drain HAProxy for 30 s.
    """
    port = port or free_ports(1)[0]
    run_serve(ray, write_config(ray.log.with_name("serve.yaml"), port, {"kb": str(kb)}, **deployment))
    url = f"http://127.0.0.1:{port}"
    _wait_until_healthy(ray, url)
    return url


def run_serve(ray: LocalRay, config: Path) -> None:
    """`serve run CONFIG`: what runs already is changed to what the file says."""
    environment = {**ray.environment, "RAY_ADDRESS": ray.gcs_address}
    command = [executable("serve"), "run", str(config), "--working-dir", str(ROOT), "--non-blocking"]
    run = subprocess.run(
        command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if run.returncode:
        raise DeepEdError(f"`serve run` failed:\n{run.stdout}")


def _wait_until_healthy(ray: LocalRay, url: str, *, timeout_s: float = 120) -> None:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        with suppress(OSError), open_url(f"{url}/healthz", timeout_s=5.0):
            return
        if failure := _deploy_failure(ray):
            raise DeepEdError(f"The app was not deployed:\n{failure}")
        time.sleep(0.5)
    raise DeepEdError(f"{url}/healthz did not answer within {timeout_s:.0f} s. Ray's logs are below {ray.log.parent}.")


def _deploy_failure(ray: LocalRay) -> str | None:
    """Why Serve has given up on the app, if it has."""
    token = Path(ray.environment["RAY_AUTH_TOKEN_PATH"]).read_text()
    request = urllib.request.Request(
        f"{ray.dashboard_url}/api/serve/applications/", headers={"Authorization": f"Bearer {token}"}
    )
    with suppress(OSError), open_url(request, timeout_s=5.0) as reply:
        for application in json.load(reply)["applications"].values():
            if application["status"] == "DEPLOY_FAILED":
                return "\n".join([application["message"], *(d["message"] for d in application["deployments"].values())])
    return None


def post_link(url: str, text: str) -> list[dict[str, Any]]:
    body = json.dumps({"text": text}).encode()
    request = urllib.request.Request(f"{url}/link", body, {"Content-Type": "application/json"})
    with open_url(request, timeout_s=30.0) as reply:
        answers: list[dict[str, Any]] = json.load(reply)["mentions"]
    return answers


def render(text: str, answers: list[dict[str, Any]]) -> str:
    """The sentence with its links in place, then why each name means what it means."""
    linked, position = "", 0
    for answer in answers:
        title = answer["entity"]["title"] if answer["entity"] else "?"
        linked += f"{text[position : answer['start']]}[{answer['surface']} => {title}]"
        position = answer["end"]
    lines = ["", f"  {linked}{text[position:]}", ""]
    for answer in answers:
        if answer["entity"] is None:
            lines.append(f"  {answer['surface']}: {answer['reason']}")
            continue
        usual = max(answer["candidates"], key=lambda candidate: candidate["prior"])
        words = " ".join(word["word"] for word in answer["attended"][:6])
        overruled = (
            ""
            if usual["title"] == answer["entity"]["title"]
            else f"; usually {usual['title']} ({usual['prior']:.0%} of links)"
        )
        lines.append(
            f"  {answer['surface']}: {answer['entity']['title']} ({answer['entity']['prior']:.0%} of links{overruled})"
        )
        lines.append(f"    looked at: {words}")
    return "\n".join(lines)


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
