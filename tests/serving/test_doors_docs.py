"""The Python of the pages on doors, and the notebook, run as they are printed, on a real server and a knowledge base."""

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

import deeped_ray
from tests.serving.conftest import Served

ROOT = Path(__file__).parent.parent.parent
PAGES = ("python", "client", "spacy", "notebooks")
SNIPPETS = [
    (page, code)
    for page in PAGES
    for code in re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / f"{page}.md").read_text(), re.S | re.M)
    if "import" in code.split("\n")[0] and "ray.data" not in code  # whole ones; tests/test_examples.py has Ray Data
]
CELLS = [
    "".join(cell["source"])
    for cell in json.loads((ROOT / "examples" / "explore.ipynb").read_text())["cells"]
    if cell["cell_type"] == "code"
]


def here(code: str, served: Served) -> str:
    return code.replace("http://127.0.0.1:8000", served.url).replace("kb/mini", str(served.kb))


def shown(code: str, names: dict[str, Any]) -> Any:
    """What a notebook shows of a cell: its last expression."""
    *first, last = ast.parse(code).body
    if not isinstance(last, ast.Expr):
        exec(code, names)
        return None
    exec(compile(ast.Module(first, []), "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names)


@pytest.mark.parametrize(("page", "code"), SNIPPETS, ids=[f"{page}-{i}" for i, (page, _) in enumerate(SNIPPETS)])
def test_a_snippet_runs_as_printed(served: Served, capsys: pytest.CaptureFixture[str], page: str, code: str) -> None:
    found = shown(here(code, served), {"__name__": "__main__"})
    printed = capsys.readouterr().out
    assert "Toronto" in printed if page != "notebooks" else "surface" in str(found)


def test_every_page_has_a_snippet() -> None:
    assert {page for page, _ in SNIPPETS} == set(PAGES)


def test_the_notebook_runs_and_draws(served: Served) -> None:
    names: dict[str, Any] = {}
    found = [shown(here(cell, served), names) for cell in CELLS]
    drawn = [each._repr_html_() for each in found if hasattr(each, "_repr_html_")]
    assert len(drawn) == 3  # the text, a prediction, a data frame
    assert all("Montreal" in each and "<table" in each for each in drawn)
    assert found[-1][0][1] > 0.1


def test_a_client_gives_what_a_notebook_draws(served: Served) -> None:
    text = "Montreal met Toronto."
    with deeped_ray.Client(served.url) as client:
        assert client.link(text)._repr_html_() == deeped_ray.open(served.kb).link(text)._repr_html_()
