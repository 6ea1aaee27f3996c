"""The stages, from dump to scores: what configures each, what it reads, what it makes, and the function that makes it.

Jobs, the pipeline, `deeped build` and the table in docs/concepts.md all follow from STAGES. A stage whose parts the
manifest shows to be current has nothing to do.
"""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import yaml

from deeped_ray.batch.config import CorpusLinkingConfig
from deeped_ray.batch.link import link_corpus
from deeped_ray.corpus.config import CorpusConfig
from deeped_ray.corpus.ingest import build_corpus
from deeped_ray.corpus.wikidata import WikidataConfig, add_wikidata
from deeped_ray.embeddings.config import Methods, ShardConfig, SubsetConfig
from deeped_ray.embeddings.index import IndexConfig, build_index
from deeped_ray.embeddings.recall import RecallConfig, index_recall
from deeped_ray.embeddings.words import WordVectorConfig, build_words
from deeped_ray.evaluation.relatedness import ValidationConfig, validation_of
from deeped_ray.evaluation.report import EvaluationConfig, evaluate
from deeped_ray.evaluation.tables import report_table
from deeped_ray.extras import named
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.linking.candidates import CandidateConfig
from deeped_ray.linking.config import ModelConfig
from deeped_ray.linking.detection import DetectionConfig
from deeped_ray.mini import MINI_CONFIG, OWN_CONFIG
from deeped_ray.planning.room import require_room
from deeped_ray.refresh import RefreshConfig, refresh
from deeped_ray.running import logs
from deeped_ray.running.config import (
    FLAG,
    add_flags,
    add_set,
    check_keys,
    flags_given,
    flags_of,
    make,
    merge,
    parse_sets,
    plain,
    read_config,
    settings_of,
)
from deeped_ray.running.job import JobParser, run_to_result
from deeped_ray.running.resume import NEW_RUN, ResumeConfig
from deeped_ray.storage.location import Location
from deeped_ray.training.config import TrainingConfig, WorkerConfig
from deeped_ray.training.takeover import take_linker
from deeped_ray.types import DeepEdError

if TYPE_CHECKING:
    from deeped_ray import KnowledgeBase as Opened

Summary = dict[str, Any]


# -- what configures them: a section of the config file each


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """The run."""

    kb: Annotated[
        str | None, "the knowledge base: a folder, s3://, gs:// or hdfs://. All nodes must reach it.", FLAG
    ] = None
    resume: ResumeConfig = NEW_RUN
    log_format: Annotated[
        logs.Format | None, "text: one line for each event; json: one object; default: DEEPED_LOG, else text"
    ] = None


@dataclass(frozen=True, kw_only=True)
class CorpusSection:
    """The dump and the word vectors."""

    corpus: CorpusConfig = CorpusConfig()
    words: WordVectorConfig = WordVectorConfig()
    ids: WikidataConfig = WikidataConfig()


@dataclass(frozen=True, kw_only=True)
class VectorsSection:
    """Entity vectors."""

    methods: Methods = Methods()
    validation: ValidationConfig = ValidationConfig()
    subset: SubsetConfig = SubsetConfig()
    sharding: ShardConfig = ShardConfig()


@dataclass(frozen=True, kw_only=True)
class IndexSection:
    """The search index."""

    index: IndexConfig = IndexConfig()
    recall: RecallConfig = RecallConfig()


@dataclass(frozen=True, kw_only=True)
class LinkerSection:
    """Training the linker."""

    training: TrainingConfig = TrainingConfig()
    model: ModelConfig = ModelConfig()
    candidates: CandidateConfig = CandidateConfig()
    workers: WorkerConfig = WorkerConfig()


@dataclass(frozen=True, kw_only=True)
class AnswersSection:
    """Linking a corpus."""

    linking: CorpusLinkingConfig = CorpusLinkingConfig()
    detection: DetectionConfig = DetectionConfig()


# -- what makes them


