import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import ray

from deeped_ray.running import logs
from deeped_ray.running.logs import JsonFormatter, Labels, WholeLines, format_of
from deeped_ray.running.progress import Progress
from deeped_ray.running.tasks import label_of
from deeped_ray.storage.location import Location, StorageError
from deeped_ray.types import DeepEdError, redacted
from tests.s3 import CREDENTIALS, S3, failing_twice, prefix

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """What a job would log in JSON, with its root logger and labels put back afterwards."""
    root, before = logging.getLogger(), logs.labels()
    handlers, level = root.handlers[:], root.level
    logs.start(Labels(run="first", stage="parse", shard="a.xml 0-9", format="json"))
    stream = io.StringIO()
    handler = root.handlers[0]
    assert isinstance(handler, logging.StreamHandler)
    handler.setStream(stream)
    yield stream
    logging.captureWarnings(False)
    logs.start(before)
    root.handlers[:] = handlers
    root.setLevel(level)


def parsed(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_one_object_that_says_what_it_is_about(lines: io.StringIO) -> None:
    logging.getLogger("deeped_ray.test").info("skipped %d\nlines of “x”", 3)
    (line,) = parsed(lines)
    assert line.pop("time").endswith("+00:00")
    assert line.pop("host")
    assert line.pop("pid") > 0
    assert line == {
        "level": "info",
        "logger": "deeped_ray.test",
        "message": "skipped 3\nlines of “x”",
        "run": "first",
        "stage": "parse",
        "shard": "a.xml 0-9",
    }


def test_an_error_brings_its_exception(lines: io.StringIO) -> None:
    try:
        raise ValueError("bad page")
    except ValueError:
        logging.getLogger("deeped_ray.test").exception("failed")
    (line,) = parsed(lines)
    assert line["level"] == "error"
    assert line["exception"].startswith("Traceback")
    assert line["exception"].endswith("ValueError: bad page")


def test_progress_is_numbers(lines: io.StringIO, capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress("embed", "entities", 10, every_s=0.0)
    progress.skip(4)
    progress.advance(3, note="workers up to 1 GiB")
    line = parsed(lines)[-1]
    assert (line["stage"], line["done"], line["total"], line["unit"]) == ("embed", 7, 10, "entities")
    assert line["note"] == "workers up to 1 GiB"
    assert line["seconds_left"] == pytest.approx(3 / line["rate"], abs=0.1)
    assert "embed: 7/10 entities" in line["message"]
    assert capsys.readouterr().err == ""


def test_progress_is_a_plain_line_otherwise(capsys: pytest.CaptureFixture[str]) -> None:
    Progress("embed", "entities", 3, every_s=0.0).advance(3)
    assert capsys.readouterr().err.startswith("embed: 3/3 entities, ")


def test_showing_progress_begins_a_stage() -> None:
    Progress("count", "pages")
    assert logs.labels().stage == "count"


@pytest.mark.parametrize(
    ("item", "label"),
    [
        (7, "7"),
        ("a.txt", "a.txt"),
        (Location("/data/pages-000001.parquet"), "pages-000001.parquet"),
        ((Location("/run/entities-0-9.npz"), 0, 9), "entities-0-9.npz 0 9"),
        (Path("/data/a.xml"), "a.xml"),
        ((3, object()), "3"),
    ],
)
def test_a_piece_of_work_has_a_short_name(item: object, label: str) -> None:
    assert label_of(item) == label


def test_storage_that_fails_for_a_moment_is_a_warning_without_secrets(lines: io.StringIO, s3: S3) -> None:
    location = Location(prefix("logs"))
    assert location._try("read", failing_twice(f"SLOW_DOWN secret={CREDENTIALS['AWS_SECRET_ACCESS_KEY']}")) == "done"
    warnings = [line for line in parsed(lines) if line["level"] == "warning"]
    assert [(line["action"], line["attempt"], line["address"]) for line in warnings] == [
        ("read", 1, str(location)),
        ("read", 2, str(location)),
    ]
    assert warnings[0]["error"] == "SLOW_DOWN secret=***"
    assert CREDENTIALS["AWS_SECRET_ACCESS_KEY"] not in lines.getvalue()


def test_what_looks_like_a_secret_is_left_out(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        'GET /?X-Amz-Signature=abc12&part=3 <AWSAccessKeyId>AKIA7</AWSAccessKeyId> {"secret_key": "s3cr3t"} token=t0k'
    )
    for secret in ("abc12", "AKIA7", "s3cr3t", "t0k"):
        assert secret not in redacted(text)
    assert "part=3" in redacted(text)
    monkeypatch.setenv("DEEPED_STORAGE_PATIENCE_S", "0")

    def fail(*_: object) -> None:
        raise OSError(text)

    with pytest.raises(StorageError) as error:
        Location(prefix("secret"))._try("read", fail)
    assert "s3cr3t" not in str(error.value)


def test_the_command_line_beats_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert format_of(None) == "text"
    monkeypatch.setenv("DEEPED_LOG", "json")
    assert format_of(None) == "json"
    assert format_of("text") == "text"
    monkeypatch.setenv("DEEPED_LOG", "yaml")
    with pytest.raises(DeepEdError, match="'yaml', expected text or json"):
        format_of(None)


def test_a_users_error_is_json_too(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "jobs" / "build_index.py"), "--kb", str(tmp_path)]
    run = subprocess.run([*command, "--set", "log_format=json"], capture_output=True, text=True, check=False)
    assert run.returncode == 2
    line = json.loads(run.stderr.splitlines()[-1])
    assert (line["run"], line["stage"], line["exception"]) == ("build_index", "build_index", "ArtifactError")
    assert "Run jobs/embed_entities.py" in line["message"] or "Run jobs/build_corpus.py" in line["message"]


TASKS = """
import logging
import sys
from deeped_ray.running import logs, tasks

def task(shard):
    logging.getLogger("deeped_ray.task").warning("about to work hard")
    return shard

logs.start(logs.Labels(run="nightly", stage="job", format="json"))
tasks.run("parse", task, [f"dump-{name}.xml" for name in "abcdef"])
sys.stdin.read()
"""


def test_tasks_on_a_real_ray_log_run_stage_and_shard(local_ray_session: None) -> None:
    environment = {**os.environ, "RAY_ADDRESS": ray.get_runtime_context().gcs_address}
    command, pipe = [sys.executable, "-c", TASKS], subprocess.PIPE
    with subprocess.Popen(command, text=True, cwd=ROOT, env=environment, stdin=pipe, stderr=pipe) as job:
        assert job.stderr is not None
        found, wanted = [], {"done", *(f"dump-{name}.xml" for name in "abcdef")}
        while wanted:  # the lines of workers come over the network, when they come
            found.append(json.loads(job.stderr.readline()))
            wanted -= {found[-1].get("shard")} if found[-1].get("logger") == "deeped_ray.task" else set()
            wanted -= {"done"} if found[-1].get("done") == 6 else set()
        job.communicate()
    told = {(line["run"], line["stage"], line["message"]) for line in found if line.get("logger") == "deeped_ray.task"}
    assert told == {("nightly", "parse", "about to work hard")}


def test_lines_of_threads_are_kept_apart() -> None:
    stream = io.StringIO()
    lines = WholeLines(stream)
    lines.write("a line of one thread")
    with ThreadPoolExecutor(1) as other:
        other.submit(lines.write, "a line of another\n").result()
    lines.write("\nand more")
    assert stream.getvalue() == "a line of another\na line of one thread\n"


def test_the_formatter_survives_what_is_no_json() -> None:
    record = logging.LogRecord("x", logging.INFO, "f", 1, "m", None, None)
    record.fields = {"path": Path("/a")}
    assert json.loads(JsonFormatter().format(record))["path"] == "/a"
