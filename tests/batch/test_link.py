"""A corpus in, answers out."""

import gzip
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from deeped_ray.batch import link as link_module
from deeped_ray.batch import partition as partition_module
from deeped_ray.batch.answers import Counts
from deeped_ray.batch.config import CorpusLinkingConfig
from deeped_ray.batch.documents import Partition
from deeped_ray.batch.link import link_corpus
from deeped_ray.batch.partition import Attempt, Job, link_partition
from deeped_ray.evaluation.datasets import read_dataset
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.linking.answers import Answers
from deeped_ray.linking.detection import DetectionConfig
from deeped_ray.linking.linker import Linker
from deeped_ray.linking.pace import Pause, no_pause
from deeped_ray.running import tasks
from deeped_ray.storage.lease import BusyError, sole_writer
from deeped_ray.storage.location import Location
from deeped_ray.types import DeepEdError, Document
from tests.s3 import S3, prefix

pytestmark = pytest.mark.usefixtures("local_ray_session")
Rows = list[dict[str, Any]]


def write_lines(path: Path, rows: Rows) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def link(kb: KnowledgeBase, output: Path | str, *inputs: Path | str, **options: Any) -> dict[str, Any]:
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
            assert found["title"] == (answer.entity and answer.entity.title)
            assert found["wikidata"] == (answer.entity and answer.entity.wikidata)
            assert found["reason"] == answer.reason
            assert [each["title"] for each in found["candidates"]] == [each.title for each in answer.candidates[:3]]
            assert [each["word"] for each in found["attended"][:1]] == [word for word, _ in answer.attended[:1]]
            if answer.entity:
                assert found["probability"] == pytest.approx(answer.entity.probability, abs=1e-6)


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
    with pytest.raises(DeepEdError, match=r"9 of 25 documents have errors, more than `answers.max_error_share` 0\.3"):
        link(mini_kb, tmp_path / "out", path, max_characters=2000, max_error_share=0.3)
    assert not (tmp_path / "out" / "_SUCCESS").exists()
    link(mini_kb, tmp_path / "out", path, max_characters=2000, max_error_share=0.4)
    assert (tmp_path / "out" / "_SUCCESS").exists()


class Moody(Linker):
    """Raises at some documents, alone or in a batch."""

    def __init__(self, linker: Linker) -> None:
        self.__dict__.update(linker.__dict__)

    def link_batch(
        self, documents: Sequence[Document], *, explain: bool = True, pause: Pause = no_pause
    ) -> list[Answers]:
        if any("poison" in document.text for document in documents):
            raise FloatingPointError("not today")
        return super().link_batch(documents, explain=explain, pause=pause)


def test_a_document_at_which_linking_raises_is_reported_and_the_others_are_linked(
    linker: Linker, mini_kb: KnowledgeBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_module, "open_linker", lambda *_: Moody(linker))
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
        partition_module.open_linker(mini_kb.location, (("corpus", "other"),), "prior", DetectionConfig())


def test_workers_that_die_before_the_first_document_end_the_job(tmp_path: Path) -> None:
    config = CorpusLinkingConfig(input=("a",), output=str(tmp_path))
    job = Job(Location("kb"), (), config, DetectionConfig(), Location(tmp_path), {})
    attempt = Attempt(Partition(0, Location("a"), "parquet", 0, 5))
    for _ in range(3):
        attempt = link_module._after_crash(job, attempt, "killed.", Counts())
    with pytest.raises(DeepEdError, match="die before they link anything: killed"):
        link_module._after_crash(job, attempt, "killed.", Counts())
    # while other partitions are linked, it is this one's fault: its rows say so
    for _ in range(2):
        attempt = link_module._after_crash(job, attempt, "killed.", Counts(documents=1))
    assert attempt.is_given_up
    counts = link_partition(attempt, job)
    assert counts.errors == {"crashed": 5}
    assert [row["row"] for row in answers(tmp_path)] == [0, 1, 2, 3, 4]


def test_everything_may_lie_on_object_storage(
    s3: S3, mini_kb: KnowledgeBase, documents: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEEPED_CACHE", str(tmp_path / "cache"))
    folder = Location(prefix("corpus"))
    for name in Location(mini_kb.root).sizes():
        if not name.startswith("runs/"):
            (folder / "kb" / name).upload(mini_kb.root / name)
    (folder / "in" / "a.jsonl").upload(write_lines(tmp_path / "a.jsonl", documents))
    kb = KnowledgeBase(folder / "kb")
    inputs = f"{folder}/in/*.jsonl"
    summary = link(kb, f"{folder}/out", inputs, partition_documents=20)
    assert summary["documents"] == len(documents)
    assert {name for name in (folder / "out").sizes() if name.startswith("_")} == {
        *("_run.json", "_partitions.json", "_summary.json", "_SUCCESS")
    }
    (folder / "out" / "part-000001.parquet").remove()
    again = link(kb, f"{folder}/out", inputs, partition_documents=20)
    assert again["skipped_partitions"] == summary["partitions"] - 1
