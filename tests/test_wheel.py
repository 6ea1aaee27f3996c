"""Wheel and sdist, far from any checkout: what they hold, what a user runs, and what each extra is enough for."""

import functools
import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
import ray
from packaging.requirements import Requirement

from deeped_ray import stages
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.running.config import read_config

pytestmark = pytest.mark.usefixtures("local_ray_session")
ROOT = Path(__file__).parent.parent
TEXT = "Toronto won the Stanley Cup."


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel that was built from it."""
    work = tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, work)
    shutil.copytree(ROOT / "deeped_ray", work / "deeped_ray", ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", "dist", "."]
    subprocess.run(command, cwd=work, check=True, capture_output=True)
    return work / "dist"


@pytest.fixture(scope="module")
def site(dist: Path) -> Path:
    """A folder with what the wheel installs, and nothing else of ours."""
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as content:
        content.extractall(dist.parent / "site")
    return dist.parent / "site"


def deeped(site: Path, *arguments: str, address: str = "") -> str:
    """The command, as the wheel's entry point runs it."""
    code = "import sys; from deeped_ray.cli import main; sys.exit(main())"
    environment = {**os.environ, "PYTHONPATH": str(site), "RAY_ADDRESS": address}
    run = subprocess.run(
        [sys.executable, "-P", "-c", code, *arguments]
        if sys.version_info >= (3, 11)
        else [sys.executable, "-c", code, *arguments],
        cwd=site.parent / "dist",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    return run.stdout


def test_the_wheel_builds_and_links(site: Path, mini_kb: KnowledgeBase, tmp_path: Path) -> None:
    address = ray.get_runtime_context().gcs_address
    built = deeped(site, "build", "--kb", str(tmp_path / "kb"), "--until", "build_corpus", address=address)
    assert '"entities": 226' in built
    _, configs = stages.resolve(read_config(tmp_path / "kb" / "manifest.json"))
    assert configs["corpus"].words.dimension == 100  # as suits the mini encyclopedia
    assert "Stanley Cup" in deeped(site, "link", "--kb", str(mini_kb.root), TEXT)


def test_the_wheel_has_the_server_and_its_page(site: Path) -> None:
    code = "import deeped_ray.serving.app as app; import deeped_ray.serving.api as api; print(app.build, api.PAGE)"
    environment = {**os.environ, "PYTHONPATH": str(site)}
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=site, env=environment, capture_output=True, text=True, check=True
    )
    page = Path(run.stdout.split()[-1])
    assert page.is_relative_to(site)
    assert {"index.html", "page.css", "page.js"} <= {path.name for path in page.iterdir()}


def test_a_registry_would_take_them(dist: Path) -> None:
    files = [*map(str, dist.iterdir())]
    run = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", *files], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stdout.count("PASSED")) == (0, 2), run.stdout


