"""What the README says of tests and files is so."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_every_test_of_the_reliability_table_exists() -> None:
    section = README.partition("## What survives what")[2].partition("\n## ")[0]
    file, num_named = "", 0
    for path, name in re.findall(r"`([\w/]*\.py)?::(\w+)`", section):
        file = path or file
        assert f"def {name}(" in (ROOT / "tests" / file).read_text(), f"{file}::{name}"
        num_named += 1
    assert num_named >= 18


def test_every_fault_test_is_in_the_table() -> None:
    for path in (ROOT / "tests" / "faults").glob("test_*.py"):
        for name in re.findall(r"^def (test_\w+)\(", path.read_text(), re.MULTILINE):
            is_fault = "every_seed_is_kept" not in name and "second_writer_refuses" not in name
            assert not is_fault or name in README, f"{path.name}: {name}"


def test_every_module_is_in_the_file_map() -> None:
    listing = README.partition("## Where everything is")[2].partition("\n## ")[0]
    for path in sorted((ROOT / "deeped_ray").rglob("*.py")):
        assert path.name == "__init__.py" or path.name in listing, path


def test_links_to_files_of_the_repository_lead_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
