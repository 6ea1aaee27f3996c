"""Imports point one way, down the data flow; Ray appears only where work is spread."""

import ast
import sys
from pathlib import Path

import deeped_ray

PACKAGE = Path(__file__).parent.parent / "deeped_ray"
# a module may import from its own room and from rooms of a lower rank
RANKS = {
    "types": 0,
    "extras": 1,
    "text": 1,
    "mini": 1,
    "predictions": 2,
    "storage": 2,
    "client": 3,
    "knowledge": 3,
    "running": 4,
    "corpus": 5,
    "embeddings": 6,
    "linking": 7,
    "evaluation": 8,
    "planning": 8,
    "batch": 8,
    "training": 9,
    "serving": 9,
    "refresh": 10,
    "stages": 11,
    "demo": 11,
    "compact": 12,
    "commands": 13,
    "cli": 14,
    "doors": 15,
}
USES_RAY = {
    "running/cluster.py",
    "running/reach.py",
    "running/tasks.py",
    "training/leftovers.py",
    "training/trainer.py",
    "serving/app.py",
    "serving/metrics.py",
}


DOORS = {
    "serving.doors.mcp": {"serving/doors/mcp/__init__.py", "serving/doors/mcp/tools.py", "commands/mcp.py"},
    "serving.doors.reconcile": {"serving/doors/reconcile/__init__.py"},
    "serving.doors.feedback": set[str](),
    "evaluation.elevant": {"commands/evaluate.py"},
    "doors": set[str](),
}
"""Modules whose names begin so, and who may import them: their own files, and commands when they run."""


def imports_of(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def test_imports_point_down_the_data_flow() -> None:
    for path in PACKAGE.rglob("*.py"):
        room = path.relative_to(PACKAGE).with_suffix("").parts[0]
        if room == "__init__":
            continue
        for name in imports_of(path):
            imported = name.split(".")[1] if name.startswith("deeped_ray.") else room
            if imported == room or imported in deeped_ray.__all__:
                continue
            assert RANKS[imported] < RANKS[room], f"{path.relative_to(PACKAGE)} imports {name}"


def test_a_door_can_be_taken_off() -> None:
    for path in PACKAGE.rglob("*.py"):
        file = path.relative_to(PACKAGE).as_posix()
        for door, may_import in DOORS.items():
            users = [name for name in imports_of(path) if name.startswith(f"deeped_ray.{door}")]
            assert not users or file in may_import, f"{file} imports {users}"
            at_once = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ImportFrom)]
            is_own = file.startswith(door.replace(".", "/"))
            assert is_own or not any(f"{node.module}.".startswith(f"deeped_ray.{door}.") for node in at_once), file


def test_a_door_imports_only_the_public_api() -> None:
    public = {"deeped_ray", *(f"deeped_ray.{name}" for name in deeped_ray.__all__)}
    for path in (PACKAGE / "doors").glob("*.py"):
        ours = {name for name in imports_of(path) if name.split(".")[0] == "deeped_ray"}
        assert ours <= public, path


def test_the_client_imports_nothing_but_records_and_httpx() -> None:
    for path in (PACKAGE / "client").glob("*.py"):
        packages = {name.split(".")[0] for name in imports_of(path)} - sys.stdlib_module_names
        assert packages <= {"deeped_ray", "httpx"}, path
        ours = {name.split(".")[1] for name in imports_of(path) if name.startswith("deeped_ray.")}
        assert ours <= {"__version__", "client", "predictions", "types"}, path


def test_only_the_rim_imports_ray() -> None:
    users = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if any(name.split(".")[0] == "ray" for name in imports_of(path))
    }
    assert users == USES_RAY


def test_every_module_says_what_it_is_for() -> None:
    for path in PACKAGE.rglob("*.py"):
        if path.read_text().strip():
            assert ast.get_docstring(ast.parse(path.read_text())), f"{path} has no docstring"
