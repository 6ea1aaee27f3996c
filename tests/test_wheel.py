"""The wheel alone, far from any checkout, gives all that a user runs."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import ray

from deeped_ray import stages
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.running.config import read_config

pytestmark = pytest.mark.usefixtures("local_ray_session")
ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the wheel installs, and nothing else of ours."""
    work = tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, work)
    shutil.copytree(ROOT / "deeped_ray", work / "deeped_ray", ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", "dist", "."]
    subprocess.run(command, cwd=work, check=True, capture_output=True)
    (wheel,) = (work / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as content:
        content.extractall(work / "site")
    return work / "site"


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
    assert "Stanley Cup" in deeped(site, "link", "--kb", str(mini_kb.root), "Toronto won the Stanley Cup.")


def test_the_wheel_has_the_server_and_its_page(site: Path) -> None:
    code = "import deeped_ray.serving.app as app; import deeped_ray.serving.api as api; print(app.build, api.PAGE)"
    environment = {**os.environ, "PYTHONPATH": str(site)}
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=site, env=environment, capture_output=True, text=True, check=True
    )
    page = Path(run.stdout.split()[-1])
    assert page.is_relative_to(site)
    assert {"index.html", "page.css", "page.js"} <= {path.name for path in page.iterdir()}
