"""Data sets by name: `aida:FILE`, `wned:FOLDER`, `jsonl:FILE`, and the mini encyclopedia's own documents."""

from collections.abc import Iterable

from deeped_ray.evaluation.aida import read_aida
from deeped_ray.evaluation.jsonl import read_jsonl
from deeped_ray.evaluation.wned import read_wned, wned_annotations
from deeped_ray.mini import MINI_DOCUMENTS
from deeped_ray.storage.location import Location
from deeped_ray.types import DeepEdError, Document

READERS = {"aida": read_aida, "wned": read_wned, "jsonl": read_jsonl, "mini": read_aida}
SPECS = (
    "aida:FILE (AIDA-YAGO2 TSV), wned:FOLDER (XML and RawText, also as .tar.gz), jsonl:FILE (our own),"
    " or mini:train, mini:dev, mini:test"
)


def read_dataset(spec: str, *, with_unlinked: bool = False) -> list[Document]:
    """All documents of a data set, with the mentions that are linked to Wikipedia.

    Of AIDA's layout, those marked as outside Wikipedia can be had too, without a gold title.
    """
    kind, path = _parse(spec)
    is_aida = READERS[kind] is read_aida
    local = path.local()
    documents = list(read_aida(local, with_unlinked=with_unlinked) if is_aida else READERS[kind](local))
    if not documents:
        raise DeepEdError(f"{path} holds no document. Expected {SPECS}.")
    return documents


def read_datasets(specs: Iterable[str]) -> list[Document]:
    """All documents of several data sets, in order."""
    return [document for spec in specs for document in read_dataset(spec)]


def dataset_path(spec: str) -> Location:
    """The file that tells one data set from another: the one with its annotations."""
    kind, path = _parse(spec)
    return Location(wned_annotations(path.local())) if kind == "wned" else path


def _parse(spec: str) -> tuple[str, Location]:
    kind, _, name = spec.partition(":")
    if kind == "mini" and name in MINI_DOCUMENTS:
        return kind, Location(MINI_DOCUMENTS[name])
    if kind != "mini" and kind in READERS and name:
        return kind, Location(name)
    raise DeepEdError(f"Cannot read data set {spec!r}. Expected {SPECS}.")