def test_the_sdist_has_the_files_of_the_package(dist: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as content:
        names = {name.partition("/")[2] for name in content.getnames()}
    files = [path for path in (ROOT / "deeped_ray").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert {path.relative_to(ROOT).as_posix() for path in files} <= names


# -- extras: what pip would install of each, linked into an empty environment from this one


def requirements(extra: str, of: Distribution) -> set[str]:
    """Names of all packages that an extra brings, here and now."""
    found: set[str] = set()
    waiting = [(of, extra)]
    seen = set()
    while waiting:
        each, chosen = waiting.pop()
        for line in each.requires or ():
            needed = Requirement(line)
            if needed.marker and not needed.marker.evaluate({"extra": chosen}):
                continue
            for more in (needed.extras or {""}) | {""}:
                if (needed.name, more) not in seen:
                    seen.add((needed.name, more))
                    waiting.append((of if needed.name == "deeped-ray" else distribution(needed.name), more))
            found |= {needed.name} - {"deeped-ray"}
    return found


@pytest.fixture(scope="module")
def metadata(site: Path) -> Distribution:
    (info,) = site.glob("*.dist-info")
    return Distribution.at(info)


def installed(folder: Path, site: Path, metadata: Distribution, extra: str) -> Path:
    """The Python of an environment that has deeped-ray with an extra, and nothing else."""
    venv.create(folder, with_pip=False)
    (packages,) = folder.glob("lib/python*/site-packages")
    tops = set(site.iterdir())
    for name in requirements(extra, metadata):
        files = distribution(name).files or []
        tops |= {Path(str(distribution(name).locate_file(file.parts[0]))) for file in files if file.parts[0] != ".."}
    for top in tops:
        if top.name != "__pycache__":
            (packages / top.name).symlink_to(top)
    return folder / "bin" / "python"


def run(python: Path, code: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | more
    command = [str(python), "-B", "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_the_extra_link_is_enough_to_link(
    site: Path, metadata: Distribution, mini_kb: KnowledgeBase, tmp_path: Path
) -> None:
    python = installed(tmp_path / "link", site, metadata, "link")
    code = f"import deeped_ray; print(deeped_ray.open({str(mini_kb.root)!r}).link({TEXT!r}, model='prior'))"
    linked = run(python, code)
    assert "title='Stanley Cup'" in linked.stdout, linked.stderr[-2000:]
    assert run(python, "import ray").returncode == run(python, "import torch").returncode == 1


CLIENT = "import deeped_ray; print(deeped_ray.Client('http://127.0.0.1:1', token='x'), deeped_ray.AsyncClient)"
IN_SPACY = "nlp = __import__('spacy').blank('en'); print(nlp.add_pipe('deeped', config={'url': 'http://127.0.0.1:1'}))"
TABLE = "import deeped_ray; p = deeped_ray.Predictions(); print(p.to_arrow().num_rows, len(p.to_pandas()))"


@pytest.mark.parametrize(
    ("extra", "code"),
    [("client", CLIENT), ("spacy", IN_SPACY), ("notebook", TABLE)],
    ids=["client", "spacy", "notebook"],
)
def test_an_extra_is_enough_for_its_door(
    site: Path, metadata: Distribution, tmp_path: Path, extra: str, code: str
) -> None:
    python = installed(tmp_path / extra, site, metadata, extra)
    assert run(python, code).returncode == 0, run(python, code).stderr[-2000:]
    assert run(python, "import torch").returncode == run(python, "import faiss").returncode == 1


COMMAND = "import sys; from deeped_ray.cli import main; sys.exit(main(sys.argv[1:] or {!r}))"


@pytest.mark.parametrize(
    ("code", "extra"),
    [
        ("import deeped_ray; deeped_ray.Client", "client"),
        ("import deeped_ray; deeped_ray.open('kb')", "link"),
        ("import deeped_ray; deeped_ray.Predictions().to_pandas()", "notebook"),
        ("import deeped_ray; deeped_ray.Predictions().to_arrow()", "notebook"),
        (COMMAND.format(["link", "--kb", "kb", "text"]), "link"),
    ],
)
def test_what_is_missing_is_named_with_its_extra(
    site: Path, metadata: Distribution, tmp_path: Path, code: str, extra: str
) -> None:
    python = installed(tmp_path / "bare", site, metadata, "")
    last = run(python, code).stderr.strip().splitlines()[-1]
    assert f"which is not installed. Run pip install 'deeped-ray[{extra}]'." in last


def test_the_bare_package_has_a_command_and_no_dependencies(site: Path, metadata: Distribution, tmp_path: Path) -> None:
    assert requirements("", metadata) == set()
    python = installed(tmp_path / "bare", site, metadata, "")
    assert "--version" in run(python, COMMAND.format(["--help"])).stdout


def test_all_has_every_extra_of_users(metadata: Distribution) -> None:
    every = set(metadata.metadata.get_all("Provides-Extra") or ()) - {"all", "bench", "dev"}
    wanted = functools.reduce(set.union, (requirements(extra, metadata) for extra in every))
    assert requirements("all", metadata) == wanted


SMOKE = """
import ast, pathlib, sys
sys.path.insert(0, {folder!r})
{client}
import deeped_ray.cli
for path in pathlib.Path(deeped_ray.__file__).parent.rglob("*.py"):
    ast.parse(path.read_text(), path)
print(sys.version)
"""


@pytest.mark.parametrize("version", ["3.10", "3.11", "3.12", "3.13"])
def test_a_client_runs_on_every_python(site: Path, metadata: Distribution, tmp_path: Path, version: str) -> None:
    """And reads all our files, on the versions that this machine has. A client needs Python alone, so ours does for all."""
    python = shutil.which(f"python{version}")
    chosen = {"PYENV_VERSION": version}  # without it, the pythons of pyenv are names that nothing answers to
    if python is None or run(Path(python), "", **chosen).returncode:
        pytest.skip(f"no python{version} here")
    packages = installed(tmp_path / "ours", site, metadata, "client").parent.parent
    (folder,) = packages.glob("lib/python*/site-packages")
    done = run(Path(python), SMOKE.format(folder=str(folder), client=CLIENT), **chosen)
    assert done.stdout.startswith("Client('http://127.0.0.1:1')"), done.stderr[-2000:]
    assert f"\n{version}." in done.stdout
