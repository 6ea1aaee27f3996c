"""Data sets by name: `aida:FILE`, `wned:FOLDER`, `jsonl:FILE`, and documents that need no file.

links:train, links:dev      articles of the knowledge base's own dump (`corpus.teaching`); `links` is the latter
mini:train, ...             the documents of the mini encyclopedia
"""

from collections.abc import Iterable, Sequence
from typing import Any

from deeped_ray.corpus import teaching
from deeped_ray.corpus.catalogue import Catalogue
from deeped_ray.corpus.wikidata_ids import number_of
from deeped_ray.evaluation.aida import read_aida
from deeped_ray.evaluation.jsonl import read_jsonl
from deeped_ray.evaluation.wned import read_wned, wned_annotations
from deeped_ray.knowledge.base import KnowledgeBase, fingerprint
from deeped_ray.mini import MINI_DOCUMENTS
from deeped_ray.storage.location import Location
from deeped_ray.types import DeepEdError, Document

READERS = {"aida": read_aida, "wned": read_wned, "jsonl": read_jsonl, "mini": read_aida}
LINKS = ("links:train", "links:dev")
SPECS = (
    "aida:FILE (AIDA-YAGO2 TSV), wned:FOLDER (XML and RawText, also as .tar.gz), jsonl:FILE (our own),"
    " links:train, links:dev (articles of the dump that were kept aside), or mini:train, mini:dev, mini:test"
)


def read_dataset(spec: str, *, kb: KnowledgeBase | None = None, with_unlinked: bool = False) -> list[Document]:
    """All documents of a data set, with the mentions that are linked to Wikipedia.

    Those marked as outside Wikipedia can be had too, without a gold title. `links:` is read from `kb`.
    """
    if spec in (*LINKS, "links"):
        if kb is None:
            raise DeepEdError(f"{spec} is read from a knowledge base, and this command has none.")
        return _links(kb, spec)
    kind, path = _parse(spec)
    documents = list(READERS[kind](path.local(), with_unlinked=with_unlinked))
    if not documents:
        raise DeepEdError(f"{path} holds no document. Expected {SPECS}.")
    return documents


def read_datasets(specs: Iterable[str], *, kb: KnowledgeBase | None = None) -> list[Document]:
    """All documents of several data sets, in order."""
    return [document for spec in specs for document in read_dataset(spec, kb=kb)]


def _links(kb: KnowledgeBase, spec: str) -> list[Document]:
    documents = teaching.read(kb.open("corpus"), "train" if spec == "links:train" else "dev")
    if not documents:
        raise DeepEdError(
            f"{kb} has no documents for {spec}: its dump has too few links, it was read with --teaching-links 0, or this is an archive, which holds no texts."
        )
    return documents


def check_ids(spec: str, documents: Sequence[Document], catalogue: Catalogue) -> None:
    """Refuse gold that is Wikidata ids if the knowledge base has none: nothing could be right."""
    golds = [mention.gold for document in documents for mention in document.mentions if mention.gold]
    num_ids = sum(number_of(gold) is not None for gold in golds)
    if not len(catalogue.wikidata) and 2 * num_ids > len(golds):
        raise DeepEdError(
            f"{spec} names entities by Wikidata ids, which this knowledge base does not have."
            " Run `deeped wikidata --kb KB --page-props FILE` first."
        )


def identity(spec: str) -> Any:
    """What tells one data set from another: the fingerprint of the file with its annotations.

    Links belong to the corpus, which a linker has as a parent anyway.
    """
    return spec if spec in (*LINKS, "links") else fingerprint(dataset_path(spec))


def dataset_path(spec: str) -> Location:
    """The file with the annotations of a data set."""
    kind, path = _parse(spec)
    return Location(wned_annotations(path.local())) if kind == "wned" else path


def _parse(spec: str) -> tuple[str, Location]:
    kind, _, name = spec.partition(":")
    if kind == "mini" and name in MINI_DOCUMENTS:
        return kind, Location(MINI_DOCUMENTS[name])
    if kind != "mini" and kind in READERS and name:
        return kind, Location(name)
    raise DeepEdError(f"Cannot read data set {spec!r}. Expected {SPECS}.")
