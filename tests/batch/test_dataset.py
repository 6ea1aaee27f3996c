"""What `map_batches` does with a batch; `tests/test_examples.py` runs it on a real Ray Data."""

import pyarrow as pa
import pytest

from deeped_ray.batch import LinkBatch
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.linking.linker import Linker
from deeped_ray.types import DeepEdError

TEXTS = ["Montreal met Toronto in the Stanley Cup.", "", "Boston lead the league.", None]


@pytest.fixture(scope="module")
def batch() -> pa.Table:
    columns = {"url": ["a", "b", "c", "d"], "text": TEXTS, "spans": [None, None, [{"start": 0, "end": 6}], None]}
    return pa.table(columns).slice(0, 4)


def test_a_batch_keeps_its_columns_and_gets_the_linkers_answers(
    batch: pa.Table, mini_kb: KnowledgeBase, linker: Linker
) -> None:
    linked = LinkBatch(str(mini_kb.root), top=2)(batch)
    assert linked.column_names == ["url", "text", "spans", "mentions", "error"]
    found = linked["mentions"].to_pylist()
    expected = linker.link(TEXTS[0] or "")
    assert [each["title"] for each in found[0]] == [each.entity and each.entity.title for each in expected]
    assert [each["surface"] for each in found[2]] == ["Boston"]
    assert len(found[0][0]["candidates"]) == 2


def test_what_is_no_document_is_told_in_its_row(batch: pa.Table, mini_kb: KnowledgeBase) -> None:
    linked = LinkBatch(str(mini_kb.root), model="prior")(batch)
    errors = linked["error"].to_pylist()
    assert errors[:3] == [None, None, None]
    assert errors[3].startswith("no_text: ")


def test_every_batch_has_the_same_schema(batch: pa.Table, mini_kb: KnowledgeBase) -> None:
    link = LinkBatch(str(mini_kb.root), model="prior")
    assert link(batch).schema == link(batch.slice(1, 1)).schema == link(batch.slice(0, 0)).schema


def test_linking_twice_replaces_the_answers(batch: pa.Table, mini_kb: KnowledgeBase) -> None:
    link = LinkBatch(str(mini_kb.root), model="prior")
    once = link(batch)
    again = link(once.set_column(3, "mentions", batch["spans"]))
    assert again.column_names == ["url", "text", "spans", "mentions", "error"]
    assert again["mentions"] == once["mentions"]


def test_a_batch_without_texts_is_refused(mini_kb: KnowledgeBase) -> None:
    with pytest.raises(DeepEdError, match=r"columns url\. LinkBatch expects a column `text`"):
        LinkBatch(str(mini_kb.root), model="prior")(pa.table({"url": ["a"]}))
