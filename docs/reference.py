"""Writes what the docs take from the code: docs/configuration.md, and the table of stages in docs/concepts.md.

python docs/reference.py        # or: make config
"""

import dataclasses
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import yaml

from deeped_ray.evaluation.relatedness import RelatednessConfig
from deeped_ray.mini import MINI_CONFIG
from deeped_ray.planning.simulation import Fleet
from deeped_ray.planning.workload import Cluster, Workload
from deeped_ray.running.config import FLAG, flags_of, settings_of
from deeped_ray.stages import ALONE, STAGES, RunConfig

FOLDER = Path(__file__).parent
_TYPES = {bool: "true or false", int: "whole number", float: "number", str: "text"}
_MARKED = re.compile(r"(?<=<!-- stages -->\n).*(?=<!-- end of stages -->)", re.DOTALL)
_INTRODUCTION = """\
# Configuration

<!-- Written by docs/reference.py from the dataclasses in the code. Change the help texts there, then run `make config`. -->

A run is a file. Every setting has a key in it, and every job takes the same file:

```yaml
# wiki.yaml
kb: s3://bucket/kb
corpus:
  dump: [s3://bucket/enwiki-latest-pages-articles-multistream.xml.bz2]
  word_vectors: s3://bucket/vectors.bin.gz
linker:
  train: [aida:s3://bucket/train.tsv]
  dev: [aida:s3://bucket/testa.tsv]
```

```
deeped build --config wiki.yaml                          # what the file says
deeped build --config wiki.yaml --set linker.rounds=10   # the same, with one setting changed
deeped build --config wiki.yaml --print-config           # print all settings of this run, and stop
deeped build --config kb/mini/manifest.json --kb kb/new  # the settings that made another knowledge base
```

- **Order.** `--set` wins over flags, flags win over the file, the file wins over the defaults below.
- **Flags.** Only the settings that people change often have a flag. All others are keys only: put them into the file,
  or use `--set SECTION.KEY=VALUE`. The value is YAML, so lists are `[a, b]`.
- **Mistakes.** An unknown key or a value of the wrong type ends the job before it starts. The error names the nearest
  known key.
- **Record.** The settings that made a part are stored beside it in `manifest.json`.
- **Experiments.** Some keys exist to repeat an experiment, for example every departure from the paper. Most of them make
  no difference to the scores ([results](results.md)), and none has a flag.

*own job* in the column "flag" means: a flag of that stage's own job, but not of `deeped build` and `jobs/pipeline.py`.
"""
_COMMANDS = """\
## Commands

Commands that are no stage have one section, so `--set` takes the bare key: `deeped link --set detector=spacy`.
`deeped link` and `deeped detect` know the keys under "How mentions are found" in [answers](#answers), `deeped evaluate`
knows those of [evaluation](#evaluation).
"""


def configuration() -> str:
    return "\n".join([_INTRODUCTION, *_run(), *_sections(), *_commands(), *_mini()])


def _run() -> Iterator[str]:
    yield "## The run\n\nThese keys stand at the top of the file, outside all sections.\n"
    yield _table(RunConfig, _flags(RunConfig))


def _sections() -> Iterator[str]:
    for stage in (*STAGES, *ALONE):
        yield f"## {stage.section}\n\n{_sentence(stage.config)} Job: `jobs/{stage.name}.py`.\n"
        yield from _tables(_groups(stage.config), _flags(stage.config, is_pipeline=stage not in ALONE))


def _commands() -> Iterator[str]:
    yield _COMMANDS
    commands: dict[str, list[type[Any]]] = {"relatedness": [RelatednessConfig], "plan": [Workload, Cluster, Fleet]}
    for command, configs in commands.items():
        yield f"### deeped {command}\n"
        flags = {name: _flag(name) for config in configs for name in flags_of(config)}
        yield from _tables(configs, flags)


def _mini() -> Iterator[str]:
    yield "## The mini encyclopedia\n\nWithout a dump, `deeped build` builds the mini encyclopedia, with these defaults:\n"
    yield f"```yaml\n{yaml.safe_dump(MINI_CONFIG, sort_keys=False)}```\n"


def _groups(config: type[Any]) -> list[type[Any]]:
    """The dataclasses whose keys make up a section; the section itself if it has its own."""
    hints = get_type_hints(config)
    inner = [hints[field.name] for field in dataclasses.fields(config) if dataclasses.is_dataclass(hints[field.name])]
    return [found for group in inner for found in _groups(group)] or [config]


def _flags(config: type[Any], *, is_pipeline: bool = True) -> dict[str, str]:
    """What the column "flag" says, by key."""
    times = Counter(name for stage in STAGES for name in flags_of(stage.config))
    told = {}
    for name, setting in flags_of(config).items():
        is_own = is_pipeline and (setting.flag != FLAG or times[name] > 1)
        told[name] = _flag(name) + (", own job" if is_own else "")
    return told


def _flag(name: str) -> str:
    return f"`--{name.replace('_', '-')}`"


def _tables(configs: list[type[Any]], flags: dict[str, str]) -> Iterator[str]:
    for config in configs:
        if len(configs) > 1:
            yield f"**{_sentence(config)}**\n"
        yield _table(config, flags)


def _table(config: type[Any], flags: dict[str, str]) -> str:
    rows = ["| key | type | default | flag | meaning |", "|---|---|---|---|---|"]
    for name, setting in settings_of(config).items():
        cells = f"`{name}`", _type(setting.kind), _default(setting.default), flags.get(name, ""), setting.help
        rows.append("| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |")
    return "\n".join(rows) + "\n"


def _type(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(kind))
    return "list of texts" if get_origin(kind) is tuple else _TYPES[kind]


def _default(value: Any) -> str:
    if value is None or value == ():
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def _sentence(config: type[Any]) -> str:
    return (config.__doc__ or "").strip().splitlines()[0].rstrip(".") + "."


def stages() -> str:
    rows = ["| stage | section of the file | reads | makes |", "|---|---|---|---|"]
    for stage in (*STAGES, *ALONE):
        makes = ", ".join(stage.makes) or ("scores" if stage.section == "evaluation" else "Parquet files of answers")
        reads = ", ".join(stage.reads) or "a dump"
        rows.append(f"| `jobs/{stage.name}.py` | `{stage.section}` | {reads} | {makes} |")
    return "\n".join(rows) + "\n"


def with_stages(page: str) -> str:
    assert _MARKED.search(page), "docs/concepts.md has lost the marks around its table of stages"
    return _MARKED.sub(lambda _: stages(), page)


if __name__ == "__main__":
    (FOLDER / "configuration.md").write_text(configuration())
    concepts = FOLDER / "concepts.md"
    concepts.write_text(with_stages(concepts.read_text()))
