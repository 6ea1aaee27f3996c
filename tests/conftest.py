"""Fixtures: one real Ray for the session, and one knowledge base made from the mini encyclopedia by the real stages."""

import atexit
import contextlib
import fcntl
import functools
import itertools
import logging
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from deeped_ray.running.local_ray import write_token
from deeped_ray.storage.cache import cache_folder

# Where the environment forbids bytecode, each of our many processes would compile all that it imports: pytest's for 6 s.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Ray reads these when it is imported: the tests' Ray asks for a token of its own.
_TOKEN = Path(tempfile.mkdtemp(prefix="deeped-test-")) / "token"
write_token(_TOKEN)
atexit.register(shutil.rmtree, _TOKEN.parent, ignore_errors=True)
os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN_PATH=str(_TOKEN), RAY_USAGE_STATS_ENABLED="0")
# a test that needs a Ray names it: none is started unasked
os.environ.update(RAY_ENABLE_AUTO_CONNECT="0")
# a raylet whose agent does not start within 30 s ends itself, and all tests that share it fail
os.environ.update(RAY_agent_register_timeout_ms="300000")
# tests have caches of their own, but compile the same kernels
os.environ.setdefault("NUMBA_CACHE_DIR", str(cache_folder() / "kernels"))
# Ray's workers are nice to others by default: beside pytest's own processes, which wait for them, they would starve
os.environ.update(RAY_worker_niceness="0", RAY_prestart_worker_first_driver="0")
# every report of a fit waits for the next of these polls; the watcher is a process, for nodes that a cloud takes back
os.environ.update(RAY_TRAIN_HEALTH_CHECK_INTERVAL_S="0.05", RAY_TRAIN_ENABLE_PREEMPTION_WATCHER="0")

import ray
import ray.train
from ray.cluster_utils import Cluster

from deeped_ray.corpus import catalogue, titles
from deeped_ray.corpus.catalogue import Catalogue
from deeped_ray.corpus.config import CorpusConfig
from deeped_ray.corpus.ingest import build_corpus
from deeped_ray.corpus.resolving import Entities, Taken, resolve
from deeped_ray.corpus.shuffle import Shuffle
from deeped_ray.corpus.wikidata import WikidataConfig, add_wikidata
from deeped_ray.embeddings.config import ShardConfig
from deeped_ray.embeddings.index import IndexConfig, build_index
from deeped_ray.embeddings.trainer import embed_entities
from deeped_ray.embeddings.words import WordVectorConfig, build_words
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.knowledge.parts import Part
from deeped_ray.linking.batching import Batch, collate
from deeped_ray.linking.candidates import CandidateConfig
from deeped_ray.linking.config import ModelConfig
from deeped_ray.linking.encoding import EncodedDocument
from deeped_ray.linking.linker import Linker
from deeped_ray.running.tasks import Outcome
from deeped_ray.storage.location import Location
from deeped_ray.training import trainer
from deeped_ray.training.checkpoint import Run
from deeped_ray.training.config import TrainingConfig, WorkerConfig
from deeped_ray.training.job import FitJob
from deeped_ray.training.trainer import train_linker
from deeped_ray.types import Page
from tests.s3 import S3

WITHOUT_EXTRAS = {"include_dashboard": False, "no_monitor": True}
"""A node without dashboard and autoscaler, which nobody needs here."""
MINI_CORPUS = CorpusConfig(min_word_count=2, shard_mb=0.1, partitions=3)
MINI_WORDS = WordVectorConfig(dimension=100, ppmi_window=30)
MINI_SETTINGS = (
    *("corpus.min_word_count=2", "corpus.shard_mb=0.1", "corpus.partitions=3"),
    *("corpus.dimension=100", "corpus.ppmi_window=30"),
)
"""With which a job makes the parts of corpus_kb to the byte."""
MINI_IDS = {"Montreal": "Q340", "Toronto": "Q172", "Apple Inc.": "Q312", "Montreal Canadiens": "Q188143"}
"""Some have ids, most have none."""
MINI_SHARDS = ShardConfig(shard_words=10_000)
MINI_TRAINING = TrainingConfig(epochs=15, documents_per_step=2)

