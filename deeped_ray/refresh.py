"""A fresh dump in place of the one a knowledge base was made from: the next version, beside the current one.

    compare     shards of the dump by their bytes: if none has changed, there is nothing to do
    count       pages that are new, gone or changed (`corpus.update`); vocabulary and word vectors stay
    embed       entities whose evidence has changed; all other vectors stay the same to the byte
    index       anew, with the lists and codes that an approximate one has learned
    check       the current linker on the current version and on the next, with the same documents
    follow      a running service gets the next version, replica by replica
    switch      `manifest.json` is replaced

With --retrain, vocabulary, word vectors, entity vectors and linker are made anew as well. A kill at any point leaves the
current version as it is, and the same command goes on.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from deeped_ray.corpus.ingest import build_corpus
from deeped_ray.corpus.wikidata import add_wikidata, ids_by_title, keep_ids
from deeped_ray.embeddings.config import SubsetConfig
from deeped_ray.embeddings.index import build_index
from deeped_ray.embeddings.words import build_words
from deeped_ray.evaluation.datasets import SPECS
from deeped_ray.evaluation.relatedness import validation_of
from deeped_ray.knowledge import versions
from deeped_ray.knowledge.base import KnowledgeBase, fingerprint
from deeped_ray.mini import MINI_DUMP
from deeped_ray.running.config import FLAG, plain
from deeped_ray.running.faults import reached
from deeped_ray.running.resume import NEW_RUN, ResumeConfig
from deeped_ray.types import DeepEdError, Document

logger = logging.getLogger(__name__)
Summary = dict[str, Any]
MOST_MENTIONS = 5_000
"""Of documents of the dump itself: with so many, a share of 0.5% is 25 mentions."""


@dataclass(frozen=True, kw_only=True)
class RefreshConfig:
    """A fresh dump."""

    dump: Annotated[tuple[str, ...], "the fresh dump, as for build_corpus; repeatable", FLAG] = ()
    dataset: Annotated[
        tuple[str, ...],
        f"documents on which both versions are scored, repeatable; default: links:dev of the current version. {SPECS}.",
        FLAG,
    ] = ()
    margin: Annotated[
        float, "switch only if accuracy falls by no more than this share of the mentions; 0.005 is half a point", FLAG
    ] = 0.005
    retrain: Annotated[
        bool, "make vocabulary, word vectors, entity vectors and linker anew. Takes as long as a build.", FLAG
    ] = False
    serve: Annotated[
        str | None, "Ray's dashboard. Services there that serve this knowledge base get the next version.", FLAG
    ] = None

    def __post_init__(self) -> None:
        if not 0 <= self.margin <= 1:
            raise DeepEdError(f"`margin` must lie between 0 and 1, not be {self.margin}.")


def refresh(
    kb: KnowledgeBase, config: RefreshConfig, sections: Mapping[str, Any], resume: ResumeConfig = NEW_RUN
) -> Summary:
    """`sections` are the settings of the current version, with the fresh dump in them."""
    if kb.home != kb.location:
        raise DeepEdError(f"{kb} is one version. Refresh the knowledge base itself: --kb {kb.home}.")
    if "vectors" not in kb or "index" not in kb:
        raise DeepEdError(f"{kb} is not complete. Build it first: deeped build --kb {kb}.")
    current = versions.number_of(kb)
    draft = versions.draft_of(kb)
    number = versions.number_of(draft)
    reached("refresh/draft")
    _retrain(draft, sections, resume) if config.retrain else _update(kb, draft, sections, resume)
    if _ids(draft) == _ids(kb):
        versions.give_up(draft)
        logger.info("the dump has not changed: version %d stays", current)
        return {"version": current, "changed": False}
    check = _check(kb, draft, config)
    result = {"version": number, "changed": True, "previous": current, **check}
    if check["accuracy"] < check["accuracy_before"] - config.margin:
        versions.note(draft, state="refused")
        raise DeepEdError(
            f"Version {number} links {check['accuracy']:.2%} of {check['mentions']:,} mentions, version {current} links"
            f" {check['accuracy_before']:.2%}: more than `margin` {config.margin:g} below. Version {current} stays."
            f" Look at {versions.address_of(kb, number)}, or refresh with --retrain."
        )
    reached("refresh/checked")
    versions.require_fresh(kb, draft)
    if config.serve:
        from deeped_ray.serving.follow import follow  # reads no model

        result["served_by"] = follow(kb, number, address=config.serve)
    reached("refresh/followed")
    versions.switch(kb, number)
    reached("refresh/switched")
    return result


def _ids(kb: KnowledgeBase) -> dict[str, str]:
    return {name: record["id"] for name, record in kb.manifest()["parts"].items()}


# -- making it


def _update(kb: KnowledgeBase, draft: KnowledgeBase, sections: Mapping[str, Any], resume: ResumeConfig) -> None:
    """Everything that rests on words stays: vectors of the two versions can be compared, and the linker reads both."""
    section = sections["corpus"]
    draft.settings = {"corpus": plain(section)}
    build_corpus(draft, section.corpus, resume, earlier=kb)
    reached("refresh/corpus")
    if draft.open("corpus").id == kb.open("corpus").id and draft.open("pages").id == kb.open("pages").id:
        return
    if not _has_same_vocabulary(kb, draft):
        raise DeepEdError(
            f"{kb} was built by another version of deeped-ray, so its vocabulary cannot be kept. Add --retrain."
        )
    draft.keep("words", parents=["pages", "corpus"])
    if (ids := ids_by_title(kb)) is not None:
        keep_ids(draft, *ids)
    from deeped_ray.embeddings.trainer import embed_entities  # torch takes a second to import

    vectors = sections["vectors"]
    draft.settings = {"vectors": plain(vectors)}
    subset, scorer = SubsetConfig(only_new=True), validation_of(draft, vectors.validation)
    embed_entities(
        draft, vectors.methods, vectors.sharding, subset=subset, resume=resume, validation=scorer, is_measured=False
    )
    reached("refresh/vectors")
    draft.settings = {"index": plain(sections["index"])}
    build_index(draft, sections["index"].index, learned=kb.last("index"))
    if "linker" in draft:
        draft.settings = {}
        draft.keep("linker", parents=list(kb.open("linker").record["parents"]))
    reached("refresh/index")


def _has_same_vocabulary(kb: KnowledgeBase, draft: KnowledgeBase) -> bool:
    one, other = (each.open("corpus").record["files"] for each in (kb, draft))
    return all(one[name] == other[name] for name in one if name.startswith("vocabulary."))


def _retrain(draft: KnowledgeBase, sections: Mapping[str, Any], resume: ResumeConfig) -> None:
    """As a build would make it."""
    from deeped_ray.embeddings.trainer import embed_entities
    from deeped_ray.training.trainer import train_linker

    corpus, vectors, index, linker = (sections[name] for name in ("corpus", "vectors", "index", "linker"))
    draft.settings = {"corpus": plain(corpus)}
    build_corpus(draft, corpus.corpus, resume)
    build_words(draft, corpus.words)
    add_wikidata(draft, corpus.ids)
    reached("refresh/corpus")
    draft.settings = {"vectors": plain(vectors)}
    scorer = validation_of(draft, vectors.validation)
    embed_entities(draft, vectors.methods, vectors.sharding, resume=resume, validation=scorer)
    reached("refresh/vectors")
    draft.settings = {"index": plain(index)}
    build_index(draft, index.index)
    if "linker" in draft:
        draft.settings = {"linker": plain(linker)}
        train_linker(draft, linker.training, linker.model, linker.candidates, linker.workers, resume)
    reached("refresh/index")


# -- checking it


def _check(kb: KnowledgeBase, draft: KnowledgeBase, config: RefreshConfig) -> Summary:
    """Accuracy of both versions on the same documents; kept in the manifest, so that it is done once."""
    specs = list(config.dataset) or ["mini:test" if _is_mini(kb) else "links:dev"]
    asked = {"datasets": specs, "parts": _ids(draft)}
    known: Summary = draft.manifest().get("check", {})
    if known.get("asked") != asked:
        documents = _documents(kb, specs)
        accuracies = [_accuracy(each, documents) for each in (kb, draft)]
        mentions = sum(len(document.mentions) for document in documents)
        known = {"asked": asked, "mentions": mentions, "accuracy_before": accuracies[0], "accuracy": accuracies[1]}
        versions.note(draft, check=known)
    return {"datasets": specs, **{name: known[name] for name in ("mentions", "accuracy_before", "accuracy")}}


def _is_mini(kb: KnowledgeBase) -> bool:
    return bool(kb.open("pages").config["dumps"] == [fingerprint(MINI_DUMP)])


def _documents(kb: KnowledgeBase, specs: list[str]) -> list[Document]:
    """As many as are enough. Articles of the current version were kept out of the counts of both."""
    from deeped_ray.evaluation.datasets import read_datasets

    documents, found = list[Document](), 0
    for document in read_datasets(specs, kb=kb):
        if found < MOST_MENTIONS:
            documents.append(document)
            found += len(document.mentions)
    return documents


def _accuracy(kb: KnowledgeBase, documents: list[Document]) -> float:
    from deeped_ray.evaluation.report import accuracy_of
    from deeped_ray.linking.linker import Linker

    return accuracy_of(Linker.open(kb, "global" if "linker" in kb else "prior"), documents)
