"""Entity vectors by sharded Ray tasks: every entity is its own small problem (section 3).

Reads the parts `corpus` and `words`, writes `vectors`:

    vectors.npy [E, d]                       unit length; zero for entities of which nothing is known
    evidence.npy, fingerprints.npy [E]       kind of evidence, and a hash of it
    titles.npy [E]                           hashes of titles, by which a later run finds the vectors again
    noise_mean.npy, noise_covariance.npy     mu and Sigma of the closed form

A finished shard is a file in the run's folder (`shards`); the same command after a kill takes up the shards that are there.
"""

import time
from typing import Any

import numpy as np
import numpy.typing as npt

from deeped_ray.corpus.catalogue import Catalogue
from deeped_ray.embeddings import closed_form
from deeped_ray.embeddings.closed_form import Noise
from deeped_ray.embeddings.config import Methods, ShardConfig, SubsetConfig
from deeped_ray.embeddings.evidence import (
    EVIDENCE_NAMES,
    NOT_TRAINED,
    PAGE,
    PAGE_AND_LINKS,
    EvidenceReader,
)
from deeped_ray.embeddings.link_phase import choose_link_steps
from deeped_ray.embeddings.objective import exact_objective, noise_cdf
from deeped_ray.embeddings.shards import Floats, Shared, cut_of, join, train_shards
from deeped_ray.embeddings.validation import Validation
from deeped_ray.embeddings.words import Words, unit_rows
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.knowledge.parts import Part
from deeped_ray.knowledge.strings import hashes_of
from deeped_ray.running.resume import NEW_RUN, ResumeConfig
from deeped_ray.storage.arrays import read_array, writing_array
from deeped_ray.storage.compressed import read_lines
from deeped_ray.storage.location import Location
from deeped_ray.types import DeepEdError

LOSS_ENTITIES, LOSS_NEGATIVES = 1000, 4096


def embed_entities(
    kb: KnowledgeBase,
    methods: Methods = Methods(),  # noqa: B008 - immutable
    sharding: ShardConfig = ShardConfig(),  # noqa: B008
    *,
    subset: SubsetConfig = SubsetConfig(),  # noqa: B008
    resume: ResumeConfig = NEW_RUN,
    validation: Validation | None = None,
    is_measured: bool = True,
) -> dict[str, Any]:
    """Make the vectors part unless it is there already; returns counts, times and, if measured, losses and a score."""
    parents = ["corpus", "words"]
    corpus, words = kb.open("corpus"), kb.open("words")
    titles = _read_titles(subset.entities, Catalogue(corpus)) if subset.entities else None
    previous = _previous(kb, methods, subset)
    config = {
        **methods.recorded(),
        "words": _words_identity(words),
        "validation": validation.name if validation and methods.needs_validation else None,
        "added_to": previous.id if previous else None,
        "entities": len(titles) and hex(int(np.bitwise_xor.reduce(titles))) if titles is not None else None,
    }
    is_done = kb.is_current("vectors", config=config, parents=parents)
    if is_done or (previous and subset.only_new and _is_complete(kb, previous)):
        return _counts(kb.open("vectors"))
    times = [time.monotonic()]
    with kb.write("vectors", config=config, parents=parents) as folder:
        run = resume.folder(kb, "embed", [corpus.id, words.id, config, cut_of(methods, sharding)])
        if methods.needs_validation:
            methods = choose_link_steps(corpus, words, methods, sharding, validation)
        noise = _noise(Words(words), methods, previous)
        shared = _share(run, corpus, words, noise, methods, sharding, previous, subset.only_new, titles)
        times.append(time.monotonic())
        paths, peak = train_shards(shared, run)
        times.append(time.monotonic())
        num_entities = len(Catalogue(corpus))
        num_trained = join(paths, num_entities, shared.matrix.shape[1], folder)
        for name, array in noise._asdict().items():
            np.save(folder / f"noise_{name}.npy", array)
    times.append(time.monotonic())
    run.remove()
    part = kb.open("vectors")
    return {
        **_counts(part),
        "trained": num_trained,
        "peak_worker_gib": round(peak, 2),
        **(_measures(kb, part, methods, validation) if is_measured else {}),
        "seconds_by_step": dict(zip(("prepare", "embed", "join"), np.diff(times).round(1).tolist(), strict=True)),
    }


def _counts(part: Part) -> dict[str, Any]:
    kinds = np.bincount(part.array("evidence"), minlength=len(EVIDENCE_NAMES)).tolist()
    return {"entities": sum(kinds), "evidence": dict(zip(EVIDENCE_NAMES, kinds, strict=True))}


# -- what came before