# There are more processes than cores: threads of one would wait, and burn their time, for one that has none.
torch.set_num_threads(1)
# The same examples every time, however slow the machine is: by default each has 200 ms by the clock.
hypothesis.settings.register_profile(
    "same", deadline=None, derandomize=True, database=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("same")


# -- several processes: `make test` runs pytest -n 4, since tests on a Ray wait as long as they work

TOGETHER = ("serving", "faults", "ray")
"""Tests that share a server, a cluster for faults, or a Ray: a process each. They take longest."""
LONG = ("planning/test_plan.py", "faults/test_training.py", "running/test_local_ray.py", "test_linear.py")
"""Files that take longest besides. They come first, in this order, for the first needs no knowledge base. Some could share a
Ray, but start so much of their own that it would save little.
"""


def _folder_of(nodeid: str) -> str:
    return nodeid.split("::")[0].split("/")[1]


def _process_of(nodeid: str) -> str:
    """Tests with the same answer run in one process: those that share a server or a cluster, else those of a file."""
    file, folder = nodeid.split("::")[0], _folder_of(nodeid)
    if file.endswith(LONG):
        return file
    if folder == "faults" or (folder == "serving" and _names(file, "served")):
        return folder
    return "ray" if _names(file, "local_ray_session") else file


@functools.cache
def _names(file: str, fixture: str) -> bool:
    """The process that spreads the tests knows nothing of them but their names."""
    return fixture in (Path(__file__).parent.parent / file).read_text()


def pytest_collection_modifyitems(session: pytest.Session, items: list[pytest.Item]) -> None:
    """The long ones begin first. What needs no knowledge base comes before what does: another process makes it."""
    waiting = {_process_of(item.nodeid) for item in items if "corpus_kb" in getattr(item, "fixturenames", ())}

    def place(item: pytest.Item) -> tuple[object, ...]:
        process, fixtures = _process_of(item.nodeid), getattr(item, "fixturenames", ())
        ends_what_is_shared = item.get_closest_marker("last") is not None
        if process == "ray":  # its first test makes the knowledge base for all
            return TOGETHER.index(process), not {"local_ray_session", "mini_kb"} <= set(fixtures)
        if process in TOGETHER:
            return TOGETHER.index(process), ends_what_is_shared
        return len(TOGETHER), [not process.endswith(file) for file in LONG], process in waiting

    items.sort(key=place)
    num_processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 1))
    session.stash[_IS_MADE_BY_ANOTHER] = num_processes >= len(TOGETHER) and any(
        place(item) == (TOGETHER.index("ray"), False) for item in items
    )


