"""Folds the changes to single entities into the parts of a knowledge base, and forgets their files.

    pages, corpus       made again from the pages that are there, without the dump: names, counts and entities follow
    words, wikidata     the same vectors, the same ids
    vectors, index      made again
    linker              the same: it depends on the vectors of words, and these have not changed

All of it is made in a draft beside the current version, whose manifest is replaced in one step (`knowledge.versions`). Killed
before that, everything is as it was, and servers may start at any time; the same command goes on, with the changes that came
meanwhile. The files of changes are removed last. Parts know which of them they hold, so none counts twice.

Servers that run keep the parts and changes that they have. After a restart they have the new parts.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from deeped_ray.corpus.config import CorpusConfig
from deeped_ray.corpus.folded import Folded
from deeped_ray.corpus.ingest import build_corpus
from deeped_ray.corpus.wikidata import ids_by_title, keep_ids
from deeped_ray.embeddings.words import Words, write_words
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.knowledge.changes import ChangeLog, Changes
from deeped_ray.knowledge.parts import Part
from deeped_ray.knowledge.strings import StringIndex
from deeped_ray.knowledge.versions import adopt, draft_of
from deeped_ray.linking.following import in_order
from deeped_ray.running.config import plain, read_config
from deeped_ray.running.faults import reached
from deeped_ray.running.resume import NEW_RUN
from deeped_ray.stages import STAGES, Stage, resolve
from deeped_ray.training.takeover import copy_linker
from deeped_ray.types import DeepEdError


def compact(kb: KnowledgeBase) -> dict[str, Any]:
    """Returns how many changes the parts now hold more, and what was made."""
    if kb.home != kb.location:
        raise DeepEdError(f"{kb} is one version. Compact the knowledge base itself: --kb {kb.home}.")
    log, changes = ChangeLog(kb.home), Changes()
    recorded, folded = log.read_new(), Folded.read(kb.last("corpus")).files
    changes.apply([each for each in recorded if each.file not in folded])
    log.forget(sorted({each.file for each in recorded} & {*folded}))  # if it was killed before it came to that
    if not changes.files:
        return {"changes": 0, "entities": 0, "made": []}
    before = kb.manifest()["parts"]
    draft = draft_of(kb, "compact")
    _make(kb, draft, changes)
    reached("compact/made")
    adopt(kb, draft)
    reached("compact/adopted")
    log.forget(sorted(changes.files))
    made = [name for name, record in kb.manifest()["parts"].items() if before[name]["id"] != record["id"]]
    return {"changes": len(changes.files), "entities": len(changes.latest), "made": made}


def _make(kb: KnowledgeBase, draft: KnowledgeBase, changes: Changes) -> None:
    words, linker, ids = kb.last("words"), kb.last("linker"), ids_by_title(kb)
    if words is None:
        raise DeepEdError(f"No words part in {kb}. Build it first: deeped build.")
    _, configs = resolve(read_config(kb.location / "manifest.json"))
    corpus, vectors, index, _, _ = STAGES
    draft.settings = {corpus.section: plain(configs[corpus.section])}
    build_corpus(draft, _as_before(kb, configs[corpus.section].corpus), changes=in_order(changes))
    reached("compact/corpus")
    _keep_words(draft, words)
    if ids is not None:
        keep_ids(draft, *ids)
    for stage in (vectors, index):
        _run(draft, stage, configs)
        reached(f"compact/{stage.name}")
    if linker is not None:
        draft.settings = linker.record["settings"]
        copy_linker(draft, linker, config=linker.config)


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
        write_words(folder, kb.open("corpus"), vocabulary, ids, known.vectors[rows[ids]])
