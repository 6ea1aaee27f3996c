"""What the README and docs/ say is so: links, paths, commands, settings, tables and generated pages."""

import functools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import deeped_ray
from deeped_ray import cli, stages
from deeped_ray.evaluation.relatedness import RelatednessConfig
from deeped_ray.evaluation.report import EvaluationConfig
from deeped_ray.linking.detection import DetectionConfig
from deeped_ray.planning.simulation import Fleet
from deeped_ray.planning.workload import Cluster, Workload
from deeped_ray.running.config import flags_of, parse_sets, settings_of
from docs.reference import configuration, with_stages
from tests.test_layout import RANKS

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BY_COMMAND: dict[str, list[type[Any]]] = {
    "link": [DetectionConfig],
    "detect": [DetectionConfig],
    "evaluate": [EvaluationConfig],
    "relatedness": [RelatednessConfig],
    "plan": [Workload, Cluster, Fleet],
}
FOREIGN = {  # flags of ray, pip, uv and argparse; --NME-- is a mark in AIDA's files
    "--NME--",
    "--entrypoint-memory",
    "--entrypoint-num-cpus",
    "--extra",
    "--follow",
    "--generate",
    "--help",
    "--metrics-export-port",
    "--no-wait",
    "--python",
    "--require-hashes",
    "--runtime-env-json",
    "--working-dir",
}

KEYS = {
    *(f"{section}.{key}" for section, config in stages.SECTIONS.items() for key in settings_of(config)),
    *(key for configs in BY_COMMAND.values() for config in configs for key in settings_of(config)),
    *settings_of(stages.RunConfig),
}
_BLOCK = re.compile(r"^```\w*\n(.*?)^```", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`([^`\n]+)`")


def prose_of(page: Path) -> str:
    return _BLOCK.sub("", page.read_text())


def id_of(value: object) -> str:
    return value.name if isinstance(value, Path) else str(value)[:60]


def commands() -> Iterator[tuple[str, list[str]]]:
    """(name of a job or `deeped`, arguments), from all code blocks."""
    blocks = "\n".join(block for page in PAGES for block in _BLOCK.findall(page.read_text()))
    for line in blocks.replace("\\\n", " ").splitlines():
        found = re.match(r"(?:ray job submit .*-- |)(?:python jobs/(\w+)\.py|(deeped))(?= )", line)
        if found and "wrong on purpose" not in line:
            name, arguments = found[1] or "deeped", shlex.split(line[found.end() :], comments=True)
            if name == "deeped" and arguments[0] in ("build", "job"):
                name, arguments = (
                    ("pipeline", arguments[1:]) if arguments[0] == "build" else (arguments[1], arguments[2:])
                )
            yield name, arguments


COMMANDS = list(commands())


@pytest.mark.parametrize(("name", "arguments"), COMMANDS, ids=id_of)
def test_a_command_is_understood(name: str, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    if name == "deeped":
        args = cli._parser(arguments).parse_args(arguments)
        known = {key for config in BY_COMMAND.get(arguments[0], ()) for key in settings_of(config)}
        assert set(parse_sets(getattr(args, "set", []))) <= known
        return
    if "--config" in arguments:  # the reader's own file
        place = arguments.index("--config")
        arguments = arguments[:place] + arguments[place + 2 :]
    with pytest.raises(SystemExit) as end:
        stages.main(name, "", [*arguments, "--print-config"])
    assert not end.value.code, capsys.readouterr().err


def test_there_are_many_commands() -> None:
    assert len(COMMANDS) >= 40


@pytest.mark.parametrize("page", PAGES, ids=id_of)
def test_config_files_are_understood(page: Path) -> None:
    files = [yaml.safe_load(text) for text in re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.S | re.M)]
    for content in files:
        if "scrape_configs" not in content:  # Prometheus's
            stages.resolve(content)


@functools.cache
def known_flags() -> set[str]:
    """Of jobs, of `deeped`, and of the scripts that the docs name."""
    of_commands = [config for configs in BY_COMMAND.values() for config in configs]
    configs: list[type[Any]] = [stages.RunConfig, *stages.SECTIONS.values(), *of_commands]
    sources = [*(ROOT / "benchmarks").glob("*.py"), *(ROOT / "deeped_ray").rglob("*.py")]
    written = re.findall(r'"(--[\w-]+)"', "".join(path.read_text() for path in sources))
    return {f"--{key.replace('_', '-')}" for config in configs for key in flags_of(config)} | set(written)


@pytest.mark.parametrize("page", PAGES, ids=id_of)
def test_flags_in_the_text_exist(page: Path) -> None:
    spans = " ".join(_CODE.findall(prose_of(page)))
    flags = set(re.findall(r"(?<![\w-])--[a-zA-Z][\w-]+(?![\w.-])", spans))
    assert flags <= known_flags() | FOREIGN


@pytest.mark.parametrize("page", PAGES, ids=id_of)
def test_settings_in_the_text_exist(page: Path) -> None:
    spans = "\n".join(_CODE.findall(prose_of(page)))
    keys = set(re.findall(rf"^((?:{'|'.join(stages.SECTIONS)})\.\w+)(?:$|:)", spans, re.MULTILINE)) - {"linker.yaml"}
    assert keys | set(re.findall(r"--set ([a-z_.]+)=", spans)) <= KEYS


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=id_of)
def test_links_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", page.read_text()):
        file = page.parent / target if target else page
        assert file.exists(), target
        assert not anchor or anchor in anchors_of(file), f"{target}#{anchor}"


def anchors_of(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=id_of)
def test_paths_in_the_text_exist(page: Path) -> None:
    folders = "deeped_ray|jobs|serve|tests|benchmarks|docs|deploy|examples"
    for path in re.findall(rf"`((?:{folders})/[\w./-]*)", page.read_text()):
        is_placeholder = re.search(r"\b[A-Z]+\b", path) or path.endswith("...")
        assert is_placeholder or (ROOT / path).exists(), path


