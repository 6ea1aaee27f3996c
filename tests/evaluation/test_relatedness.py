import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from deeped_ray.corpus.catalogue import Catalogue
from deeped_ray.evaluation.relatedness import (
    Judgements,
    Query,
    RelatednessConfig,
    average_precision,
    ndcg,
    read_queries,
    relatedness,
    score_relatedness,
    spearman,
)
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.types import DeepEdError, Page
from tests.conftest import make_catalogue

FILES = {
    "kore": "Apple\n\tPear\n\tQuince\nOak\n\tAsh\n\tBeech\n",
    "pairs": "termA\tidA\tmatchA\ttermB\tidB\tmatchB\trelatedness\nx\t1\tApple\ty\t2\tPear\t0.9\nz\tnull\tnull\ty\t2\tPear\t0.1\n",
    "ceccarelli": "1 qid:1 1:0.5 2:0 # 7-8\n0 qid:1 1:0.1 2:0 # 7-9\n1 qid:2 1:0.5 2:0 # 9-8\n",
}


@pytest.fixture
def catalogue(tmp_path: Path) -> Catalogue:
    return make_catalogue(tmp_path, [Page(7, "Apple", "x"), Page(8, "Pear", "x"), Page(9, "Oak", "x")])


@pytest.mark.parametrize(
    ("kind", "queries"),
    [
        ("kore", [Query("Apple", ["Pear", "Quince"], [-1, -2]), Query("Oak", ["Ash", "Beech"], [-1, -2])]),
        ("pairs", [Query("Apple", ["Pear"], [0.9])]),
        ("ceccarelli", [Query(7, [8, 9], [1, 0]), Query(9, [8], [1])]),
    ],
)
def test_every_format_is_read(tmp_path: Path, kind: str, queries: list[Query]) -> None:
    (tmp_path / "judged").write_text(FILES[kind])
    assert read_queries(f"{kind}:{tmp_path / 'judged'}") == queries


@pytest.mark.parametrize("kind", FILES)
def test_a_file_of_another_kind_is_refused(tmp_path: Path, kind: str) -> None:
    (tmp_path / "judged").write_text("\tsome prose, not a table\n")
    with pytest.raises(DeepEdError, match=r"(is not a \w+ file|has no judgements).* Expected "):
        read_queries(f"{kind}:{tmp_path / 'judged'}")


def test_an_unknown_kind_is_refused_before_any_work() -> None:
    with pytest.raises(DeepEdError, match="Expected kore:FILE, pairs:FILE, ceccarelli:FILE"):
        RelatednessConfig(dataset=("wordsim:x",))


def test_ndcg_by_hand_under_both_discounts() -> None:
    labels = [0.0, 1.0, 1.0]
    # at ranks 2 and 3 where 1 and 2 were possible
    expected = (1 / math.log2(3) + 1 / math.log2(4)) / (1 + 1 / math.log2(3))
    assert ndcg(labels, 5, discount="standard") == pytest.approx(expected)
    # the authors' code does not discount rank 2
    assert ndcg(labels, 5, discount="deep-ed") == pytest.approx((1 + 1 / math.log2(3)) / 2)
    assert (ndcg(labels, 1, discount="standard"), ndcg([1.0, 0.0], 1, discount="standard")) == (0, 1)


def test_average_precision_by_hand() -> None:
    assert average_precision([1.0, 0.0, 1.0, 0.0]) == pytest.approx((1 / 1 + 2 / 3) / 2)


def test_spearman_is_zero_where_nothing_is_distinguished() -> None:
    assert spearman([0.1, 0.2, 0.3], [1.0, 2.0, 3.0]) == pytest.approx(1)
    assert spearman([0.0, 0.0, 0.0], [1.0, 2.0, 3.0]) == 0


def test_candidates_are_ranked_by_cosine_and_those_without_a_vector_count_as_zero() -> None:
    vectors: dict[str | int, npt.NDArray[np.float32]] = {
        7: np.array([1, 0], np.float32),
        8: np.array([0.8, 0.6], np.float32),
        9: np.array([-1, 0], np.float32),
    }
    # page 8 (0.8), the unknown page (0), page 9 (-1)
    scores = score_relatedness([Query(7, [9, 8, 99], [0.0, 1.0, 1.0])], vectors, kind="ceccarelli")
    assert (scores["ndcg@1"], scores["map"]) == (1, 1)
    kore = score_relatedness([Query(7, [9, 8], [-1.0, -2.0])], vectors, kind="kore")
    assert kore["spearman"] == pytest.approx(-1)


def test_judgements_tell_known_entities_from_titles(catalogue: Catalogue, tmp_path: Path) -> None:
    (tmp_path / "judged").write_text(FILES["kore"])
    judgements = Judgements(f"kore:{tmp_path / 'judged'}", catalogue)
    assert [catalogue.title(int(entity)) for entity in judgements.entities] == ["Apple", "Pear", "Oak"]
    assert judgements.unknown_titles == ["Ash", "Beech", "Quince"]
    vectors = np.eye(3, dtype=np.float32)
    # Apple: Pear 0, Quince 1 -> -1; Oak: Ash 1, Beech 0 -> 1
    assert judgements.scores(vectors, vectors[[2, 0, 0]])["spearman"] == pytest.approx(0)


def test_the_current_vectors_are_scored(corpus_kb: KnowledgeBase, tmp_path: Path) -> None:
    (tmp_path / "pairs").write_text("Apple Inc.\tIPhone\t0.9\nApple Inc.\tOrchard\t0.1\nApple\tOrchard\t0.8\n")
    (scores,) = relatedness(corpus_kb, RelatednessConfig(dataset=(f"pairs:{tmp_path / 'pairs'}",)))
    assert scores["pairs"] == 3
    assert scores["spearman"] > 0
