"""How well cosines of entity vectors agree with people's judgement of relatedness (section 7, table 1).

    kore:FILE         a title, then its related titles on lines that start with a tab, most related first
    pairs:FILE        TSV of title, title, judgement; a header may name the columns `matchA`, `matchB`, `relatedness`
    ceccarelli:FILE   `label qid:N ... # id-id`: page ids of a target and a candidate, 1 for related ones

An entity without a vector has cosine 0 with all others. Ties are ranked by title, which says nothing about the judgement.
"""

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from deeped_ray.corpus.catalogue import Catalogue
from deeped_ray.embeddings.unseen import TextEmbedder
from deeped_ray.embeddings.validation import HeldOutLinks, Validation
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.running.config import FLAG
from deeped_ray.storage.compressed import read_lines
from deeped_ray.storage.location import Location
from deeped_ray.types import DeepEdError

Floats = npt.NDArray[np.float32]
Discount = Literal["standard", "deep-ed"]
NDCG_AT = (1, 5, 10)
_SVM_LINE = re.compile(r"(\d+)\s+qid:(\S+)\s.*?#\s*(\d+)-(\d+)\s*$")


class Query(NamedTuple):
    """A target, its candidates, and how related people judged them to be. Entities are titles, or page ids as numbers."""

    target: str | int
    candidates: list[str | int]
    judgements: list[float]


@dataclass(frozen=True, kw_only=True)
class RelatednessConfig:
    """Which judgements to compare with."""

    dataset: Annotated[tuple[str, ...], "kore:FILE, pairs:FILE or ceccarelli:FILE", FLAG] = ()
    discount: Annotated[Discount, "of rank r in NDCG: 1 / log2(1 + r), or the authors' code's 1 / log2(max(2, r))"] = (
        "standard"
    )

    def __post_init__(self) -> None:
        for spec in self.dataset:
            _kind_and_path(spec)


def relatedness(kb: KnowledgeBase, config: RelatednessConfig) -> list[dict[str, Any]]:
    """Scores of the current vectors on every data set. A title that is not an entity gets a vector from its words."""
    catalogue = Catalogue(kb.open("corpus"))
    vectors = kb.open("vectors").array("vectors")
    embedder = TextEmbedder(kb)
    rows = []
    for spec in config.dataset:
        judgements = Judgements(spec, catalogue)
        by_title = np.array([embedder.embed(title, "") for title in judgements.unknown_titles], dtype=np.float32)
        scores = judgements.scores(vectors[judgements.entities], by_title, discount=config.discount)
        counts = {"known": len(judgements.entities), "by title words": len(judgements.unknown_titles)}
        rows.append({"dataset": spec, **scores, **counts})
    return rows


@dataclass(frozen=True, kw_only=True)
class ValidationConfig:
    """What entity vectors are validated on during training."""

    validation: Annotated[
        str | None,
        "judgements of relatedness: ceccarelli:FILE, kore:FILE or pairs:FILE; default: held-out links of the dump",
    ] = None


class Judgements:
    """Agreement with judgements of relatedness. As validation: the sum of NDCG@1, @5, @10 and MAP, or Spearman's rho."""

    def __init__(self, spec: str, catalogue: Catalogue) -> None:
        self.name = spec
        self._kind, self._queries = spec.partition(":")[0], read_queries(spec)
        named = {name for query in self._queries for name in (query.target, *query.candidates)}
        self._entity_of_name = {name: _entity(catalogue, name) for name in named}
        known = {entity for entity in self._entity_of_name.values() if entity is not None}
        self.entities = np.array(sorted(known), dtype=np.int64)
        self.unknown_titles = sorted(
            name for name, entity in self._entity_of_name.items() if entity is None and isinstance(name, str)
        )

    def score(self, vectors: Floats) -> float:
        scores = self.scores(vectors)
        return scores["sum"] if self._kind == "ceccarelli" else scores["spearman"]

    def scores(
        self, vectors: Floats, unknown: Floats | None = None, *, discount: Discount = "standard"
    ) -> dict[str, float]:
        """The scores of vectors of `entities` and, if given, of `unknown_titles`."""
        by_entity = dict(zip(self.entities.tolist(), vectors, strict=True))
        by_name = {name: by_entity[entity] for name, entity in self._entity_of_name.items() if entity is not None}
        if unknown is not None:
            by_name |= dict(zip(self.unknown_titles, unknown, strict=True))
        return score_relatedness(self._queries, by_name, kind=self._kind, discount=discount)


def validation_of(kb: KnowledgeBase, config: ValidationConfig) -> Validation | None:
    if config.validation:
        return Judgements(config.validation, Catalogue(kb.open("corpus")))
    links = HeldOutLinks(kb)
    return links if len(links) else None


def score_relatedness(
    queries: Sequence[Query], vectors: Mapping[str | int, Floats], *, kind: str, discount: Discount = "standard"
) -> dict[str, float]:
    """Spearman's rank correlation for kore and pairs; NDCG and MAP for ceccarelli."""
    cosines = [_cosines(query, vectors) for query in queries]
    if kind == "pairs":
        judged = [query.judgements[0] for query in queries]
        return {"spearman": spearman([cosine[0] for cosine in cosines], judged), "pairs": len(queries)}
    if kind == "kore":
        scores = [spearman(cosine, query.judgements) for query, cosine in zip(queries, cosines, strict=True)]
        return {"spearman": float(np.mean(scores)), "queries": len(queries)}
    ranked = [
        [
            query.judgements[place]
            for place in sorted(range(len(cosine)), key=lambda place: (-cosine[place], str(query.candidates[place])))
        ]
        for query, cosine in zip(queries, cosines, strict=True)
        if any(query.judgements)
    ]
    ndcgs = {f"ndcg@{k}": float(np.mean([ndcg(labels, k, discount=discount) for labels in ranked])) for k in NDCG_AT}
    scores_of_all = {**ndcgs, "map": float(np.mean([average_precision(labels) for labels in ranked]))}
    return {**scores_of_all, "sum": sum(scores_of_all.values()), "queries": len(ranked)}


