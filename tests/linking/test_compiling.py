"""Of several processes one compiles a function, and the others read what it has kept, wherever the same source lies."""

import os
import subprocess
import sys
from pathlib import Path

MODULE = """
import os
from deeped_ray.linking.compiling import compiled

@compiled
def twice(x):
    return 2 * x

@compiled
def four_times(x):
    return twice(twice(x))

if __name__ == "__main__":
    assert twice(1.5) == 3
    if "ONLY_TWICE" not in os.environ:
        assert four_times(1.5) == 6
    print(sum(sum(each.stats.cache_misses.values()) for each in (twice, four_times)))
"""


def start(folder: Path, cache: Path, module: str = MODULE, **environment: str) -> "subprocess.Popen[str]":
    """Prints how many functions it had to compile."""
    folder.mkdir(exist_ok=True)
    (folder / "module.py").write_text(module)
    command = [sys.executable, "-c", "import runpy; runpy.run_path('module.py', run_name='__main__')"]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache), **environment}
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)


def test_processes_that_start_at_once_compile_once_wherever_their_copy_lies(tmp_path: Path) -> None:
    processes = [start(tmp_path / name, tmp_path / "cache") for name in ("checkout", "copy")]
    compiled = [int(process.communicate()[0]) for process in processes]
    assert sorted(compiled) in ([0, 2], [1, 1])


def test_a_changed_function_is_compiled_again_with_those_that_call_it(tmp_path: Path) -> None:
    changed = MODULE.replace("2 * x", "x + x + 0.0 * x")
    compiled = [
        int(start(tmp_path / "copy", tmp_path / "cache", module).communicate()[0]) for module in (MODULE, changed)
    ]
    assert compiled == [2, 2]


def test_a_function_that_was_kept_is_compiled_into_one_that_was_not(tmp_path: Path) -> None:
    places = tmp_path / "copy", tmp_path / "cache"
    first, second = start(*places, ONLY_TWICE="yes").communicate()[0], start(*places).communicate()[0]
    assert (int(first), int(second)) == (1, 1)
