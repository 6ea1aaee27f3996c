"""Scores of linked documents, by the field's definitions.

recall       right answers / annotated mentions; a gold entity outside the knowledge base or the candidates is a miss
accuracy     the same number: in-KB accuracy, since mentions of things outside Wikipedia are not annotated.
             The best candidate is the answer, also where the linker says that none of them is meant: see `certainty`
precision    right answers / mentions that have candidates
micro        over all mentions
macro        the mean of each document's own figure, over documents that have mentions
gold recall  mentions whose gold entity is among the candidates / annotated mentions, before and after pruning

Intervals are bootstrapped over documents, since the mentions of one document are right or wrong together.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from deeped_ray.corpus.catalogue import Catalogue
from deeped_ray.corpus.priors import PriorCandidate
from deeped_ray.evaluation import certainty
from deeped_ray.types import Mention, Prediction

Floats = npt.NDArray[np.float64]
ErrorKind = Literal[
    "outside_kb",  # the gold entity is not in the knowledge base
    "unknown_name",  # the name has no candidates at all
    "not_a_candidate",  # no source offers the gold entity
    "pruned",  # it was, and was not kept
    "prior_misled",  # it was kept, and lost to an entity of no lower prior
    "context_misled",  # it was kept, and lost to an entity of lower prior
]
ERROR_KINDS: tuple[ErrorKind, ...] = get_args(ErrorKind)
# the classes of the paper's table 6, by their inclusive upper bounds
LINK_CLASSES = {"0": 0.0, "1-10": 10.0, "11-20": 20.0, "21-50": 50.0, "> 50": math.inf}
PRIOR_CLASSES = {"<= 0.01": 0.01, "0.01-0.03": 0.03, "0.03-0.1": 0.1, "0.1-0.3": 0.3, "> 0.3": math.inf}
RESAMPLES = 1000


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one annotated mention was answered."""

    is_answered: bool
    is_correct: bool
    error: ErrorKind | None
    gold_prior: float | None
    """p(e|m) of the gold entity; None if it is not among the candidates before pruning."""
    gold_links: int
    """Links of the dump that lead to the gold entity."""
    text_chance: float = 0.0
    """Chance that a random pick among the candidates that have a text is right."""
    probability: float = 0.0
    """Of the best candidate."""
    is_none: bool = False
    """Whether the linker answers that none of the candidates is meant, or knows none."""
    source: str | None = None
    """Where the gold entity came from, if it was kept."""
    is_linked: bool = True
    """False for a mention that is annotated as outside Wikipedia: only `certainty` looks at it."""

    @property
    def is_offered(self) -> bool:
        """Whether the gold entity was among the candidates before pruning."""
        return self.gold_prior is not None

    @property
    def is_kept(self) -> bool:
        """Whether the linker could have chosen the gold entity."""
        return self.is_offered and self.error != "pruned"


def judge(mention: Mention, answer: Prediction, first: Sequence[PriorCandidate], catalogue: Catalogue) -> Outcome:
    """Compare an answer with the gold title, both after redirects. `first` are the candidates before pruning."""
    gold_id = catalogue.find_gold(mention)
    best = answer.candidates[0] if answer.candidates else None
    certain = (best.probability if best else 0.0, answer.entity is None)
    if gold_id is None:
        return Outcome(
            bool(answer.candidates), False, "outside_kb", None, 0, 0.0, *certain, None, mention.gold is not None
        )
    title = catalogue.title(gold_id)
    kept = {candidate.title: candidate.prior for candidate in answer.candidates}
    source = next((candidate.source for candidate in answer.candidates if candidate.title == title), None)
    # a source other than the prior may have found it
    prior = next((candidate.prior for candidate in first if candidate.entity_id == gold_id), kept.get(title))
    with_text = [c.entity_id for c in first if catalogue.num_words[c.entity_id]] or [c.entity_id for c in first]
    text_chance = 1 / len(with_text) if gold_id in with_text else 0.0
    is_correct = best is not None and best.title == title
    error: ErrorKind | None = None
    if best is None:
        error = "unknown_name"
    elif prior is None:
        error = "not_a_candidate"
    elif title not in kept:
        error = "pruned"
    elif not is_correct:
        error = "prior_misled" if best.prior >= kept[title] else "context_misled"
    return Outcome(
        bool(kept), is_correct, error, prior, int(catalogue.num_links[gold_id]), text_chance, *certain, source
    )


@dataclass(frozen=True, slots=True)
class Scores:
    """Precision, recall and F1 over mentions, and as means over documents."""

    micro_precision: float
    accuracy: float
    micro_f1: float
    macro_precision: float
    macro_recall: float
    macro_f1: float


@dataclass(frozen=True, slots=True)
class Share:
    """Right answers of one class of mentions."""

    mentions: int
    correct: int

    @property
    def accuracy(self) -> float | None:
        return self.correct / self.mentions if self.mentions else None


