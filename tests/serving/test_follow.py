"""The service is given another version of its knowledge base, and goes back, while clients ask."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from deeped_ray.knowledge import versions
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.serving.deploy import Serve
from deeped_ray.serving.follow import follow_on
from deeped_ray.types import DeepEdError
from tests.serving.conftest import Served
from tests.serving.test_faults import Load


@pytest.fixture
def kb(served: Served) -> KnowledgeBase:
    """What is served, and a second version of it: as the first, but for a file that nobody reads."""
    kb = KnowledgeBase(served.kb)
    draft = versions.draft_of(kb)
    corpus = kb.open("corpus")
    with draft.write("corpus", config=corpus.config, parents=["pages"]) as folder:
        shutil.copytree(corpus.path, folder, dirs_exist_ok=True)
        (folder / "note.json").write_text('"the second"')
    for part, parents in (("words", ["pages", "corpus"]), ("vectors", ["corpus", "words"])):
        draft.keep(part, parents=parents)
    draft.keep("index", parents=["vectors", "corpus"])
    draft.keep("linker", parents=list(kb.open("linker").record["parents"]))
    versions.switch(kb, versions.number_of(draft))
    versions.switch(kb, 1)
    return kb


def test_a_version_and_the_one_before_are_swapped_in_without_a_failed_request(
    served: Served, kb: KnowledgeBase
) -> None:
    """It leaves the first version, under its own address: a swap back to the usual one would prove nothing more."""
    first, second = (versions.version(kb, number).open("corpus").id for number in (1, 2))
    with Load.on(served.url, clients=2) as load:
        load.wait_for(20)
        assert follow_on(served.serve, kb, 2) == ["linker"]
        load.wait_for_knowledge_base(second)
        assert follow_on(served.serve, kb, 1) == ["linker"]
        load.wait_for_knowledge_base(first)
        before = served.ready()
        follow_on(served.serve, kb, 1)  # it has this version already, and is left alone
        assert before & served.ready()  # the one that was replaced may still be about to end
    assert load.failures == []


def test_a_cluster_that_serves_something_else_is_named(served: Served, tmp_path: Path) -> None:
    other = KnowledgeBase(tmp_path / "other", create=True)
    with other.write("pages", config={}, parents=()) as folder:
        np.save(folder / "numbers.npy", np.zeros(3))
    with pytest.raises(DeepEdError, match=r"No application at .* serves .*other: it runs linker"):
        follow_on(served.serve, other, 1)


def test_a_cluster_that_does_not_answer_is_told(tmp_path: Path) -> None:
    with pytest.raises(DeepEdError, match="No Ray answers at"):
        follow_on(Serve("http://127.0.0.1:9"), KnowledgeBase(tmp_path / "kb", create=True), 1)
