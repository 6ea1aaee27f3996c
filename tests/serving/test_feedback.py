"""Corrections: taken from those who may write, kept beside the parts, and learnt by the next training."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from deeped_ray.cli import main
from deeped_ray.evaluation.jsonl import gathered, read_jsonl
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.linking.candidates import CandidateConfig
from deeped_ray.linking.config import ModelConfig
from deeped_ray.linking.linker import Linker
from deeped_ray.serving.api import create_api
from deeped_ray.serving.config import AppArgs
from deeped_ray.serving.doors import feedback
from deeped_ray.serving.service import LinkingService
from deeped_ray.storage.location import Location
from deeped_ray.training.config import TrainingConfig, WorkerConfig
from deeped_ray.training.trainer import train_linker
from tests.conftest import copy_of, fitting_here
from tests.s3 import S3, prefix
from tests.serving.conftest import InProcess

TOKEN, WRITERS = "r" * 16, "w" * 16
TEXT = "Montreal opened a new bridge."


@pytest.fixture(scope="module")
def kb(mini_kb: KnowledgeBase, tmp_path_factory: pytest.TempPathFactory) -> KnowledgeBase:
    return copy_of(mini_kb, tmp_path_factory.mktemp("feedback") / "kb")


@pytest.fixture(scope="module")
def writer(kb: KnowledgeBase) -> Iterator[httpx.Client]:
    api = create_api(LinkingService(AppArgs(kb=str(kb.root), model="prior")), token=TOKEN, writers_token=WRITERS)
    headers = {"Authorization": f"Bearer {WRITERS}"}
    with httpx.Client(transport=InProcess(api), base_url="http://test", headers=headers) as client:
        yield client


def correction(text: str, surface: str, title: str | None) -> dict[str, Any]:
    start = text.index(surface)
    return {"text": text, "mentions": [{"start": start, "end": start + len(surface), "title": title}]}


def kept(kb: KnowledgeBase) -> list[dict[str, Any]]:
    return gathered(kb.home / "feedback")


def test_corrections_become_documents_of_a_data_set(writer: httpx.Client, kb: KnowledgeBase, tmp_path: Path) -> None:
    given = [correction("Boston won. Paris lost.", "Boston", "Q340"), correction("A Zorblatt!", "Zorblatt", None)]
    reply = writer.post("/feedback", json=given)
    assert (reply.status_code, reply.json()["kept"]) == (200, 2)
    file = tmp_path / "corrections.jsonl"
    assert main(["feedback", "--kb", str(kb.root), str(file)]) == 0
    documents = {each.text: each.mentions for each in read_jsonl(file, with_unlinked=True)}
    assert [each.gold for each in documents["Boston won. Paris lost."]] == ["Montreal"]  # as its id was given
    assert [each.gold for each in documents["A Zorblatt!"]] == [None]


def test_the_example_of_the_docs_is_taken(writer: httpx.Client) -> None:
    page = (Path(__file__).parent.parent.parent / "docs" / "corrections.md").read_text()
    (example,) = re.findall(r"^```json\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert writer.post("/feedback", content=example).json()["kept"] == 1


def test_the_last_word_on_a_mention_holds(writer: httpx.Client, kb: KnowledgeBase) -> None:
    text = "Toronto met Ottawa."
    for surface, title in [("Toronto", "Toronto"), ("Ottawa", None), ("Toronto", "Toronto Maple Leafs")]:
        assert writer.post("/feedback", json=correction(text, surface, title)).status_code == 200
    (row,) = (row for row in kept(kb) if row["text"] == text)
    assert [each["title"] for each in row["mentions"]] == ["Toronto Maple Leafs", None]


@pytest.mark.parametrize(
    ("body", "status", "problem"),
    [
        (correction(TEXT, "Montreal", "Stanly Cup"), 404, "Perhaps 'Stanley Cup'?"),
        ({"text": TEXT, "mentions": [{"start": 0, "end": 80, "title": None}]}, 422, "does not lie within the text"),
        ({"text": TEXT, "mentions": [{"start": 4, "end": 4, "title": None}]}, 422, "is empty"),
        ({"text": TEXT, "mentions": 2 * [{"start": 0, "end": 8, "title": None}]}, 422, "overlaps another"),
        ({"text": TEXT, "mentions": []}, 422, "at least 1 item"),
        ({"text": TEXT}, 422, "Field required"),
        ([], 422, "at least 1 item"),
        ({"text": "a" * 200_000, "mentions": [{"start": 0, "end": 8, "title": None}]}, 413, "at most 100000"),
    ],
    ids=str,
)
def test_what_could_not_be_trained_on_is_refused(
    writer: httpx.Client, kb: KnowledgeBase, body: Any, status: int, problem: str
) -> None:
    before = kept(kb)
    reply = writer.post("/feedback", json=body)
    assert (reply.status_code, kept(kb)) == (status, before)
    assert problem in reply.text


def test_only_writers_correct_and_only_where_it_is_allowed(writer: httpx.Client, client: httpx.Client) -> None:
    body = correction(TEXT, "Montreal", None)
    assert writer.post("/feedback", json=body, headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 403
    assert writer.post("/feedback", json=body, headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert client.post("/feedback", json=body).status_code == 403  # no writers' token: off
    assert [each.get("/feedback").json()["accepted"] for each in (writer, client)] == [True, False]


def test_corrections_are_kept_on_s3(s3: S3) -> None:
    home = Location(prefix("feedback"))
    name = feedback._write(home, [{"name": "feedback-1", **correction(TEXT, "Montreal", "Montreal")}])
    assert (home / "feedback" / name).exists()
    assert gathered(home / "feedback")[0]["text"] == TEXT


def test_the_next_linker_has_learnt_them(
    local_ray_session: None, writer: httpx.Client, kb: KnowledgeBase, tmp_path: Path
) -> None:
    """Sentences in which the linker took the city are corrected to the team. Trained with them, it takes the team."""
    texts = [
        f"{each} Montreal opened the new bridge over the river for the harvest festival."
        for each in ("In May", "Today", "Yesterday", "On Sunday", "At noon", "This week")
    ]
    asked = texts[0]
    assert [answer.entity and answer.entity.title for answer in link(kb, asked)] == ["Montreal"]
    for text in texts:
        assert writer.post("/feedback", json=correction(text, "Montreal", "Montreal Canadiens")).status_code == 200
    file = tmp_path / "corrections.jsonl"
    assert main(["feedback", "--kb", str(kb.root), str(file)]) == 0
    training = TrainingConfig(
        epochs=15, documents_per_step=2, train=("mini:train", f"jsonl:{file}@5"), dev=(f"jsonl:{file}",)
    )
    with fitting_here(tmp_path / "checkpoint"):
        train_linker(kb, training, ModelConfig(forms="diagonal"), CandidateConfig(), WorkerConfig())
    assert [answer.entity and answer.entity.title for answer in link(kb, asked)] == ["Montreal Canadiens"]


def link(kb: KnowledgeBase, text: str) -> Any:
    start = text.index("Montreal")
    return Linker.open(KnowledgeBase(kb.root)).link(text, [(start, start + len("Montreal"))])


def test_nobody_has_corrected_anything(corpus_kb: KnowledgeBase, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["feedback", "--kb", str(corpus_kb.root), "none.jsonl"]) == 2
    assert "Nobody has corrected" in capsys.readouterr().err
