"""Folds the changes to single entities into the parts of a knowledge base, and forgets their files.

    pages, corpus       made again from the pages that are there, without the dump: names, counts and entities follow
    words, wikidata     the same vectors, the same ids
    vectors, index      made again
    linker              the same: it depends on the vectors of words, and these have not changed

Servers that run keep the parts and changes that they have. After a restart they have the new parts. Killed in between, the
same command goes on. The files of changes are removed last; parts know which of them they hold, so none counts twice.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from deeped_ray.corpus.config import CorpusConfig
from deeped_ray.corpus.ingest import build_corpus
from deeped_ray.corpus.wikidata import ids_by_title, keep_ids
from deeped_ray.embeddings.words import Words, write_words
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.knowledge.changes import ChangeLog, Changes
from deeped_ray.knowledge.parts import Part
from deeped_ray.knowledge.strings import StringIndex
from deeped_ray.linking.following import in_order
from deeped_ray.running.config import plain, read_config
from deeped_ray.running.resume import NEW_RUN
from deeped_ray.stages import STAGES, Stage, resolve
from deeped_ray.training.takeover import copy_linker
from deeped_ray.types import DeepEdError


def compact(kb: KnowledgeBase) -> dict[str, Any]:
    """Returns how many changes the parts now hold more, and what was made."""
    log, changes = ChangeLog(kb.home), Changes()
    changes.apply(log.read_new())
    if not changes.files:
        return {"changes": 0, "entities": 0, "made": []}
    before = kb.manifest()["parts"]
    words, linker, ids = kb.last("words"), kb.last("linker"), ids_by_title(kb)
    if words is None:
        raise DeepEdError(f"No words part in {kb}. Build it first: deeped build.")
    _, configs = resolve(read_config(kb.location / "manifest.json"))
    corpus, vectors, index, _, _ = STAGES
    kb.settings = {corpus.section: plain(configs[corpus.section])}
    build_corpus(kb, _as_before(kb, configs[corpus.section].corpus), changes=in_order(changes))
    _keep_words(kb, words)
    if ids is not None:
        keep_ids(kb, *ids)
    for stage in (vectors, index):
        _run(kb, stage, configs)
    if linker is not None:
        kb.settings = linker.record["settings"]
        copy_linker(kb, linker, config=linker.config)
    log.remove(sorted(changes.files))
    made = [name for name, record in kb.manifest()["parts"].items() if before[name]["id"] != record["id"]]
    return {"changes": len(changes.files), "entities": len(changes.latest), "made": made}


def _as_before(kb: KnowledgeBase, config: CorpusConfig) -> CorpusConfig:
    """With the settings that the corpus was really made with."""
    before = kb.last("corpus")
    made_with = before.config if before else {}
    names = ("min_word_count", "link_window", "min_links_without_page", "merge_priors")
    teaching = ("teaching_links", "max_teaching_share")
    return replace(config, **{name: made_with[name] for name in (*names, *teaching) if name in made_with})


def _run(kb: KnowledgeBase, stage: Stage, configs: dict[str, Any]) -> None:
    config = configs[stage.section]
    kb.settings = {stage.section: plain(config)}
    stage.make(kb, config, NEW_RUN)


def _keep_words(kb: KnowledgeBase, before: Part) -> None:
    """The vectors of words that the new corpus has too."""
    if kb.is_current("words", config=before.config, parents=["pages", "corpus"]):
        return
    with kb.write("words", config=before.config, parents=["pages", "corpus"]) as folder:
        vocabulary, known = StringIndex(kb.open("corpus").path, "vocabulary"), Words(before)
        rows = known.find_all(vocabulary.take(np.arange(len(vocabulary))))
        ids = np.flatnonzero(rows >= 0)
        write_words(folder, kb.open("corpus"), vocabulary, ids.tolist(), known.vectors[rows[ids]])
