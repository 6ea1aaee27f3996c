"""A corpus in, answers out: on the tests' own Ray, and in a cluster whose workers, nodes and drivers die."""

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from ray.cluster_utils import Cluster

from deeped_ray.batch import link as corpus_linking
from deeped_ray.batch.answers import Counts
from deeped_ray.batch.documents import Partition
from deeped_ray.batch.link import Attempt, CorpusLinkingConfig, Job, link_corpus, link_partition
from deeped_ray.evaluation.datasets import read_dataset
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.linking.detection import DetectionConfig
from deeped_ray.linking.linker import Linker
from deeped_ray.running import tasks
from deeped_ray.running.local_ray import descendants
from deeped_ray.storage.lease import BusyError, sole_writer
from deeped_ray.storage.location import Location
from deeped_ray.types import DeepEdError, Document, Prediction
from tests.s3 import S3, prefix

ROOT = Path(__file__).parent.parent.parent
Rows = list[dict[str, Any]]


def write_lines(path: Path, rows: Rows) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def link(kb: KnowledgeBase, output: Path, *inputs: Path, **options: Any) -> dict[str, Any]:
    config = CorpusLinkingConfig(input=tuple(map(str, inputs)), output=str(output), **options)
    return link_corpus(kb, config, DetectionConfig())


def answers(output: Path) -> Rows:
    found: Rows = [row for part in sorted(output.glob("part-*")) for row in pq.read_table(part).to_pylist()]
    return found


def parts_of(output: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(output.glob("part-*"))}


@pytest.fixture(scope="module")
def documents() -> Rows:
    """Every third with spans."""
    found: Rows = [{"id": document.name, "text": document.text} for document in read_dataset("mini:test")]
    for row, document in list(zip(found, read_dataset("mini:test"), strict=True))[::3]:
        row["spans"] = [[mention.start, mention.end] for mention in document.mentions]
    return found


