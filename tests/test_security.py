"""Nothing that is loaded runs code, and no secret is told."""

import ast
import io
import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray.data  # as Ray Train imports it: it registers a type of Arrow columns that are pickles
import torch
from ray._private.runtime_env.packaging import get_excludes_from_ignore_files
from safetensors import SafetensorError
from safetensors.torch import load_file

from deeped_ray.corpus.config import CorpusConfig
from deeped_ray.corpus.ingest import build_corpus
from deeped_ray.corpus.prior_sources import PriorSource, cut_source
from deeped_ray.embeddings.index import EntityIndex
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.knowledge.parts import ArtifactError
from deeped_ray.knowledge.strings import read_mapped
from deeped_ray.linking.linker import Linker
from deeped_ray.running.resume import ResumeConfig
from deeped_ray.storage.arrow import plain
from deeped_ray.storage.location import Location
from deeped_ray.types import DeepEdError, redacted
from tests.conftest import copy_of, page_xml, write_dump

ROOT = Path(__file__).parent.parent
SOURCES = [path for folder in ("deeped_ray", "jobs", "serve") for path in sorted((ROOT / folder).rglob("*.py"))]
PICKLERS = {"pickle", "_pickle", "cloudpickle", "joblib", "dill", "marshal", "shelve", "pandas", "jsonpickle"}
FORBIDDEN = {"eval", "exec", "compile", "__import__", "os.system", "os.popen", "pty.spawn", "torch.load", "yaml.load"}
FORBIDDEN |= {"yaml.unsafe_load", "yaml.full_load", "yaml.load_all", "np.fromregex", "torch.hub.load", "torch.jit.load"}
TABLE_READERS = {"pq.read_table", "pq.ParquetFile", "pq.ParquetDataset", "pa.ipc.open_file", "pa.ipc.open_stream"}
TABLE_READERS |= {"pa.ipc.read_tensor", "pa.ipc.read_record_batch", "pyarrow.dataset"}
SECRET = "hunter2-hunter2-hunter2"


# -- what the source says


def calls() -> Iterator[tuple[Path, ast.Call, str, ast.AST | None]]:
    """Every call, by its dotted name, with the call whose argument it is."""
    for path in SOURCES:
        tree = ast.parse(path.read_text())
        outer = {argument: node for node in ast.walk(tree) if isinstance(node, ast.Call) for argument in node.args}
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                yield path, node, ast.unparse(node.func), outer.get(node)


def keyword(call: ast.Call, name: str) -> str | None:
    return next((ast.unparse(given.value) for given in call.keywords if given.arg == name), None)


def test_the_walk_sees_what_it_is_to_see() -> None:
    names = {name for _, _, name, _ in calls()}
    assert len(SOURCES) > 60
    assert {"np.load", "pq.read_table", "yaml.safe_load", "load_file", "faiss.read_index"} <= names


def test_nothing_imports_a_pickler() -> None:
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not {name.split(".")[-1] for name in names} & PICKLERS, path
            assert not {name.split(".")[0] for name in names} & PICKLERS, path


def test_nothing_runs_what_it_reads() -> None:
    for path, call, name, _ in calls():
        assert name not in FORBIDDEN, f"{path}: {name}"
        assert keyword(call, "allow_pickle") in (None, "False"), f"{path}: {ast.unparse(call)}"
        assert keyword(call, "shell") in (None, "False"), f"{path}: {ast.unparse(call)}"
        assert not name.endswith(("extractall", ".extract")), f"{path}: {ast.unparse(call)}"
        if name in ("np.load", "numpy.load"):
            assert len(call.args) == 1, f"{path}: allow_pickle is given by place in {ast.unparse(call)}"


def test_tables_are_opened_in_one_place_which_asks_for_plain_columns() -> None:
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and ast.unparse(node) in TABLE_READERS:
                assert path.name == "arrow.py", f"{path}: {ast.unparse(node)}"
    for path, call, name, outer in calls():
        if name in TABLE_READERS:
            assert isinstance(outer, ast.Call), f"{path}: {ast.unparse(call)}"
            assert ast.unparse(outer.func) == "plain", f"{path}: {ast.unparse(call)}"


def test_faiss_and_xml_are_read_in_one_place_each() -> None:
    readers = {name: {p.name for p, _, n, _ in calls() if n == name} for name in ("faiss.read_index", "tarfile.open")}
    assert readers == {"faiss.read_index": {"index.py", "mapped_lists.py"}, "tarfile.open": {"wned.py", "archive.py"}}
    parsers = {path.name for path in SOURCES if "xml.etree" in path.read_text()}
    assert parsers == {"wikidump.py", "wned.py"}


