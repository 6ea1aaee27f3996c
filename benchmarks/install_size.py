"""How much each extra installs, as a ratio to `all`.

Counts the files of all packages that an extra brings, as they are installed here, without byte code. Torch is whatever build
is here: with CUDA it takes gigabytes more. tests/test_wheel.py tests that each extra is enough for what it is for.

python benchmarks/install_size.py
"""

from importlib.metadata import distribution
from pathlib import Path

import tomllib
from _harness import parser_of, write_json
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from deeped_ray.running.console import table

ROOT = Path(__file__).parent.parent
OURS = "deeped-ray"
EXTRAS = ("client", "spacy", "notebook", "link", "serve", "train", "all")


def packages(extra: str) -> set[str]:
    """All that an extra brings, here and now."""
    ours = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    seen, waiting = set(), [(OURS, extra)]
    while waiting:
        name, chosen = waiting.pop()
        seen.add((name, chosen))
        for line in ours[chosen] if name == OURS else distribution(name).requires or []:
            needed = Requirement(line)
            if not needed.marker or needed.marker.evaluate({"extra": chosen if name != OURS else ""}):
                plain = set() if needed.name == OURS else {""}
                found = {(canonicalize_name(needed.name), each) for each in needed.extras | plain}
                waiting += found - seen
    return {name for name, _ in seen} - {OURS}


def megabytes(name: str) -> float:
    files = [Path(str(file.locate())) for file in distribution(name).files or [] if file.suffix != ".pyc"]
    return sum(file.stat().st_size for file in files if file.exists()) / 1e6


def main() -> None:
    args = parser_of(__doc__).parse_args()
    own = [
        file
        for file in (ROOT / "deeped_ray").rglob("*")
        if file.is_file() and file.suffix not in (".pyc", ".nbi", ".nbc")
    ]
    base = sum(file.stat().st_size for file in own) / 1e6
    found = {extra: packages(extra) for extra in EXTRAS}
    sizes = {extra: base + sum(map(megabytes, names)) for extra, names in found.items()}
    rows = [(OURS, base, base / sizes["all"], 0)]
    rows += [(f"{OURS}[{extra}]", size, size / sizes["all"], len(found[extra])) for extra, size in sizes.items()]
    print(table(["install", "MB", "ratio", "packages"], rows))
    write_json(args, claim="size of an install", baseline_name="all", megabytes=sizes)


if __name__ == "__main__":
    main()