def _corpus(kb: KnowledgeBase, config: CorpusSection, resume: ResumeConfig) -> Summary:
    if kb.last("corpus") is None:
        require_room(kb.location, config.corpus.dump)
    corpus, words = build_corpus(kb, config.corpus, resume), build_words(kb, config.words, resume)
    return {**corpus, **words, **add_wikidata(kb, config.ids)}


def _vectors(kb: KnowledgeBase, config: VectorsSection, resume: ResumeConfig) -> Summary:
    from deeped_ray.embeddings.trainer import embed_entities  # torch takes a second to import

    scorer = validation_of(kb, config.validation)
    return embed_entities(kb, config.methods, config.sharding, subset=config.subset, resume=resume, validation=scorer)


def _index(kb: KnowledgeBase, config: IndexSection, _: ResumeConfig) -> Summary:
    return {**build_index(kb, config.index), **(index_recall(kb, config.recall) if config.recall.recall else {})}


def _linker(kb: KnowledgeBase, config: LinkerSection, resume: ResumeConfig) -> Summary:
    if config.training.linker_from:
        return take_linker(kb, config.training.linker_from)
    from deeped_ray.training.trainer import train_linker  # Ray Train takes two seconds to import

    return train_linker(kb, config.training, config.model, config.candidates, config.workers, resume)


def _evaluation(kb: KnowledgeBase, config: EvaluationConfig, _: ResumeConfig) -> Summary:
    reports = evaluate(kb, config)
    print(report_table(reports))
    return {"results": [report.to_json() for report in reports]}


def _answers(kb: KnowledgeBase, config: AnswersSection, _: ResumeConfig) -> Summary:
    return link_corpus(kb, config.linking, config.detection)


def _refresh(kb: KnowledgeBase, config: RefreshConfig, resume: ResumeConfig) -> Summary:
    """With the settings of the current version, which its manifest holds."""
    if not config.dump:
        raise DeepEdError("Give the fresh dump: --dump FILE.")
    values = {name: each for name, each in read_config(kb.location / "manifest.json").items() if name in SECTIONS}
    _, sections = resolve(merge(values, {"corpus": {"dump": list(config.dump)}}))
    return refresh(kb, config, sections, resume)


class Stage(NamedTuple):
    name: str
    """Of its job: jobs/NAME.py."""
    section: str
    """Its settings in a config file."""
    config: type[Any]
    reads: tuple[str, ...]
    makes: tuple[str, ...]
    """Parts of the knowledge base."""
    make: Callable[[KnowledgeBase, Any, ResumeConfig], Summary]

    @property
    def about(self) -> str:
        """For --help."""
        reads = f" Reads {', '.join(self.reads)}." if self.reads else ""
        makes = f" Makes {', '.join(self.makes)}." if self.makes else ""
        return f"{self.config.__doc__}{reads}{makes}\n\nThe same as python jobs/{self.name}.py."


PARTS = ("pages", "corpus", "words", "vectors", "index", "linker")
STAGES = (
    Stage("build_corpus", "corpus", CorpusSection, (), ("pages", "corpus", "words"), _corpus),
    Stage("embed_entities", "vectors", VectorsSection, ("corpus", "words"), ("vectors",), _vectors),
    Stage("build_index", "index", IndexSection, ("corpus", "vectors"), ("index",), _index),
    Stage("train_linker", "linker", LinkerSection, ("corpus", "words", "vectors", "index"), ("linker",), _linker),
    Stage(
        "evaluate", "evaluation", EvaluationConfig, ("corpus", "words", "vectors", "index", "linker"), (), _evaluation
    ),
)
LINK_CORPUS = Stage(
    "link_corpus", "answers", AnswersSection, ("corpus", "words", "vectors", "index", "linker"), (), _answers
)
REFRESH = Stage("refresh", "refresh", RefreshConfig, PARTS, PARTS, _refresh)
NAMES = [stage.name for stage in STAGES]
ALONE = (LINK_CORPUS, REFRESH)
"""Jobs that are no step on the way from a dump to scores."""
SECTIONS = {stage.section: stage.config for stage in (*STAGES, *ALONE)}