_IS_MADE_BY_ANOTHER = pytest.StashKey[bool]()
"""Whether one of several processes has a Ray from the beginning, and makes the knowledge bases on it."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Not xdist's own `loadgroup`: it marks tests in a way that pytest 9 no longer reads, and spreads them one by one."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFolder(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return _process_of(nodeid)

    config.option.loadscopereorder = False
    return ByFolder(config, log)


def made_once(request: pytest.FixtureRequest, name: str, make: Callable[[Path], object]) -> KnowledgeBase:
    """Made by one process, on its Ray; the others wait for it. If it fails, the next one begins anew."""
    folder: Path = request.getfixturevalue("tmp_path_factory").getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    lock = folder / f"{name}.lock"
    deadline = time.monotonic() + 300
    while request.session.stash[_IS_MADE_BY_ANOTHER] and not ray.is_initialized() and time.monotonic() < deadline:
        if lock.exists() and lock.read_text() == "made":
            break
        time.sleep(0.1)
    with open(lock, "a+") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        handle.seek(0)
        if handle.read() != "made":
            request.getfixturevalue("local_ray_session")
            shutil.rmtree(folder / name, ignore_errors=True)
            make(folder / name)
            handle.write("made")
    return KnowledgeBase(folder / name)


@pytest.fixture(scope="session")
def local_ray_session(s3_server: S3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A local Ray with token authentication, on ports of its own; its workers reach the tests' S3."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEEPED_CACHE", str(tmp_path_factory.mktemp("cache")))
        for name, value in s3_server.environment.items():
            patch.setenv(name, value)
        cluster = Cluster()
        cluster.add_node(
            num_cpus=2,
            object_store_memory=200 * 2**20,
            **WITHOUT_EXTRAS,
            _system_config={"metrics_report_interval_ms": 2500},  # else what is counted is exported after ten seconds
        )
        ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)
    yield
    for actor in ray.util.list_named_actors(all_namespaces=True):  # Ray Train leaves one, for which a raylet waits 30 s
        ray.kill(ray.get_actor(actor["name"], actor["namespace"]))
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture(scope="session")
def corpus_kb(request: pytest.FixtureRequest) -> KnowledgeBase:
    """The mini encyclopedia, ingested and embedded. What a test does with it on a Ray needs `local_ray_session` too."""

    def make(path: Path) -> None:
        kb = KnowledgeBase(path, create=True)
        build_corpus(kb, MINI_CORPUS)
        build_words(kb, MINI_WORDS)
        embed_entities(kb, sharding=MINI_SHARDS)
        build_index(kb, IndexConfig())

    return made_once(request, "corpus", make)


@pytest.fixture(scope="session")
def mini_kb(
    corpus_kb: KnowledgeBase, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> KnowledgeBase:
    """The same with a trained linker, what `make demo` makes, and a few Wikidata ids."""

    def make(path: Path) -> None:
        kb = copy_of(corpus_kb, path)
        with fitting_here(tmp_path_factory.mktemp("fit") / "checkpoint"):
            train_linker(kb, MINI_TRAINING, ModelConfig(forms="diagonal"), CandidateConfig(), WorkerConfig())
        table = tmp_path_factory.mktemp("ids") / "ids.tsv"
        table.write_text(
            "".join(f"{title}\t{number}\n" for title, number in [("title", "wikidata"), *MINI_IDS.items()])
        )
        add_wikidata(kb, WikidataConfig(wikidata=str(table)))

    return made_once(request, "mini", make)


@contextlib.contextmanager
def fitting_here(folder: Path) -> Iterator[None]:
    """Models are fitted in this process, as a worker of Ray Train does it, whose start takes longer than these fits.

    Ray Train itself is tested in faults/test_training.py, faults/test_storage.py and training/test_trainer.py.
    """

    def fit(job: FitJob, *_: object) -> ray.train.Checkpoint:
        run = Run()
        assert list(job.validations(run))
        folder.mkdir()
        run.save(folder)
        return ray.train.Checkpoint(folder)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "_fit_on_ray", fit)
        yield


def copy_of(kb: KnowledgeBase, folder: Path) -> KnowledgeBase:
    return KnowledgeBase(shutil.copytree(kb.root, folder))


@pytest.fixture(scope="session")
def linker(mini_kb: KnowledgeBase) -> Linker:
    return Linker.open(mini_kb)


def random_batch(
    *,
    B: int = 2,
    n: int = 3,
    S: int = 4,
    K: int = 6,
    d: int = 5,
    F: int = 0,
    least: int = 1,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
) -> Batch:
    """Documents of random vectors in which every mention has at least `least` candidates and words."""
    rng = np.random.default_rng(seed)
    num_entities, num_words = 7, 9
    num_candidates, num_context = rng.integers(least, S + 1, (B, n)), rng.integers(least, K + 1, (B, n))
    documents = [
        EncodedDocument(
            words=np.arange(num_words) + b * num_words,
            entities=np.arange(num_entities) + b * num_entities,
            context=rng.permuted(np.tile(np.arange(num_words), (n, 1)), axis=-1)[:, :K].copy(),
            num_words=num_context[b],
            candidates=rng.integers(0, num_entities, (n, S)),
            num_candidates=num_candidates[b],
            prior=rng.uniform(0.01, 1, (n, S)).astype(np.float32),
            evidence=rng.standard_normal((n, S, F), dtype=np.float32),
            sources=np.zeros((n, S), np.int8),
            gold=np.where((num_candidates[b] > 0) & (rng.random(n) < 0.8), 0, -1),
        )
        for b in range(B)
    ]
    words, entities = (rng.standard_normal((B * rows, d), dtype=np.float32) for rows in (num_words, num_entities))
    return collate(documents, words, entities).to(dtype)


def write_dump(path: Path, pages: str, *, header: str = "<siteinfo><sitename>Test</sitename></siteinfo>") -> Path:
    path.write_text(
        f'<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11">{header}{pages}</mediawiki>',
        encoding="utf-8",
    )
    return path


def page_xml(title: str, text: str, *, page_id: int = 1, ns: int = 0, redirect: str | None = None) -> str:
    to = f'<redirect title="{redirect}" />' if redirect else ""
    return f"<page><title>{title}</title><ns>{ns}</ns><id>{page_id}</id>{to}<revision><id>1</id><text>{text}</text></revision></page>"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real data beside the checkout; tests that use it are skipped where it is absent."""
    path = Path(__file__).parent.parent.parent / "shared" / "data"
    if not path.is_dir():
        pytest.skip(f"no data in {path}")
    return path


