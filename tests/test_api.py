"""What `import deeped_ray` offers, and what it costs."""

import subprocess
import sys

import pytest

import deeped_ray
from deeped_ray.knowledge.base import KnowledgeBase

HEAVY = {"faiss", "matplotlib", "numba", "numpy", "pandas", "pyarrow", "ray", "rdflib", "scipy", "torch"}


def imported_by(code: str) -> set[str]:
    """The heavy packages that a fresh Python has imported after some code."""
    shown = f"import sys\n{code}\nprint(*{HEAVY} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, check=True)
    return set(run.stdout.split())


def test_importing_the_package_imports_nothing_heavy() -> None:
    assert imported_by("import deeped_ray") == set()


def test_looking_up_a_name_imports_only_what_reads_files(mini_kb: KnowledgeBase) -> None:
    code = f"import deeped_ray; deeped_ray.open({str(mini_kb.root)!r}).mention('Montreal')"
    assert imported_by(code) == {"numpy", "pyarrow"}


def test_linking_imports_neither_ray_nor_torch(mini_kb: KnowledgeBase) -> None:
    code = f"import deeped_ray; deeped_ray.open({str(mini_kb.root)!r}).link('Montreal won.')"
    assert imported_by(code) == {"faiss", "numba", "numpy", "pyarrow", "scipy"}  # numba asks scipy for its version


def test_every_public_name_is_there() -> None:
    names = set(deeped_ray.__all__) - {"build"}  # test_stages calls it
    assert all(getattr(deeped_ray, name) is not None for name in names)
    assert set(dir(deeped_ray)) == set(deeped_ray.__all__)


def test_another_name_is_an_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'close'"):
        deeped_ray.close  # noqa: B018
