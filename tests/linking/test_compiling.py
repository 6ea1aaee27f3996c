"""Of several processes that start at once, one compiles a function, and the others read what it has kept."""

import os
import subprocess
import sys
from pathlib import Path

MODULE = """
from deeped_ray.linking.compiling import compiled

@compiled
def twice(x):
    return 2 * x

@compiled
def four_times(x):
    return twice(twice(x))

if __name__ == "__main__":
    assert four_times(1.5) == 6
    print(sum(sum(each.stats.cache_misses.values()) for each in (twice, four_times)))
"""


def test_processes_that_start_at_once_compile_once(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(MODULE)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-c", "import runpy; runpy.run_path('module.py', run_name='__main__')"]
    processes = [
        subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    compiled = [int(process.communicate()[0]) for process in processes]
    assert sorted(compiled) in ([0, 2], [1, 1])
