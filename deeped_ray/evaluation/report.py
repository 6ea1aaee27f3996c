"""Evaluates linkers on annotated documents. `tables` shows the result."""

import hashlib
import itertools
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from deeped_ray.corpus.catalogue import Catalogue
from deeped_ray.corpus.priors import PriorCandidate
from deeped_ray.evaluation.datasets import SPECS, check_ids, read_dataset
from deeped_ray.evaluation.metrics import Outcome, Result, Share, judge
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.linking.candidate_lists import CandidateLists
from deeped_ray.linking.linker import Linker, LinkerKind
from deeped_ray.running.config import FLAG, JOB_FLAG
from deeped_ray.types import DeepEdError, Document, Prediction, require_at_least


@dataclass(frozen=True, kw_only=True)
class EvaluationConfig:
    """What to score."""

    dataset: Annotated[tuple[str, ...], f"annotated documents, repeatable; default: mini:test. {SPECS}.", FLAG] = ()
    candidates: Annotated[tuple[str, ...], "external candidate lists: ppr:FILE", FLAG] = ()
    model: Annotated[Literal["all", "prior", "local", "global"], "which linker to score", FLAG] = "all"
    all_seeds: Annotated[
        bool, "score every seed of the training run too. Shows mean and 95% interval over seeds.", JOB_FLAG
    ] = False
    unlinked: Annotated[
        bool, "for the scores of `none of these`, count mentions that are annotated as outside Wikipedia as well"
    ] = False
    explain: Annotated[
        int,
        "mentions to show with their reasons. Solved and missed ones, lowest gold prior first.",
        JOB_FLAG,
    ] = 0

    def __post_init__(self) -> None:
        require_at_least(0, self, "explain")

    @property
    def datasets(self) -> tuple[str, ...]:
        return self.dataset or ("mini:test",)

    @property
    def models(self) -> tuple[LinkerKind, ...]:
        return ("prior", "local", "global") if self.model == "all" else (self.model,)


@dataclass(frozen=True)
class Case:
    """A mention that shows how the linker decides."""

    document: str
    gold: str
    """The annotated title, before redirects."""
    is_correct: bool
    prediction: Prediction


class SeedScores(NamedTuple):
    """Of one seed of a training run."""

    accuracy: float
    ece: float | None
    auroc: float | None


@dataclass(frozen=True)
class Report:
    """One linker on one data set."""

    dataset: str
    model: LinkerKind
    result: Result
    candidates_sha256: str
    """Hash of the candidates by prior, before pruning. Compare scores only if these hashes are equal."""
    seconds: float
    cases: tuple[Case, ...] = ()
    by_seed: tuple[SeedScores, ...] = ()
    """All seeds of the training run, if asked for."""

    @property
    def name(self) -> str:
        """The data set without its folders."""
        return self.dataset.rstrip("/").rpartition("/")[2]

    @property
    def mentions_per_s(self) -> float:
        return self.result.mentions / self.seconds if self.seconds else 0.0

    @property
    def gold_recall_kept(self) -> float | None:
        """None for the prior, which chooses among all candidates."""
        return None if self.model == "prior" else self.result.gold_recall_kept

    @property
    def certainty(self) -> dict[str, float | None]:
        """Whether the probabilities mean what they say."""
        answers = self.result.certainty
        nil_precision, nil_recall, nil_f1 = answers.nil
        return {
            "ece": answers.ece,
            "auroc": answers.auroc,
            "precision_at_threshold_90": answers.precision_at(0.9),
            "coverage_at_precision_90": answers.coverage_at(0.9),
            "nil_precision": nil_precision,
            "nil_recall": nil_recall,
            "nil_f1": nil_f1,
        }

    def over_seeds(self, name: str) -> list[float]:
        """A score of every seed that has one."""
        return [score for scores in self.by_seed if (score := getattr(scores, name)) is not None]

    def to_json(self) -> dict[str, Any]:
        result = self.result
        explained = {"explained": [asdict(case) for case in self.cases]} if self.cases else {}
        over_seeds = {f"{name}_by_seed": self.over_seeds(name) for name in SeedScores._fields if self.by_seed}
        return {
            "dataset": self.dataset,
            "model": self.model,
            "documents": len(result.documents),
            "mentions": result.mentions,
            **asdict(result.scores),
            "micro_recall": result.scores.accuracy,
            "intervals": result.intervals,
            **over_seeds,
            "text_only_accuracy": result.text_only,
            "gold_recall": result.gold_recall,
            "gold_recall_kept": self.gold_recall_kept,
            **self.certainty,
            "gold_sources": result.gold_sources,
            "by_gold_links": _shares(result.by_links),
            "by_gold_prior": _shares(result.by_prior),
            "errors": result.errors,
            "candidates_sha256": self.candidates_sha256,
            "seconds": self.seconds,
            "mentions_per_s": self.mentions_per_s,
            **explained,
        }