# -- what loading does


class Bomb:
    """Makes a folder when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.mark),)


def write_bombs(path: Path, mark: Path, *, column: str = "mention") -> pa.Table:
    """A table of a column that Ray Data would unpickle."""
    metadata = {b"ARROW:extension:name": b"ray.data.arrow_pickled_object", b"ARROW:extension:metadata": b""}
    bombs = pa.array([pickle.dumps(Bomb(mark))], pa.large_binary())
    fields = [pa.field(column, pa.large_binary(), metadata=metadata), ("title", pa.string()), ("count", pa.int64())]
    table = pa.table([bombs, pa.array(["x"]), pa.array([1])], schema=pa.schema(fields))
    pq.write_table(table, path)
    return table


def test_the_bomb_would_go_off(tmp_path: Path) -> None:
    write_bombs(tmp_path / "bombs.parquet", tmp_path / "mark")
    pq.read_table(tmp_path / "bombs.parquet").to_pylist()
    assert (tmp_path / "mark").exists()


def test_a_table_of_pickles_is_refused_unopened(tmp_path: Path) -> None:
    bombs, mark = tmp_path / "bombs.parquet", tmp_path / "mark"
    table = write_bombs(bombs, mark)
    with pa.OSFile(str(tmp_path / "bombs.arrow"), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    message = r"Column 'mention' has the type extension<ray\.data\.arrow_pickled_object"
    with pytest.raises(DeepEdError, match=message):
        plain(pq.read_table(bombs))
    with pytest.raises(DeepEdError, match=message):
        plain(pq.ParquetFile(bombs))
    with pytest.raises(DeepEdError, match=message):
        read_mapped(tmp_path / "bombs.arrow")
    with pytest.raises(DeepEdError, match=rf"Cannot read .*bombs\.parquet: {message}"):
        list(cut_source(PriorSource("counts", Location(bombs)), shard_bytes=2**20))
    assert not mark.exists()


def test_pickles_are_found_within_lists_structs_and_dictionaries() -> None:
    pickled = ray.data._internal.object_extensions.arrow.ArrowPythonObjectType()
    for kind in (pa.list_(pickled), pa.struct([("a", pa.list_(pickled))]), pa.map_(pa.string(), pickled)):
        with pytest.raises(DeepEdError, match="Column 'x'"):
            plain(SimpleNamespace(schema=pa.schema([("x", kind)])))
    kinds = [pa.list_(pa.struct([("a", pa.int8())])), pa.dictionary(pa.int8(), pa.string()), pa.large_string()]
    plain(SimpleNamespace(schema=pa.schema([(str(kind), kind) for kind in kinds])))


def test_an_array_of_objects_is_refused(tmp_path: Path) -> None:
    kb = KnowledgeBase(tmp_path / "kb", create=True)
    with kb.write("pages", config={}, parents=()) as folder:
        np.save(folder / "numbers.npy", np.array([Bomb(tmp_path / "mark")], dtype=object), allow_pickle=True)
    with pytest.raises(ArtifactError, match=r"numbers\.npy is no array that is loaded: .*objects"):
        kb.open("pages").array("numbers")
    assert not (tmp_path / "mark").exists()


def flip_last_byte(path: Path) -> bytes:
    """The file as it was."""
    sound = path.read_bytes()
    path.write_bytes(sound[:-1] + bytes([sound[-1] ^ 1]))
    return sound


@pytest.mark.parametrize("hashed_on_open", [0, 2**40])
def test_faiss_never_sees_a_file_that_was_tampered_with(
    corpus_kb: KnowledgeBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hashed_on_open: int
) -> None:
    seen: list[object] = []
    monkeypatch.setattr("deeped_ray.embeddings.index._read", lambda *arguments: seen.append(arguments))
    monkeypatch.setattr("deeped_ray.knowledge.parts.HASH_ON_OPEN_BYTES", hashed_on_open)
    kb = copy_of(corpus_kb, tmp_path / "kb")
    path = kb.open("index").path / "entities.faiss"
    sound = flip_last_byte(path)
    with pytest.raises(ArtifactError, match="does not match its checksum"):
        EntityIndex.open(kb)
    assert seen == []
    path.write_bytes(sound)
    EntityIndex.open(kb)
    assert len(seen) == 1


@pytest.mark.parametrize("hashed_on_open", [0, 2**40])
def test_weights_that_were_tampered_with_are_refused(
    mini_kb: KnowledgeBase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hashed_on_open: int
) -> None:
    monkeypatch.setattr("deeped_ray.knowledge.parts.HASH_ON_OPEN_BYTES", hashed_on_open)
    kb = copy_of(mini_kb, tmp_path / "kb")
    flip_last_byte(kb.open("linker").path / "global.safetensors")
    with pytest.raises(ArtifactError, match="does not match its checksum"):
        Linker.open(kb)


def test_a_pickle_that_is_called_safetensors_is_none(tmp_path: Path) -> None:
    torch.save({"x": Bomb(tmp_path / "mark")}, tmp_path / "x.safetensors")
    with pytest.raises(SafetensorError):
        load_file(tmp_path / "x.safetensors")
    assert not (tmp_path / "mark").exists()


def is_pickle(content: bytes) -> bool:
    """Whether something can be unpickled from it, or from a member of it, as torch.save packs its own."""
    if content[:4] == b"PK\x03\x04":
        return True
    try:
        _Inert(io.BytesIO(content)).load()
    except Exception:
        return False
    return True


class _Inert(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        return lambda *_: None


def test_pickles_are_told_from_other_files() -> None:
    packed = io.BytesIO()
    torch.save({"x": torch.zeros(2)}, packed)
    assert is_pickle(packed.getvalue())
    assert all(is_pickle(pickle.dumps({"x": Bomb(Path("x"))}, protocol)) for protocol in range(5))
    assert not is_pickle(json.dumps({"x": 1}).encode())


# -- secrets


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (f"Cannot read s3://key:{SECRET}@bucket/kb.", "Cannot read s3://***@bucket/kb."),
        (
            f"No knowledge base at /here/s3:/key:a/b@{SECRET}@bucket/kb.",
            "No knowledge base at /here/s3:/***@bucket/kb.",
        ),
        (f"https://h/x?a=1&X-Amz-Signature={SECRET}&b=2", "https://h/x?a=1&X-Amz-Signature=***&b=2"),
        (f"gs://b?access_key={SECRET}", "gs://b?access_key=***"),
        (f'{{"kb": "s3://{SECRET}@b", "at": "me@here"}}', '{"kb": "s3://***@b", "at": "me@here"}'),
        ("mail me@example.org; see https://example.org/a?b=c", "mail me@example.org; see https://example.org/a?b=c"),
    ],
)
def test_credentials_are_taken_out_of_what_users_are_told(told: str, expected: str) -> None:
    assert redacted(told) == expected
    assert str(DeepEdError(told)) == expected


COMMANDS = [
    ["--kb", f"s3://user:{SECRET}@bucket/kb"],
    ["--kb", f"s3://bucket/kb?secret_key={SECRET}"],
    ["--kb", "kb", "--set", f"index.index_seed=s3://user:{SECRET}@bucket/kb"],
    ["--kb", "kb", f"s3://user:{SECRET}@bucket/kb"],
]
RUN_ALL = """
import json, sys
from deeped_ray import stages
for options in json.loads(sys.argv[1]):
    try:
        stages.main("build_index", "", options)
    except SystemExit as end:
        print(end.code)