# -- running them


def run_stage(kb: KnowledgeBase, stage: Stage, config: Any, resume: ResumeConfig = NEW_RUN) -> Summary:
    """Make what the stage makes, unless it is current; its settings go into the manifest beside it."""
    kb.settings = {stage.section: plain(config)}
    return stage.make(kb, config, resume)


def run_stages(
    kb: KnowledgeBase, stages: Sequence[Stage], configs: Mapping[str, Any], resume: ResumeConfig = NEW_RUN
) -> dict[str, Summary]:
    """One after the other; a failure is told with the stage's name."""
    summaries: dict[str, Summary] = {}
    for stage in stages:
        before, start = kb.manifest()["parts"], time.monotonic()
        try:
            summary = run_stage(kb, stage, configs[stage.section], resume)
        except DeepEdError as error:
            raise DeepEdError(f"{stage.name}: {error}") from error
        except Exception as error:
            raise RuntimeError(f"{stage.name} failed: {type(error).__name__}: {error}") from error
        seconds = round(time.monotonic() - start, 1)
        made = [name for name, record in kb.manifest()["parts"].items() if before.get(name) != record]
        told = f"made {', '.join(made)} in {seconds} s" if made else "nothing to do" if stage.makes else f"{seconds} s"
        print(f"{stage.name}: {told}", file=sys.stderr, flush=True)
        summaries[stage.name] = {"made": made, **summary, "seconds": seconds}
    return summaries


def build(
    kb: str | PathLike[str],
    *,
    config: str | PathLike[str] | Mapping[str, Any] | None = None,
    until: str | None = None,
    **sections: Mapping[str, Any],
) -> "Opened":
    """Build a knowledge base, or what is missing of it, and open it.

    `deeped.build("kb/mini")` builds the mini encyclopedia. `deeped.build("kb/wiki", config="wiki.yaml")` does what the
    file says; `deeped.build("kb/wiki", corpus={"dump": ["wiki.xml.bz2"]}, linker={...})` says it in Python.
    """
    from deeped_ray import open as open_kb

    given = config if isinstance(config, Mapping) else read_config(config) if config else {}
    values = with_suitable_settings({**merge(given, sections), "kb": str(kb)})
    run, configs = resolve(values)
    with named():
        run_stages(KnowledgeBase(kb, create=True), chosen(configs, until=until), configs, run.resume)
    return open_kb(kb)


# -- settings


def resolve(values: Mapping[str, Any]) -> tuple[RunConfig, dict[str, Any]]:
    """The run's own settings and those of all stages, by section; what nobody would read is refused."""
    top = settings_of(RunConfig)
    check_keys(values, SECTIONS, top=top)
    configs = {name: make(config, values.get(name) or {}, section=name) for name, config in SECTIONS.items()}
    return make(RunConfig, {name: values[name] for name in top if name in values}), configs


def with_suitable_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """With a dump, as given. Entities alone go on top of what the knowledge base has, with the settings that made it.

    Without either, the mini encyclopedia is built, with settings that suit it.
    """
    corpus = values.get("corpus") or {}
    if corpus.get("dump"):
        return dict(values)
    if not corpus.get("entities"):
        return merge(MINI_CONFIG, values)
    last = KnowledgeBase(values["kb"], create=True).last("pages") if values.get("kb") else None
    if last is None or not last.config["dumps"]:
        return merge(OWN_CONFIG, values)
    earlier = read_config(Location(values["kb"]) / "manifest.json")
    earlier["corpus"] = {key: value for key, value in earlier["corpus"].items() if key != "dump"}
    return merge(earlier, values)