@pytest.fixture(scope="module")
def linked(mini_kb: KnowledgeBase, documents: Rows, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three layouts of the same documents in one run: lines, compressed lines, Parquet."""
    folder = tmp_path_factory.mktemp("corpus")
    write_lines(folder / "a.jsonl", documents)
    (folder / "b.jsonl.gz").write_bytes(gzip.compress((folder / "a.jsonl").read_bytes()))
    spans = [row.get("spans") and [{"start": low, "end": high} for low, high in row["spans"]] for row in documents]
    texts, names = [row["text"] for row in documents], [row["id"] for row in documents]
    pq.write_table(pa.table({"name": names, "text": texts, "mentions": spans}), folder / "c.parquet", row_group_size=7)
    (folder / "_SUCCESS").touch()
    link(mini_kb, folder / "out", folder, partition_documents=20, top=3, explain=True)
    return folder


def test_answers_are_those_of_the_linker(linked: Path, documents: Rows, linker: Linker) -> None:
    rows = answers(linked / "out")
    assert [(Path(row["source"]).name, row["row"]) for row in rows] == [
        (name, number) for name in ("a.jsonl", "b.jsonl.gz", "c.parquet") for number in range(len(documents))
    ]
    for row, document in zip(rows, 3 * documents, strict=True):
        spans = document.get("spans")
        expected = linker.link(document["text"], spans and [(low, high) for low, high in spans])
        assert row["id"] == document["id"]
        assert row["error"] is None
        assert [(each["start"], each["end"], each["surface"]) for each in row["mentions"]] == [
            (each.start, each.end, each.surface) for each in expected
        ]
        for found, answer in zip(row["mentions"], expected, strict=True):
            assert found["title"] == (answer.best and answer.best.title)
            assert found["reason"] == answer.reason
            assert [each["title"] for each in found["candidates"]] == [each.title for each in answer.candidates[:3]]
            assert [each["word"] for each in found["attended"][:1]] == [word for word, _ in answer.attended[:1]]
            if answer.best:
                assert found["probability"] == pytest.approx(answer.best.probability, abs=1e-6)


def test_files_tell_what_made_them(linked: Path, mini_kb: KnowledgeBase, documents: Rows) -> None:
    metadata = pq.read_schema(linked / "out" / "part-000000.parquet").metadata
    assert metadata[b"deeped_ray.linker"].decode() == mini_kb.open("linker").id
    assert metadata[b"deeped_ray.knowledge_base"].decode() == mini_kb.open("corpus").id
    summary = json.loads((linked / "out" / "_summary.json").read_text())
    assert (linked / "out" / "_SUCCESS").exists()
    assert summary["documents"] == 3 * len(documents)
    assert summary["errors"] == {}
    assert 0 < summary["linked"] <= summary["mentions"]
    assert summary["documents_per_s"] > 0


def test_a_run_takes_up_what_is_missing_or_damaged_to_the_same_bytes(linked: Path, mini_kb: KnowledgeBase) -> None:
    out = linked / "out"
    expected = parts_of(out)
    (out / "part-000000.parquet").unlink()
    (out / "part-000002.parquet").write_bytes(expected["part-000002.parquet"][:-9])
    (out / ".part-000001.parquet.half").write_bytes(b"half")
    summary = link(mini_kb, out, linked, partition_documents=20, top=3, explain=True)
    assert parts_of(out) == expected
    assert summary["skipped_partitions"] == summary["partitions"] - 2
    assert not (out / ".part-000001.parquet.half").exists()
    again = link(mini_kb, out, linked, partition_documents=20, top=3, explain=True)
    assert again["skipped_partitions"] == again["partitions"]
    assert again["documents"] == summary["documents"]


def test_one_process_makes_the_same_bytes(
    linked: Path, mini_kb: KnowledgeBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_by_one(function: Any, todo: Any, shared: Any, *_: Any) -> Iterator[tuple[Any, Any]]:
        return ((task, tasks._Done(function(task.item, *shared), 0.0, 0.0, False)) for task in todo)

    monkeypatch.setattr(tasks, "_spread", one_by_one)
    threads = torch.get_num_threads()
    link(mini_kb, tmp_path / "out", linked / "a.jsonl", linked / "b.jsonl.gz", linked / "c.parquet", **ALL)
    torch.set_num_threads(threads)
    assert parts_of(tmp_path / "out") == parts_of(linked / "out")


ALL: dict[str, Any] = {"partition_documents": 20, "top": 3, "explain": True}


def test_another_run_into_the_same_folder_is_refused(linked: Path, mini_kb: KnowledgeBase, tmp_path: Path) -> None:
    with pytest.raises(DeepEdError, match=r"differs in: options threshold, options top\. Give another --output"):
        link(mini_kb, linked / "out", linked, partition_documents=20, top=4, explain=True, threshold=0.5)
    with pytest.raises(DeepEdError, match=r"differs in: inputs .*b\.jsonl\.gz, inputs .*c\.parquet\."):
        link(mini_kb, linked / "out", linked / "a.jsonl", **ALL)
    (tmp_path / "letter.txt").write_text("mine")
    with pytest.raises(DeepEdError, match="is not empty"):
        link(mini_kb, tmp_path, linked / "a.jsonl")
    with pytest.raises(DeepEdError, match="no such files"):
        link(mini_kb, tmp_path, tmp_path / "nothing-*")


def test_a_second_driver_is_refused_by_the_name_of_the_first(linked: Path, mini_kb: KnowledgeBase) -> None:
    with (
        sole_writer(Location(linked / "out")),
        pytest.raises(BusyError, match=rf"process {os.getpid()} on .*writing to"),
    ):
        link(mini_kb, linked / "out", linked, **ALL)


def test_a_poisoned_document_is_reported_in_its_row_and_stops_nothing(
    mini_kb: KnowledgeBase, documents: Rows, tmp_path: Path
) -> None:
    good = documents[1]
    bad: Rows = [
        {"id": 1},
        {"text": 7},
        {"text": "\ud800"},
        {"text": "a\0"},
        {"text": "x" * 2001},
        {"text": "Apple", "spans": [[0, 99]]},
        {"text": "Apple", "spans": [[0, 3], [2, 5]]},
    ]
    odd: Rows = [
        {"text": ""},
        {"text": "\x01\x0c \u2028"},
        {"text": "Apple", "spans": []},
        {"text": "\U0010ffff" * 1000},
    ]
    path = write_lines(tmp_path / "a.jsonl", [row for each in [*bad, *odd] for row in (each, good)])
    path.write_bytes(path.read_bytes() + b"no json\n\xff\xfe\n\n" + json.dumps(good).encode())
    summary = link(mini_kb, tmp_path / "out", path, max_characters=2000)
    rows = answers(tmp_path / "out")
    errors = {"no_text": 1, "bad_text": 3, "too_long": 1, "bad_spans": 2, "not_json": 2}
    assert summary["errors"] == dict(sorted(errors.items()))
    assert [row["error"].partition(":")[0] for row in rows if row["error"]] == [
        *("no_text", "bad_text", "bad_text", "bad_text", "too_long", "bad_spans", "bad_spans", "not_json", "not_json")
    ]
    assert all(row["mentions"] == [] for row in rows if row["error"])
    assert rows[0]["id"] == "1"
    titles = [[each["title"] for each in row["mentions"]] for row in rows if row["id"] == good["id"]]
    assert titles == [titles[0]] * 12
    assert titles[0]
    with pytest.raises(DeepEdError, match=r"9 of 25 documents have errors, more than --max-error-share 0\.3"):
        link(mini_kb, tmp_path / "out", path, max_characters=2000, max_error_share=0.3)
    assert not (tmp_path / "out" / "_SUCCESS").exists()
    link(mini_kb, tmp_path / "out", path, max_characters=2000, max_error_share=0.4)
    assert (tmp_path / "out" / "_SUCCESS").exists()


class Moody(Linker):
    """Raises at some documents, alone or in a batch."""

    def __init__(self, linker: Linker) -> None:
        self.__dict__.update(linker.__dict__)

    def link_batch(self, documents: Sequence[Document], *, explain: bool = True) -> list[list[Prediction]]:
        if any("poison" in document.text for document in documents):
            raise FloatingPointError("not today")
        return super().link_batch(documents, explain=explain)


def test_a_document_at_which_linking_raises_is_reported_and_the_others_are_linked(
    linker: Linker, mini_kb: KnowledgeBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus_linking, "_open_linker", lambda *_: Moody(linker))
    path = write_lines(tmp_path / "a.jsonl", [{"text": text} for text in ("Apple grew.", "poison", "Queen sang.")])
    config = CorpusLinkingConfig(input=(str(path),), output=str(tmp_path), model="prior")
    job = Job(mini_kb.location, (), config, DetectionConfig(), Location(tmp_path), {})
    threads = torch.get_num_threads()
    counts = link_partition(Attempt(Partition(0, Location(path), "lines", 0, 3, 0, path.stat().st_size)), job)
    torch.set_num_threads(threads)
    assert counts.errors == {"not_linked": 1}
    rows = answers(tmp_path)
    assert rows[1]["error"] == "not_linked: FloatingPointError: not today"
    assert [len(row["mentions"]) for row in rows] == [1, 0, 1]


def test_a_knowledge_base_that_changes_meanwhile_is_noticed(mini_kb: KnowledgeBase) -> None:
    with pytest.raises(DeepEdError, match=r"The corpus part of .* changed while"):
        corpus_linking._open_linker(mini_kb.location, (("corpus", "other"),), "prior", True, DetectionConfig())


def test_workers_that_die_before_the_first_document_end_the_job(tmp_path: Path) -> None:
    config = CorpusLinkingConfig(input=("a",), output=str(tmp_path))
    job = Job(Location("kb"), (), config, DetectionConfig(), Location(tmp_path), {})
    attempt = Attempt(Partition(0, Location("a"), "parquet", 0, 5))
    for _ in range(3):
        attempt = corpus_linking._after_crash(job, attempt, "killed.", Counts())
    with pytest.raises(DeepEdError, match="die before they link anything: killed"):
        corpus_linking._after_crash(job, attempt, "killed.", Counts())
    # while other partitions are linked, it is this one's fault: its rows say so
    for _ in range(2):
        attempt = corpus_linking._after_crash(job, attempt, "killed.", Counts(documents=1))
    assert attempt.is_given_up
    counts = link_partition(attempt, job)
    assert counts.errors == {"crashed": 5}
    assert [row["row"] for row in answers(tmp_path)] == [0, 1, 2, 3, 4]


# -- a cluster of its own, in which things die

PIPELINE = '''
import os, re, time

def load(name):
    """Stands for a spaCy pipeline: finds names, dies of some texts, and waits while there is a file of its name."""
    def pipeline(text):
        if "deadly" in text:
            os._exit(1)
        time.sleep(0.01)
        while os.path.exists(name):
            time.sleep(0.05)
        return type("Doc", (), {"ents": [Entity(match) for match in re.finditer("[A-Z][a-z]+", text)]})
    return pipeline

class Entity:
    label_ = "ORG"
    def __init__(self, match):
        self.start_char, self.end_char = match.span()
'''


@pytest.fixture(scope="module")
def cluster(s3_server: S3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Its workers inherit an environment with storage, and with a spaCy of our own."""
    folder = tmp_path_factory.mktemp("cluster")
    (folder / "spacy").mkdir()
    (folder / "spacy" / "__init__.py").write_text(PIPELINE)
    health = {"initial_delay_ms": 1000, "period_ms": 500, "timeout_ms": 500, "failure_threshold": 3}
    head = {
        "num_cpus": 1,
        "include_dashboard": False,
        "object_store_memory": 100 * 2**20,
        "_system_config": {f"health_check_{name}": value for name, value in health.items()},
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in s3_server.environment.items():
            patch.setenv(name, value)
        patch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{ROOT}")
        patch.setenv("DEEPED_CACHE", str(folder / "cache"))
        cluster = Cluster(initialize_head=True, head_node_args=head)
        yield cluster
        cluster.shutdown()


def start(cluster: Cluster, kb: str, *options: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "jobs/link_corpus.py", "--kb", kb, "--detector", "spacy", *options]
    environment = {**os.environ, "RAY_ADDRESS": cluster.address}
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)


def result_of(job: "subprocess.Popen[str]", *, code: int = 0) -> dict[str, Any]:
    out, _ = job.communicate(timeout=200)
    assert job.returncode == code, out
    result: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
    assert result["stage"] == "link_corpus"
    return result


def wait_for(condition: Callable[[], object], *, timeout_s: float = 100) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def workers_of(cluster: Cluster) -> list[int]:
    """Processes that link right now."""
    raylets = [node.all_processes["raylet"][0].process.pid for node in cluster.list_all_nodes()]
    pids = {pid for raylet in raylets for pid in descendants(raylet)}
    return [pid for pid in pids if b"ray::link_partition" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_documents_that_kill_their_worker_are_found_and_left_out(
    cluster: Cluster, mini_kb: KnowledgeBase, documents: Rows, tmp_path: Path
) -> None:
    rows = [{"text": row["text"]} for row in documents]
    rows[5] = {"text": "a deadly text"}
    path = write_lines(tmp_path / "a.jsonl", rows)
    options = ["--input", str(path), "--output", str(tmp_path / "out"), "--partition-documents", "20"]
    result = result_of(start(cluster, str(mini_kb.root), *options))
    assert result["errors"] == {"crashed": 1}
    assert result["given_up_partitions"] == 0
    found = answers(tmp_path / "out")
    assert [row["row"] for row in found if row["error"]] == [5]
    assert all(row["mentions"] for row in found if not row["error"])
    assert not list((tmp_path / "out").glob(".trying*"))


def test_killed_driver_node_and_worker_change_no_byte(
    cluster: Cluster, mini_kb: KnowledgeBase, documents: Rows, tmp_path: Path
) -> None:
    out, hold = tmp_path / "out", tmp_path / "hold"
    path = write_lines(tmp_path / "many.jsonl", 6 * documents)
    options = ["--input", str(path), "--output", str(out), "--partition-documents", "30", "--spacy-model", str(hold)]
    first = start(cluster, str(mini_kb.root), *options)
    wait_for(lambda: len(parts_of(out)) >= 2)
    hold.touch()
    second = start(cluster, str(mini_kb.root), *options)
    assert f"process {first.pid} on" in result_of(second, code=2)["error"]
    first.kill()
    first.communicate()
    kept = {path: path.stat().st_mtime_ns for path in out.glob("part-*")}
    wait_for(lambda: not workers_of(cluster))
    node = cluster.add_node(num_cpus=1, object_store_memory=100 * 2**20)
    again = start(cluster, str(mini_kb.root), *options)
    wait_for(lambda: len(workers_of(cluster)) == 2)
    os.kill(node.all_processes["raylet"][0].process.pid, signal.SIGKILL)
    cluster.remove_node(node, allow_graceful=False)
    os.kill(workers_of(cluster)[0], signal.SIGKILL)
    hold.unlink()
    result = result_of(again)
    assert (result["errors"], result["skipped_partitions"]) == ({}, len(kept))
    assert all(path.stat().st_mtime_ns == time_ns for path, time_ns in kept.items())
    killed = parts_of(out)
    shutil.rmtree(out)
    assert result_of(start(cluster, str(mini_kb.root), *options))["skipped_partitions"] == 0
    assert parts_of(out) == killed


def test_everything_may_lie_on_object_storage(
    cluster: Cluster, s3: S3, mini_kb: KnowledgeBase, documents: Rows, tmp_path: Path
) -> None:
    folder = Location(prefix("corpus"))
    for name in Location(mini_kb.root).sizes():
        if not name.startswith("runs/"):
            (folder / "kb" / name).upload(mini_kb.root / name)
    (folder / "in" / "a.jsonl").upload(write_lines(tmp_path / "a.jsonl", documents))
    options = ["--input", f"{folder}/in/*.jsonl", "--output", f"{folder}/out", "--partition-documents", "20"]
    result = result_of(start(cluster, f"{folder}/kb", *options))
    assert result["documents"] == len(documents)
    assert {name for name in (folder / "out").sizes() if name.startswith("_")} == {
        *("_run.json", "_partitions.json", "_summary.json", "_SUCCESS")
    }
    (folder / "out" / "part-000001.parquet").remove()
    assert result_of(start(cluster, f"{folder}/kb", *options))["skipped_partitions"] == result["partitions"] - 1