"""


def test_a_job_does_not_repeat_credentials(tmp_path: Path) -> None:
    command = [sys.executable, "-c", RUN_ALL, json.dumps(COMMANDS)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[1::2] == ["2"] * len(COMMANDS)
    assert [line.partition(" ")[0] for line in run.stderr.splitlines()] == ["error:"] * len(COMMANDS)
    assert SECRET not in run.stdout + run.stderr


def test_a_manifest_says_what_was_read_but_not_where_it_lay(local_ray_session: None, tmp_path: Path) -> None:
    folder = tmp_path / f"user:{SECRET}@host"
    folder.mkdir()
    dump = write_dump(folder / "dump.xml", page_xml("Apple", "A [[fruit]] of trees"))
    kb = KnowledgeBase(tmp_path / "kb", create=True)
    resume = ResumeConfig(storage_path=str(folder / "runs"))
    result = build_corpus(kb, CorpusConfig(dump=(str(dump),), min_word_count=1, partitions=1), resume)
    assert SECRET not in json.dumps(result)
    for path in kb.root.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path


def test_a_job_takes_its_code_along_but_not_the_clusters_token(tmp_path: Path) -> None:
    shutil.copy(ROOT / ".rayignore", tmp_path)
    for name in (".ray-token", "jobs/build_corpus.py", "deeped_ray/text.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    ignored = get_excludes_from_ignore_files(tmp_path, include_gitignore=False)
    taken = {path.name for path in tmp_path.rglob("*.*") if not any(is_ignored(path) for is_ignored in ignored)}
    assert taken == {".rayignore", "build_corpus.py", "text.py"}