def _shares(shares: dict[str, Share]) -> dict[str, Any]:
    return {name: {"mentions": share.mentions, "accuracy": share.accuracy} for name, share in shares.items()}


def evaluate(kb: KnowledgeBase, config: EvaluationConfig) -> list[Report]:
    """Every model on every data set."""
    documents = {dataset: read_dataset(dataset, kb=kb, with_unlinked=config.unlinked) for dataset in config.datasets}
    CandidateLists(config.candidates).check(itertools.chain.from_iterable(documents.values()))
    linkers = {model: Linker.open(kb, model, lists=config.candidates) for model in config.models}
    for dataset, read in documents.items():
        check_ids(dataset, read, linkers[config.models[0]].inputs.catalogue)
    reports = [
        evaluate_linker(linker, documents[dataset], dataset=dataset, model=model, explain=config.explain)
        for dataset in documents
        for model, linker in linkers.items()
    ]
    if not config.all_seeds:
        return reports
    by_seed = {model: Linker.open_seeds(kb, model, linker.inputs) for model, linker in linkers.items()}
    return [
        replace(report, by_seed=tuple(_scores(seed, documents[report.dataset]) for seed in by_seed[report.model]))
        for report in reports
    ]


def _scores(linker: Linker, documents: Sequence[Document]) -> SeedScores:
    result = Result(_outcomes(linker, documents, linker.link_batch(documents, explain=False)))
    return SeedScores(result.scores.accuracy, result.certainty.ece, result.certainty.auroc)


def evaluate_linker(
    linker: Linker, documents: Sequence[Document], *, dataset: str, model: LinkerKind, explain: int = 0
) -> Report:
    start = time.monotonic()
    answers = linker.link_batch(documents)
    seconds = time.monotonic() - start
    catalogue = linker.inputs.catalogue
    outcomes = _outcomes(linker, documents, answers)
    firsts = [linker.inputs.first_candidates(document) for document in documents]
    cases = _hard_cases(documents, answers, outcomes, count=explain)
    return Report(dataset, model, Result(outcomes), _candidates_sha256(documents, firsts, catalogue), seconds, cases)


def accuracy_of(linker: Linker, documents: Sequence[Document]) -> float:
    """And nothing else, which takes a third of the time."""
    outcomes = _outcomes(linker, documents, linker.link_batch(documents, explain=False))
    return float(Result(outcomes).scores.accuracy)


def _outcomes(
    linker: Linker, documents: Sequence[Document], answers: Sequence[Sequence[Prediction]]
) -> list[list[Outcome]]:
    return [
        [
            judge(*parts, linker.inputs.catalogue)
            for parts in zip(document.mentions, answered, linker.inputs.first_candidates(document), strict=True)
        ]
        for document, answered in zip(documents, answers, strict=True)
    ]


def _hard_cases(
    documents: Sequence[Document],
    answers: Sequence[Sequence[Prediction]],
    outcomes: Sequence[Sequence[Outcome]],
    *,
    count: int,
) -> tuple[Case, ...]:
    """Solved and missed mentions in turn, lowest prior of the gold entity first (table 7)."""
    ranked: dict[bool, list[tuple[float, Case]]] = {True: [], False: []}
    for document, *rows in zip(documents, answers, outcomes, strict=True):
        for mention, answer, outcome in zip(document.mentions, *rows, strict=True):
            if outcome.is_kept and outcome.gold_prior is not None and mention.gold is not None:
                case = Case(document.name, mention.gold, outcome.is_correct, answer)
                ranked[outcome.is_correct].append((outcome.gold_prior, case))
    hardest = [sorted(found, key=lambda item: item[0])[:count] for found in ranked.values()]
    turns = itertools.chain.from_iterable(itertools.zip_longest(*hardest))
    return tuple(item[1] for item in turns if item is not None)[:count]


def _candidates_sha256(
    documents: Sequence[Document], firsts: Sequence[Sequence[Sequence[PriorCandidate]]], catalogue: Catalogue
) -> str:
    """Hash of titles and priors, which does not depend on how a knowledge base numbers its entities."""
    digest = hashlib.sha256()
    for document, first in zip(documents, firsts, strict=True):
        for mention, candidates in zip(document.mentions, first, strict=True):
            rows = [(catalogue.title(candidate.entity_id), round(candidate.prior, 6)) for candidate in candidates]
            digest.update(json.dumps([document.surface(mention), rows]).encode())
    return digest.hexdigest()


def write_json(reports: Sequence[Report], path: Path) -> None:
    """One object for one linker on one data set; a list of objects for several."""
    data = [report.to_json() for report in reports]
    try:
        path.write_text(json.dumps(data[0] if len(data) == 1 else data, indent=2) + "\n")
    except OSError as error:
        raise DeepEdError(f"Cannot write {path}: {error.strerror}.") from error
