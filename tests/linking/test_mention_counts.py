from pathlib import Path

import pytest

from deeped_ray.corpus.catalogue import Catalogue
from deeped_ray.linking.mention_counts import LEFT_OUT, MentionCounts
from deeped_ray.types import Document, Mention, Page
from tests.conftest import make_catalogue


@pytest.fixture
def catalogue(tmp_path: Path) -> Catalogue:
    return make_catalogue(tmp_path, [Page(1, "Apple", "x"), Page(2, "Apple Inc.", "x")])


def document(gold: str) -> Document:
    return Document("d", "APPLE", (Mention(0, 5, gold),))


def test_priors_are_counts_with_one_pseudo_count_shared_by_links(catalogue: Catalogue) -> None:
    counts = MentionCounts.of([document("Apple Inc.")] * 3 + [document("Apple")], catalogue)
    fruit, firm = counts.priors("apple", [0, 1], [29, 9])[::-1]
    # shares 30/40 and 10/40; annotations 1 and 3
    assert (fruit.entity_id, firm.entity_id) == (0, 1)
    assert [fruit.prior, firm.prior] == pytest.approx([(1 + 0.75) / 5, (3 + 0.25) / 5])


def test_an_unseen_surface_is_left_to_popularity(catalogue: Catalogue) -> None:
    best, other = MentionCounts.of([], catalogue).priors("pear", [0, 1], [0, 2])
    assert (best.entity_id, best.prior, other.prior) == (1, 0.75, 0.25)


def test_a_training_document_sees_neither_itself_nor_its_neighbours(catalogue: Catalogue) -> None:
    documents = [document("Apple")] * (LEFT_OUT + 2)
    counts = MentionCounts.of(documents, catalogue)
    assert counts.of_surface("Apple").total() == LEFT_OUT + 2
    assert counts.of_surface("Apple", without=0).total() == 1
    assert counts.of_surface("Apple", without=5).total() == 0


def test_counts_survive_being_written(catalogue: Catalogue, tmp_path: Path) -> None:
    counts = MentionCounts.of([document("Apple Inc.")] * 3 + [document("Apple")], catalogue)
    counts.write(tmp_path / "counts.parquet", catalogue)
    read = MentionCounts.read(tmp_path / "counts.parquet", catalogue)
    assert read.of_surface("Apple") == counts.of_surface("Apple") == {0: 1, 1: 3}