def chosen(configs: Mapping[str, Any], *, first: str | None = None, until: str | None = None) -> Sequence[Stage]:
    """The stages from `first` until `until`."""
    corpus, evaluation = configs["corpus"].corpus, configs["evaluation"]
    first = first or NAMES[0]
    is_mini = not (corpus.dump or corpus.entities)
    last = until or ("evaluate" if evaluation.dataset or is_mini else "train_linker")
    stages = STAGES[NAMES.index(first) : NAMES.index(last) + 1]
    if not stages:
        raise DeepEdError(f"--from {first} comes after --until {last}. The stages are {', '.join(NAMES)}.")
    return stages


# -- command lines


def main(name: str, doc: str, arguments: Sequence[str] | None = None, *, prog: str | None = None) -> None:
    """`jobs/NAME.py`, for a stage or for "pipeline"."""
    is_pipeline = name == "pipeline"
    stages = STAGES if is_pipeline else [each for each in (*STAGES, *ALONE) if each.name == name]
    parser = _parser(name, doc, stages, prog or f"jobs/{name}.py")
    args = parser.parse_args(arguments)

    def run() -> Summary:
        given = merge(
            read_config(args.config) if args.config else {},
            flags_given(args, RunConfig),
            {
                stage.section: flags
                for stage in stages
                if (flags := flags_given(args, stage.config, is_pipeline=is_pipeline))
            },
            parse_sets(args.set),
        )
        settings, configs = resolve(with_suitable_settings(given) if is_pipeline else given)
        if args.print_config:
            print(yaml.safe_dump(_printed(settings, stages, configs), sort_keys=False, allow_unicode=True), end="")
            sys.exit()
        if settings.kb is None:
            parser.error("the following arguments are required: --kb")
        run_name = settings.resume.run_name or name
        logs.start(logs.Labels(run=run_name, stage=name, format=logs.format_of(settings.log_format)))
        first = chosen(configs, first=args.first, until=args.until) if is_pipeline else stages
        kb = KnowledgeBase(settings.kb, create=first[0] is STAGES[0])
        if is_pipeline:
            return {"stages": run_stages(kb, first, configs, settings.resume)}
        return run_stage(kb, stages[0], configs[stages[0].section], settings.resume)

    run_to_result(name, run)


def _parser(name: str, doc: str, stages: Sequence[Stage], prog: str) -> argparse.ArgumentParser:
    parser = JobParser(name, doc, prog)
    is_pipeline = len(stages) > 1
    add_flags(parser, RunConfig)
    parser.add_argument("--config", metavar="FILE", help="settings as YAML, or the manifest.json of a knowledge base")
    settings = settings_of(stages[-1].config)
    keys = [key for key, setting in settings.items() if setting.flag is None] or [*settings]
    key = next((key for key in keys if settings[key].kind in (int, float)), keys[0])
    example = "linker.rounds=10" if is_pipeline else f"{stages[-1].section}.{key}={json.dumps(settings[key].default)}"
    add_set(parser, f"--set {example}")
    parser.add_argument("--print-config", action="store_true", help="print all settings of this run as YAML, and stop")
    if is_pipeline:
        parser.add_argument("--from", dest="first", choices=NAMES, metavar="STAGE", help="first stage to run")
        last = "last stage to run (default: train_linker; evaluate with --dataset)"
        parser.add_argument("--until", choices=NAMES, metavar="STAGE", help=last)
    flags = Counter(key for stage in stages for key in flags_of(stage.config, is_pipeline=is_pipeline))
    shared = [key for key, count in flags.items() if count > 1]  # which stage's would it be? Both have a key
    for stage in stages:
        add_flags(parser, stage.config, is_pipeline=is_pipeline, without=shared)
    return parser


def _printed(settings: RunConfig, stages: Sequence[Stage], configs: Mapping[str, Any]) -> dict[str, Any]:
    run = {name: value for name, value in plain(settings).items() if value is not None}
    return {**run, **{stage.section: plain(configs[stage.section]) for stage in stages}}
