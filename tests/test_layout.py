"""Imports point one way, down the data flow; Ray appears only where work is spread."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "deeped_ray"
# a module may import from its own rank and from lower ones
RANKS = {
    "types": 0,
    "arrow": 1,
    "compressed": 1,
    "text": 1,
    "mini": 1,
    "artifacts": 1,
    "parts": 1,
    "logs": 1,
    "stage_metrics": 1,
    "progress": 1,
    "spread": 1,
    "options": 1,
    "storage": 1,
    "lease": 1,
    "local_ray": 1,
    "meter": 1,
    "coefficients": 1,
    "workload": 1,
}
RANKS |= {
    "corpus": 2,
    "plan": 2,
    "embeddings": 3,
    "linking": 4,
    "evaluation": 5,
    "training": 6,
    "cli": 7,
    "demo": 7,
    "pipeline": 7,
}
USES_RAY = {"spread.py", "trainer.py", "local_ray.py", "demo.py"}


def imports_of(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def rank_of(module: str) -> int:
    return RANKS[module]


def test_imports_point_down_the_data_flow() -> None:
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if parts == ("__init__",):
            continue
        for name in imports_of(path):
            if name.startswith("deeped_ray.") and (imported := name.split(".")[1]) in RANKS:
                assert rank_of(imported) <= rank_of(parts[0]), f"{path.name} imports {name}"


def test_only_the_rim_imports_ray() -> None:
    users = {
        path.name for path in PACKAGE.rglob("*.py") if any(name.split(".")[0] == "ray" for name in imports_of(path))
    }
    assert users <= USES_RAY


def test_every_module_says_what_it_is_for() -> None:
    for path in PACKAGE.rglob("*.py"):
        if path.read_text().strip():
            assert ast.get_docstring(ast.parse(path.read_text())), f"{path} has no docstring"