def _previous(kb: KnowledgeBase, methods: Methods, subset: SubsetConfig) -> Part | None:
    """The vectors that entities outside the subset keep."""
    if not (subset.only_new or subset.entities):
        return None
    part = kb.last("vectors")
    if part is None:
        if subset.only_new:
            raise DeepEdError(f"--only-new adds to vectors, and {kb} has none. Run without it first.")
        return None
    expected = {**methods.recorded(), "words": _words_identity(kb.open("words"))}
    changed = [name for name in expected if part.config.get(name) != expected[name]]
    if changed:
        raise DeepEdError(
            f"The vectors of {kb} were made with other {', '.join(changed)} and would not fit new ones. Run without --only-new and --entities."
        )
    return part


def _words_identity(words: Part) -> Any:
    """What word vectors are: the file they come from, or, learned from the dump, this very part."""
    return words.config.get("word_vectors") or words.id


def _is_complete(kb: KnowledgeBase, previous: Part) -> bool:
    """Whether every entity of the current corpus has its vector there."""
    parents = previous.record["parents"]
    is_current = all(kb.open(parent).id == parent_id for parent, parent_id in parents.items())
    return is_current and not (previous.array("evidence") == NOT_TRAINED).any()


def _read_titles(path: str, catalogue: Catalogue) -> npt.NDArray[np.uint64]:
    """Hashes of the titles in a file, after redirects."""
    titles = [line for line in read_lines(path) if line.strip()]
    if not titles:
        raise DeepEdError(f"{path} names no entity. Expected one title a line.")
    return np.unique(hashes_of([catalogue.title(catalogue.require(title)) for title in titles]))


# -- what all shards are computed with


def _noise(words: Words, methods: Methods, previous: Part | None) -> Noise:
    if previous is None:
        return closed_form.noise_of(words.vectors, words.counts, alpha=methods.embedding.alpha)
    # vectors are comparable only if they were made against the same noise
    return Noise(*(np.asarray(previous.array(f"noise_{name}")) for name in Noise._fields))


def _contrasts(words: Words, noise: Noise, methods: Methods, run: Location) -> Floats:
    """x'_w, kept with the shards: made again after a kill, with other threads, its last digits could be others."""
    file = run / "contrasts.npy"
    if not file.exists():
        with file.writing() as path, writing_array(path, np.float32, words.vectors.shape) as sink:
            for block in closed_form.contrasts(words.vectors, noise, ridge=methods.closed_form.ridge):
                block.tofile(sink)
    return np.asarray(read_array(file.local()))


def _share(
    run: Location,
    corpus: Part,
    words: Part,
    noise: Noise,
    methods: Methods,
    sharding: ShardConfig,
    previous: Part | None,
    only_new: bool,
    subset: npt.NDArray[np.uint64] | None,
) -> Shared:
    known = Words(words)
    matrix = _contrasts(known, noise, methods, run) if methods.is_closed_form else np.asarray(known.vectors)
    cdf = noise_cdf(known.counts, alpha=methods.embedding.alpha)
    return Shared(corpus, words, matrix, cdf, methods, sharding, previous, only_new, subset)


# -- summary


def _measures(kb: KnowledgeBase, part: Part, methods: Methods, validation: Validation | None) -> dict[str, Any]:
    """They take some seconds."""
    vectors, kinds = part.array("vectors"), part.array("evidence")
    found = _losses(kb, vectors, kinds, alpha=methods.embedding.alpha, gamma=methods.reference.gamma)
    if validation:
        score = round(validation.score(vectors[validation.entities]), 4)
        found |= {"validation": validation.name, "validation_score": score}
    return found


def _losses(
    kb: KnowledgeBase, vectors: Floats, kinds: npt.NDArray[np.int8], *, alpha: float, gamma: float
) -> dict[str, Any]:
    """Mean J of up to LOSS_ENTITIES entities on their pages' words, with their title's mean vector and with their own."""
    words = Words(kb.open("words"))
    with_page = np.flatnonzero(np.isin(kinds, (PAGE, PAGE_AND_LINKS)))
    if not len(with_page):
        return {}
    sample = with_page[np.unique(np.linspace(0, len(with_page) - 1, LOSS_ENTITIES).astype(np.int64))]
    evidence = EvidenceReader(kb.open("corpus"), words).read(sample)
    quantiles = (np.arange(LOSS_NEGATIVES) + 0.5) / LOSS_NEGATIVES
    pool = words.vectors[np.searchsorted(noise_cdf(words.counts, alpha=alpha), quantiles)]
    losses = []
    for row, entity in enumerate(sample):
        rows, counts = evidence.page.bag(row)
        start = unit_rows(words.vectors[evidence.title.bag(row)[0]].sum(axis=0, keepdims=True))[0]
        losses.append(
            [exact_objective(z, words.vectors[rows], counts, pool, gamma=gamma) for z in (start, vectors[entity])]
        )
    before, after = np.mean(losses, axis=0).round(5).tolist()
    return {"loss_before": before, "loss_after": after, "loss_entities": len(sample)}