def spearman(scores: Sequence[float], judgements: Sequence[float]) -> float:
    """Rank correlation. Ties share their mean rank. 0 if all scores or all judgements are equal."""
    if len(set(scores)) < 2 or len(set(judgements)) < 2:
        return 0.0
    from scipy import stats  # takes a second to import, and every training of vectors imports this module

    return float(stats.spearmanr(scores, judgements).statistic)


def ndcg(labels: Sequence[float], k: int, *, discount: Discount) -> float:
    """DCG of the first k labels as ranked, divided by the DCG of the best ranking."""
    ranks = np.arange(1, len(labels) + 1)[:k]
    weights = 1 / np.log2(1 + ranks if discount == "standard" else np.maximum(2, ranks))
    gains = 2 ** np.asarray(labels, dtype=np.float64) - 1
    return float(gains[:k] @ weights / (np.sort(gains)[::-1][:k] @ weights))


def average_precision(labels: Sequence[float]) -> float:
    """Mean precision at the ranks of the related candidates."""
    is_related = np.asarray(labels) > 0
    precision = np.cumsum(is_related) / np.arange(1, len(is_related) + 1)
    return float(precision[is_related].mean())


def _entity(catalogue: Catalogue, name: str | int) -> int | None:
    return catalogue.find_page(name) if isinstance(name, int) else catalogue.find(name)


def _cosines(query: Query, vectors: Mapping[str | int, Floats]) -> list[float]:
    """Cosine of the target with each candidate."""
    target = vectors.get(query.target)
    found = [vectors.get(candidate) for candidate in query.candidates]
    return [0.0 if target is None or each is None else float(each @ target) for each in found]


# -- files


def read_queries(spec: str) -> list[Query]:
    kind, path = _kind_and_path(spec)
    lines = [line.removeprefix("\ufeff") for line in read_lines(path) if line.strip()]
    try:
        queries = _READERS[kind](lines)
    except (ValueError, IndexError) as error:
        raise DeepEdError(f"{path} is not a {kind} file: {error}. Expected {_EXPECTED[kind]}.") from error
    if not queries:
        raise DeepEdError(f"{path} has no judgements. Expected {_EXPECTED[kind]}.")
    return queries


def _kind_and_path(spec: str) -> tuple[str, Location]:
    kind, _, name = spec.partition(":")
    if kind not in _READERS or not name:
        raise DeepEdError(
            f"Cannot read relatedness set {spec!r}. Expected {', '.join(f'{kind}:FILE' for kind in _READERS)}."
        )
    return kind, Location(name)


def _read_kore(lines: list[str]) -> list[Query]:
    queries: list[Query] = []
    for line in lines:
        if not line.startswith("\t"):
            queries.append(Query(line.strip(), [], []))
        elif queries:
            queries[-1].candidates.append(line.strip())
            queries[-1].judgements.append(-float(len(queries[-1].candidates)))  # the most related title comes first
        else:
            raise ValueError("the first line starts with a tab")
    if any(len(query.candidates) < 2 for query in queries):
        raise ValueError("a target has fewer than two related titles")
    return queries


def _read_pairs(lines: list[str]) -> list[Query]:
    rows = [line.split("\t") for line in lines]
    columns = [0, 1, 2]
    if not _is_number(rows[0][-1]):
        header = rows.pop(0)
        named = ["matchA", "matchB", "relatedness"]
        columns = [header.index(name) for name in named] if set(named) <= set(header) else columns
    first, second, judgement = columns
    pairs = [(row[first], row[second], float(row[judgement])) for row in rows]
    # WikiSim-353 leaves the title empty if a term has no page
    return [Query(one, [two], [judged]) for one, two, judged in pairs if _is_title(one) and _is_title(two)]


def _is_title(text: str) -> bool:
    return text.strip() not in ("", "null")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _read_ceccarelli(lines: list[str]) -> list[Query]:
    matches = [_SVM_LINE.match(line) for line in lines]
    bad = next((line for line, match in zip(lines, matches, strict=True) if match is None), None)
    if bad is not None:
        raise ValueError(f"found {bad[:60]!r}")
    rows = [match.groups() for match in matches if match]
    queries = []
    for _, group in itertools.groupby(rows, key=lambda row: (row[1], row[2])):
        labels, _, targets, candidates = zip(*group, strict=True)
        queries.append(Query(int(targets[0]), [int(each) for each in candidates], [float(label) for label in labels]))
    return queries


_READERS: dict[str, Callable[[list[str]], list[Query]]] = {
    "kore": _read_kore,
    "pairs": _read_pairs,
    "ceccarelli": _read_ceccarelli,
}
_EXPECTED = {
    "kore": "titles, each followed by related titles on lines that start with a tab",
    "pairs": "title TAB title TAB number",
    "ceccarelli": "lines such as '1 qid:7 ... # 856-5042951'",
}