def test_the_readme_is_read_to_the_end() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


@pytest.mark.parametrize("page", PAGES, ids=id_of)
def test_no_paragraph_is_longer_than_four_lines(page: Path) -> None:
    text = "\n".join("" if line.startswith(("|", "#", "<!--")) else line for line in prose_of(page).splitlines())
    for paragraph in re.split(r"\n\s*\n|\n(?=- |\d\. )", text):
        assert len(paragraph.strip()) <= 4 * 120, paragraph


# -- what is made from the code, or copied from it


def test_the_reference_of_settings_is_current() -> None:
    assert (ROOT / "docs" / "configuration.md").read_text() == configuration(), "run `make config`"


def test_the_table_of_stages_is_current() -> None:
    page = (ROOT / "docs" / "concepts.md").read_text()
    assert page == with_stages(page), "run `make config`"


def test_the_table_of_folders_has_the_ranks_of_the_layout() -> None:
    page = (ROOT / "docs" / "development.md").read_text()
    rows = re.findall(r"^\| (\d+) \| ([^|]+) \|", page, re.MULTILINE)
    assert {name: int(rank) for rank, names in rows for name in _CODE.findall(names)} == RANKS


def test_every_equation_is_where_the_paper_page_says() -> None:
    page = (ROOT / "docs" / "paper.md").read_text()
    rows = re.findall(r"\| ([^|]+) \| \[`[\w/.]+`\]\(\.\./([\w/.]+)\) \|$", page, re.MULTILINE)
    assert len(rows) >= 20
    for names, file in rows:
        for name in _CODE.findall(names):
            assert re.search(rf"^(def|class) {name}\b", (ROOT / file).read_text(), re.MULTILINE), f"{file}: {name}"


def test_the_python_page_names_only_what_is_public() -> None:
    page = (ROOT / "docs" / "python.md").read_text()
    assert set(re.findall(r"\bdeeped\.([a-zA-Z]+)", page)) <= set(dir(deeped_ray))
    knowledge_base = vars(deeped_ray)["__getattr__"]("KnowledgeBase")
    assert all(hasattr(knowledge_base, name) for name in re.findall(r"\bkb\.([a-z_]+)\(", page))


# -- faults


def test_every_test_in_the_table_of_faults_exists() -> None:
    rows = re.findall(r"`([\w/]+\.py)::(\w+)`", (ROOT / "docs" / "faults.md").read_text())
    assert len(rows) >= 20
    for file, name in rows:
        assert f"def {name}(" in (ROOT / "tests" / file).read_text(), f"{file}::{name}"


def test_every_fault_test_is_in_the_table() -> None:
    page = (ROOT / "docs" / "faults.md").read_text()
    for path in (ROOT / "tests" / "faults").glob("test_*.py"):
        for name in re.findall(r"^def (test_\w+)\(", path.read_text(), re.MULTILINE):
            is_fault = not re.search("every_seed_is_kept|hold_no_pickles", name)
            assert not is_fault or name in page, f"{path.name}: {name}"