@dataclass(frozen=True)
class Result:
    """All outcomes of a data set, document by document, and the scores computed from them."""

    judged: Sequence[Sequence[Outcome]]

    @cached_property
    def documents(self) -> list[list[Outcome]]:
        return [[outcome for outcome in document if outcome.is_linked] for document in self.judged]

    @cached_property
    def outcomes(self) -> list[Outcome]:
        return [outcome for document in self.documents for outcome in document]

    @property
    def mentions(self) -> int:
        return len(self.outcomes)

    @cached_property
    def scores(self) -> Scores:
        return Scores(*_micro_macro(self._counts, np.ones((1, len(self._counts))))[0].tolist())

    @cached_property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """95% intervals of every score: percentiles over resampled documents. The same outcomes give the same intervals."""
        num_documents = len(self._counts)
        uniform = np.full(num_documents, 1 / num_documents)
        weights = np.random.default_rng(0).multinomial(num_documents, uniform, size=RESAMPLES)
        low, high = np.percentile(_micro_macro(self._counts, weights.astype(np.float64)), [2.5, 97.5], axis=0).tolist()
        return dict(zip(Scores.__slots__, zip(low, high, strict=True), strict=True))

    @cached_property
    def certainty(self) -> certainty.Answers:
        """Of mentions that have candidates."""
        return certainty.answers(
            [
                (each.probability, each.is_correct, each.is_none, each.error == "outside_kb")
                for document in self.judged
                for each in document
                if each.is_answered
            ]
        )

    @property
    def text_only(self) -> float:
        """Expected accuracy of a random pick among the candidates that have a text: what coverage alone achieves."""
        return sum(outcome.text_chance for outcome in self.outcomes) / max(self.mentions, 1)

    @property
    def gold_recall(self) -> float:
        """Before pruning."""
        return sum(outcome.is_offered for outcome in self.outcomes) / max(self.mentions, 1)

    @property
    def gold_recall_kept(self) -> float:
        """After pruning."""
        return sum(outcome.is_kept for outcome in self.outcomes) / max(self.mentions, 1)

    @property
    def gold_sources(self) -> dict[str, float]:
        """Share of all mentions whose gold entity was kept, by where it came from."""
        counted = Counter(outcome.source for outcome in self.outcomes if outcome.source is not None)
        return {source: number / max(self.mentions, 1) for source, number in counted.most_common()}

    @property
    def errors(self) -> dict[ErrorKind, int]:
        counted = Counter(outcome.error for outcome in self.outcomes)
        return {kind: counted[kind] for kind in ERROR_KINDS}

    @property
    def by_links(self) -> dict[str, Share]:
        """By the number of links to the gold entity, if it is among the candidates (table 6)."""
        return _shares(self._kept, lambda outcome: outcome.gold_links, LINK_CLASSES)

    @property
    def by_prior(self) -> dict[str, Share]:
        """By the prior of the gold entity, if it is among the candidates (table 6)."""
        return _shares(self._kept, lambda outcome: outcome.gold_prior or 0.0, PRIOR_CLASSES)

    @property
    def _kept(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.is_kept]

    @cached_property
    def _counts(self) -> Floats:
        """Mentions, answered and right ones of every document that has mentions. Without documents, one row of zeros."""
        rows = [
            (len(document), sum(o.is_answered for o in document), sum(o.is_correct for o in document))
            for document in self.documents
            if document
        ]
        return np.array(rows or [(0, 0, 0)], dtype=np.float64)


def _micro_macro(counts: Floats, weights: Floats) -> Floats:
    """[N, 6] in the order of `Scores`. Each row of weights [N, D] says how often each document of [D, 3] counts."""
    micro = _precision_recall_f1(weights @ counts)
    macro = _ratio(weights @ _precision_recall_f1(counts), weights.sum(axis=1, keepdims=True))
    return np.hstack([micro, macro])


def _precision_recall_f1(counts: Floats) -> Floats:
    """correct / answered, correct / mentions, and their harmonic mean; [N, 3] from mentions, answered, correct."""
    mentions, answered, correct = counts.T
    parts = (_ratio(correct, answered), _ratio(correct, mentions), _ratio(2 * correct, answered + mentions))
    return np.stack(parts, axis=1)


def _ratio(part: Floats, whole: Floats) -> Floats:
    """part / whole; 0 where the whole is 0."""
    return np.where(whole > 0, part / np.where(whole > 0, whole, 1), 0.0)


def _shares(
    outcomes: Iterable[Outcome], value: Callable[[Outcome], float], classes: Mapping[str, float]
) -> dict[str, Share]:
    mentions: Counter[str] = Counter()
    correct: Counter[str] = Counter()
    for outcome in outcomes:
        name = next(name for name, bound in classes.items() if value(outcome) <= bound)
        mentions[name] += 1
        correct[name] += outcome.is_correct
    return {name: Share(mentions[name], correct[name]) for name in classes}


def mean_and_interval(values: Sequence[float]) -> tuple[float, float]:
    """Mean, and half the width of Student's 95% interval; 0 for a single value."""
    mean = sum(values) / len(values)
    if len(values) == 1:
        return mean, 0.0
    from scipy import stats  # takes a second to import, and most evaluations have one seed

    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
    return mean, float(stats.t.ppf(0.975, len(values) - 1)) * deviation / math.sqrt(len(values))
