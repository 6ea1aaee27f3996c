"""The lock files have the versions of constraints.txt, each with its hashes, and say nothing of where to get them."""

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
OF_TORCH = ("torch", "triton", "nvidia-", "cuda-")
# as packaging's markers name them: Python, system, machine
MACHINES = [
    {"python_version": version, "python_full_version": f"{version}.5", "platform_system": system, "sys_platform": name}
    | {"platform_machine": machine, "implementation_name": "cpython", "platform_python_implementation": "CPython"}
    for version in ("3.10", "3.11", "3.12", "3.13")
    for system, name, machine in (
        ("Linux", "linux", "x86_64"),
        ("Linux", "linux", "aarch64"),
        ("Darwin", "darwin", "arm64"),
    )
]


def read(*names: str) -> list[tuple[Requirement, list[str]]]:
    """Requirements, each with its hashes."""
    entries = []
    for name in names:
        content = re.sub(r"^#.*\n", "", (ROOT / name).read_text(), flags=re.MULTILINE)
        for entry in re.split(r"\n(?=\S)", content.strip()):
            first, *hashes = (part.strip() for part in re.split(r"\\\n", entry))
            entries.append((Requirement(first), hashes))
    return entries


def versions(*names: str, machine: dict[str, str]) -> set[tuple[str, str]]:
    return {
        (canonicalize_name(requirement.name), str(requirement.specifier))
        for requirement, _ in read(*names)
        if requirement.marker is None or requirement.marker.evaluate(machine)
    }


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: f"{m['python_version']}-{m['platform_machine']}")
def test_locks_and_constraints_agree_on_every_machine(machine: dict[str, str]) -> None:
    constraints = versions("constraints.txt", machine=machine)
    locked = versions("requirements.lock", "requirements-dev.lock", "requirements-torch.lock", machine=machine)
    assert constraints - locked == set()
    assert {name for name, _ in locked - constraints if not name.startswith(OF_TORCH)} == set()
    assert len(locked) == len({name for name, _ in locked})


@pytest.mark.parametrize(
    "name", ["requirements.lock", "requirements-dev.lock", "requirements-torch.lock", "requirements-audit.lock"]
)
def test_every_entry_is_one_version_with_hashes(name: str) -> None:
    for requirement, hashes in read(name):
        assert re.fullmatch(r"==[\w.!+]+", str(requirement.specifier)), requirement
        assert hashes, requirement
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", each) for each in hashes), requirement
        assert requirement.url is None


@pytest.mark.parametrize(
    "name", ["requirements.lock", "requirements-dev.lock", "requirements-torch.lock", "requirements-audit.lock"]
)
def test_locks_name_no_place(name: str) -> None:
    assert not re.search(r"://|--(extra-)?index|--find-links|--trusted|file:", (ROOT / name).read_text())


def test_torch_stands_apart() -> None:
    apart = {canonicalize_name(requirement.name) for requirement, _ in read("requirements-torch.lock")}
    others = {canonicalize_name(r.name) for r, _ in read("requirements.lock", "requirements-dev.lock")}
    assert "torch" in apart
    assert all(name.startswith(OF_TORCH) for name in apart)
    assert not any(name.startswith(OF_TORCH) for name in others)


def test_no_two_builds_of_a_version_have_different_hashes() -> None:
    hashes: dict[str, list[str]] = {}
    for requirement, found in read("requirements.lock", "requirements-dev.lock", "requirements-audit.lock"):
        assert hashes.setdefault(f"{requirement.name}{requirement.specifier}", found) == found
