"""All stages, one after the other, in one job: a stage whose parts the manifest shows to be current has nothing to do."""

import argparse
import dataclasses
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from deeped_ray.corpus.config import CorpusConfig
from deeped_ray.corpus.ingest import build_corpus
from deeped_ray.embeddings.closed_form import ClosedFormConfig
from deeped_ray.embeddings.config import EmbeddingConfig, Methods, ShardConfig, SubsetConfig
from deeped_ray.embeddings.index import IndexConfig, build_index
from deeped_ray.embeddings.recall import RecallConfig, index_recall
from deeped_ray.embeddings.reference import ReferenceConfig
from deeped_ray.embeddings.trainer import embed_entities
from deeped_ray.embeddings.words import WordVectorConfig, build_words
from deeped_ray.evaluation.relatedness import ValidationConfig, validation_of
from deeped_ray.evaluation.report import EvaluationConfig, evaluate
from deeped_ray.evaluation.tables import report_table
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.linking.candidates import CandidateConfig
from deeped_ray.linking.model import ModelConfig
from deeped_ray.mini import MINI_SETTINGS
from deeped_ray.running.config import add_options, config_from, job_parser, run_to_result
from deeped_ray.running.resume import ResumeConfig
from deeped_ray.training.config import TrainingConfig, WorkerConfig
from deeped_ray.training.trainer import train_linker
from deeped_ray.types import DeepEdError

Summary = dict[str, Any]


class Stage(NamedTuple):
    """What one of the other jobs does; `prefix` tells its options from those of the same name of other stages."""

    name: str
    prefix: str
    configs: Sequence[type[Any]]
    run: Callable[..., Summary]


def _build_corpus(kb: KnowledgeBase, corpus: CorpusConfig, words: WordVectorConfig, resume: ResumeConfig) -> Summary:
    return {**build_corpus(kb, corpus, resume), **build_words(kb, words)}


def _embed_entities(kb: KnowledgeBase, *configs: Any) -> Summary:
    *methods, validation, subset, sharding, resume = configs
    scorer = validation_of(kb, validation)
    return embed_entities(kb, Methods(*methods), sharding, subset=subset, resume=resume, validation=scorer)


def _build_index(kb: KnowledgeBase, config: IndexConfig, recall: RecallConfig) -> Summary:
    return {**build_index(kb, config), **(index_recall(kb, recall) if recall.recall else {})}


def _evaluate(kb: KnowledgeBase, config: EvaluationConfig) -> Summary:
    reports = evaluate(kb, config)
    print(report_table(reports))
    return {"results": [report.to_json() for report in reports]}


STAGES = (
    Stage("build_corpus", "corpus", [CorpusConfig, WordVectorConfig, ResumeConfig], _build_corpus),
    Stage(
        "embed_entities",
        "embed",
        [EmbeddingConfig, ClosedFormConfig, ReferenceConfig, ValidationConfig, SubsetConfig, ShardConfig, ResumeConfig],
        _embed_entities,
    ),
    Stage("build_index", "index", [IndexConfig, RecallConfig], _build_index),
    Stage(
        "train_linker",
        "train",
        [TrainingConfig, ModelConfig, CandidateConfig, WorkerConfig, ResumeConfig],
        train_linker,
    ),
    Stage("evaluate", "evaluate", [EvaluationConfig], _evaluate),
)
NAMES = [stage.name for stage in STAGES]


def main(doc: str) -> None:
    """`jobs/pipeline.py`: without --dump, on the mini encyclopedia and with what suits it."""
    parser = _parser(doc)
    args = parser.parse_args()
    if not args.dump:
        parser.set_defaults(**MINI_SETTINGS)
        args = parser.parse_args()
    run_to_result("pipeline", args, lambda: run_pipeline(args))


def _parser(doc: str) -> argparse.ArgumentParser:
    parser = job_parser("pipeline", doc)
    parser.add_argument(
        "--from", dest="first", choices=NAMES, default=NAMES[0], help=f"first stage (default: {NAMES[0]})"
    )
    parser.add_argument(
        "--until",
        dest="last",
        choices=NAMES,
        help="last stage (default: evaluate with --dataset or on the mini encyclopedia, else train_linker)",
    )
    for config_class, renamed in renamings().items():
        add_options(parser, config_class, renamed=renamed)
    return parser


def renamings() -> dict[type[Any], dict[str, str]]:
    """For every config the fields that another one has too, with their stage before them: --embed-seed, --train-seed."""
    stage_of = {config_class: stage for stage in reversed(STAGES) for config_class in stage.configs}
    fields = {config_class: [field.name for field in dataclasses.fields(config_class)] for config_class in stage_of}
    counts = Counter(name for names in fields.values() for name in names)
    return {
        config_class: {name: f"{stage.prefix}_{name}" for name in fields[config_class] if counts[name] > 1}
        for config_class, stage in reversed(stage_of.items())
    }


def run_pipeline(args: argparse.Namespace) -> Summary:
    """Run the stages from --from until --until; what fails is told with the stage's name."""
    renamed = renamings()
    configs = {each: config_from(args, each, renamed=renamed[each]) for each in renamed}
    stages = _chosen(args)
    kb = KnowledgeBase(args.kb, create=stages[0] is STAGES[0])
    return {"stages": {stage.name: _run(kb, stage, [configs[each] for each in stage.configs]) for stage in stages}}


def _chosen(args: argparse.Namespace) -> Sequence[Stage]:
    last = args.last or ("evaluate" if args.dataset or not args.dump else "train_linker")
    chosen = STAGES[NAMES.index(args.first) : NAMES.index(last) + 1]
    if not chosen:
        raise DeepEdError(f"--from {args.first} comes after --until {last}. The stages are {', '.join(NAMES)}.")
    # before the hours that the stages before it take
    if args.dump and "train_linker" in [stage.name for stage in chosen] and not (args.train and args.dev):
        raise DeepEdError("Give --train and --dev, as in aida:FILE, or stop before: --until build_index.")
    return chosen


def _run(kb: KnowledgeBase, stage: Stage, configs: Sequence[Any]) -> Summary:
    before, start = kb.manifest()["parts"], time.monotonic()
    try:
        summary = stage.run(kb, *configs)
    except DeepEdError as error:
        raise DeepEdError(f"{stage.name}: {error}") from error
    except Exception as error:
        raise RuntimeError(f"{stage.name} failed: {type(error).__name__}: {error}") from error
    seconds = round(time.monotonic() - start, 1)
    made = [name for name, record in kb.manifest()["parts"].items() if before.get(name) != record]
    is_done = not made and stage.name != "evaluate"
    told = "done already" if is_done else f"{'made ' + ', '.join(made) if made else 'done'} in {seconds} s"
    print(f"{stage.name}: {told}", file=sys.stderr, flush=True)
    return {"made": made, **summary, "seconds": seconds}