def ingest_pages(folder: Path, pages: str, **settings: float) -> KnowledgeBase:
    """A knowledge base of a few pages: every word counts, and every link."""
    folder.mkdir(exist_ok=True)
    kb, dump = KnowledgeBase(folder / "kb", create=True), write_dump(folder / "dump.xml", pages)
    numbers = {"min_word_count": 1, "min_links_without_page": 0, "partitions": 2, **settings}
    build_corpus(kb, CorpusConfig(dump=(str(dump),), **numbers))  # type: ignore[arg-type]
    return kb


def run_here(stage: str, function: Callable[..., Any], items: Sequence[Any], *shared: Any, **_: Any) -> Outcome[Any]:
    """As `tasks.run` does, in this process."""
    return Outcome([function(item, *shared) for item in items], 0, 0.0)


def resolve_pages(
    folder: Path, pages: Sequence[Page], *, num_files: int = 1, max_bytes: int = 2**27, **options: Any
) -> contextlib.AbstractContextManager[Entities]:
    """The entities of some pages, whose titles are merged into so many files."""
    merged = titles.reduce(titles.rows(pages))
    work = folder / "work"
    work.mkdir(exist_ok=True)
    borders = [place * merged.num_rows // num_files for place in range(num_files + 1)]
    files = [Location(work / f"titles-{number:04d}.parquet") for number in range(num_files)]
    for file, (first, end) in zip(files, itertools.pairwise(borders), strict=True):
        pq.write_table(merged.slice(first, end - first), file.path)
    options = {"min_links_without_page": 0, "taken": Taken.of(np.zeros(0, np.uint64)), **options}
    return resolve(files, run_here, Shuffle(Location(work), max_bytes), folder, **options)


def make_catalogue(folder: Path, pages: list[Page], *, min_links_without_page: int = 0) -> Catalogue:
    """A catalogue of a few pages, by the same steps as ingest."""
    with resolve_pages(folder, pages, min_links_without_page=min_links_without_page) as entities:
        zeros = np.zeros(len(entities), dtype=np.int64)
        catalogue.write(folder, entities, num_links=zeros, num_words=zeros, is_person=entities.is_person)
    return Catalogue(Part("corpus", "0", Location(folder), {}))


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3]:
    with S3().running() as server:
        yield server


@pytest.fixture
def s3(s3_server: S3, monkeypatch: pytest.MonkeyPatch) -> S3:
    """Reached by the environment, as on a cluster."""
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    s3_server.make_bucket()
    return s3_server
