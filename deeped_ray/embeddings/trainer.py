"""Entity vectors by sharded Ray tasks: every entity is its own small problem (section 3).

Reads the parts `corpus` and `words`, writes `vectors`: `vectors.npy` [E, d], `evidence.npy` [E], `losses.npy` [E, 2].
A finished shard is a file in the run's folder, written whole or not at all; the same command after a kill takes
up the shards that are there. An entity's result depends on its own words and seed only, not on its shard.
"""

import os
import shutil
import uuid
import warnings
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from deeped_ray.artifacts import NEW_RUN, KnowledgeBase, Part, ResumeConfig
from deeped_ray.corpus.cooccurrence import LINK_WORDS, PAGE_WORDS, WordCounts
from deeped_ray.corpus.entities import Catalogue
from deeped_ray.embeddings import objective
from deeped_ray.embeddings.objective import WordBag
from deeped_ray.embeddings.words import Words
from deeped_ray.progress import Progress
from deeped_ray.spread import spread
from deeped_ray.text import content_words
from deeped_ray.types import DeepEdError

NO_EVIDENCE, TITLE_ONLY, PAGE, LINKS, PAGE_AND_LINKS = range(5)
EVIDENCE_NAMES = ("nothing", "title only", "page", "links", "page and links")


@dataclass(frozen=True, kw_only=True)
class EmbeddingConfig:
    """The optimisation of one entity vector; the paper's values."""

    alpha: Annotated[float, "exponent of q(w) = p(w)^alpha, from which negative words are drawn"] = 0.6
    gamma: Annotated[float, "margin between an entity's words and random words"] = 0.1
    num_positives: Annotated[int, "positive words per step"] = 20
    num_negatives: Annotated[int, "negative words per positive word"] = 5
    learning_rate: Annotated[float, "Adagrad's learning rate"] = 0.3
    page_steps: Annotated[int, "steps on the words of the entity's own page"] = 400
    link_steps: Annotated[int, "steps on the words around links to the entity, after those on its page"] = 100
    initialization: Annotated[
        Literal["title", "random"], "start from the mean of the title's word vectors, or from a normal distribution"
    ] = "title"
    seed: Annotated[int, "with an entity's id, the seed of its own random numbers"] = 0

    def __post_init__(self) -> None:
        if min(self.num_positives, self.num_negatives) < 1 or min(self.page_steps, self.link_steps) < 0:
            raise DeepEdError("Positives and negatives must be at least 1, steps at least 0.")
        if self.learning_rate <= 0 or self.gamma <= 0:
            raise DeepEdError("--learning-rate and --gamma must be positive.")


@dataclass(frozen=True, kw_only=True)
class ShardConfig:
    """How the work is cut; changes nothing in the result."""

    shard_entities: Annotated[int, "entities per Ray task"] = 500
    block_entities: Annotated[int, "entities optimised side by side within a task"] = 32

    def __post_init__(self) -> None:
        if min(self.shard_entities, self.block_entities) < 1:
            raise DeepEdError("--shard-entities and --block-entities must be at least 1.")


class ShardResult(NamedTuple):
    vectors: npt.NDArray[np.float32]
    evidence: npt.NDArray[np.int8]
    losses: npt.NDArray[np.float32]  # [entities, 2]: J before and after


def embed_entities(
    kb: KnowledgeBase, config: EmbeddingConfig, sharding: ShardConfig, resume: ResumeConfig = NEW_RUN
) -> dict[str, Any]:
    """Make the vectors part unless it is there already; returns counts and losses."""
    parents = ["corpus", "words"]
    if not kb.is_current("vectors", config=config, parents=parents):
        with kb.write("vectors", config=config, parents=parents) as folder:
            parent_ids = [kb.open(parent).id for parent in parents]
            run = resume.folder(kb, "embed", [parent_ids, asdict(config), sharding.shard_entities])
            results = [_read_shard(path) for path in _train_shards(kb, config, sharding, run)]
            for name, arrays in zip(ShardResult._fields, zip(*results, strict=True), strict=True):
                np.save(folder / f"{name}.npy", np.concatenate(arrays))
        shutil.rmtree(run)
    vectors = kb.open("vectors")
    evidence, losses = vectors.array("evidence"), vectors.array("losses")
    return {
        "entities": len(evidence),
        "loss_before": round(float(np.nanmean(losses[:, 0])), 5),
        "loss_after": round(float(np.nanmean(losses[:, 1])), 5),
        "evidence": {name: int((evidence == kind).sum()) for kind, name in enumerate(EVIDENCE_NAMES)},
    }


def _train_shards(kb: KnowledgeBase, config: EmbeddingConfig, sharding: ShardConfig, run: Path) -> list[Path]:
    corpus, words = kb.open("corpus"), Words(kb.open("words"))
    num_entities = len(Catalogue(corpus))
    bounds = list(range(0, num_entities, sharding.shard_entities))
    shards = {
        run / f"entities-{start:09d}.npz": range(start, min(start + sharding.shard_entities, num_entities))
        for start in bounds
    }
    progress = Progress("embed", "entities", num_entities)
    todo = {path: entities for path, entities in shards.items() if not _is_finished(path)}
    progress.skip(num_entities - sum(map(len, todo.values())))
    word_rows = words.rows_of_corpus_ids(len(corpus.array("vocabulary.counts")))
    noise = objective.noise_cdf(words.counts, alpha=config.alpha)
    tasks = spread(
        _embed_shard,
        todo.items(),
        corpus,
        np.asarray(words.vectors),
        kb.open("words"),
        word_rows,
        noise,
        config,
        sharding.block_entities,
    )
    for (_, entities), loss in tasks:
        progress.advance(len(entities), note=f"loss {loss:.4f}")
    return list(shards)


def _embed_shard(
    shard: tuple[Path, range],
    corpus: Part,
    word_vectors: npt.NDArray[np.float32],
    words: Part,
    word_rows: npt.NDArray[np.int32],
    noise: npt.NDArray[np.float64],
    config: EmbeddingConfig,
    block_entities: int,
) -> float:
    """Task: optimise a range of entities and write them to one file; returns the mean final loss."""
    path, entities = shard
    sources = EntityWords(corpus, Words(words), word_rows)
    with warnings.catch_warnings():  # the object store's arrays are read-only, and nothing here writes to them
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        tensor = torch.from_numpy(word_vectors)
    blocks = [entities[start : start + block_entities] for start in range(0, len(entities), block_entities)]
    results = [embed_block(block, sources, tensor, noise, config) for block in blocks]
    result = ShardResult(*(np.concatenate(arrays) for arrays in zip(*results, strict=True)))
    _write_shard(path, result)
    return float(np.nanmean(result.losses[:, 1])) if np.isfinite(result.losses).any() else float("nan")


class EntityWords:
    """The word bags of entities, as rows of the word matrix."""

    def __init__(self, corpus: Part, words: Words, word_rows: npt.NDArray[np.int32]) -> None:
        self._catalogue = Catalogue(corpus)
        self._pages = WordCounts(corpus, PAGE_WORDS)
        self._links = WordCounts(corpus, LINK_WORDS)
        self._words = words
        self._word_rows = word_rows

    def title(self, entity_id: int) -> WordBag:
        found = [self._words.find(word) for word in content_words(self._catalogue.title(entity_id))]
        rows = np.array([row for row in found if row is not None], dtype=np.int64)
        return WordBag(rows, np.ones(len(rows)))

    def page(self, entity_id: int) -> WordBag:
        return self._bag(self._pages, entity_id)

    def links(self, entity_id: int) -> WordBag:
        return self._bag(self._links, entity_id)

    def _bag(self, counts: WordCounts, entity_id: int) -> WordBag:
        row = counts[entity_id]
        rows = self._word_rows[row.words].astype(np.int64)
        known = rows >= 0
        return WordBag(rows[known], row.counts[known].astype(np.float64))


def embed_block(
    entities: Sequence[int],
    sources: EntityWords,
    words: torch.Tensor,
    noise: npt.NDArray[np.float64],
    config: EmbeddingConfig,
) -> ShardResult:
    """Optimise a few entities side by side: first on their pages, then on their links."""
    evidence = [gather_evidence(entity_id, sources) for entity_id in entities]
    rngs = [np.random.Generator(np.random.Philox(key=[config.seed, entity_id])) for entity_id in entities]
    start = torch.stack([_start(found.title, words, rng, config) for found, rng in zip(evidence, rngs, strict=True)])
    optimizer = objective.Adagrad(start, learning_rate=config.learning_rate)
    before = _loss(optimizer.z, evidence, words, noise, config)
    for phase, steps in ((0, config.page_steps), (1, config.link_steps)):
        draws = _draw_steps([found.phases[phase] for found in evidence], rngs, noise, steps, config)
        objective.minimize(optimizer, words, draws, gamma=config.gamma)
    losses = np.stack([before, _loss(optimizer.z, evidence, words, noise, config)], axis=1)
    kinds = np.array([found.kind for found in evidence], dtype=np.int8)
    # nothing is known of such an entity: its vector keeps its random start
    optimizer.z[kinds == NO_EVIDENCE] = objective.project(start)[kinds == NO_EVIDENCE]
    losses[kinds == NO_EVIDENCE] = np.nan
    return ShardResult(optimizer.z.numpy(), kinds, losses)


class Evidence(NamedTuple):
    """What is known of an entity."""

    phases: tuple[WordBag, WordBag]
    """Words of the page phase and of the link phase; where one source is empty the other serves both."""
    title: WordBag
    kind: int


def gather_evidence(entity_id: int, sources: EntityWords) -> Evidence:
    page, links, title = sources.page(entity_id), sources.links(entity_id), sources.title(entity_id)
    # Differs from the paper: an entity without links has its link phase on its page, so that all take as many steps
    if len(page.rows):
        phases = (page, links if len(links.rows) else page)
        return Evidence(phases, title, PAGE_AND_LINKS if len(links.rows) else PAGE)
    if len(links.rows):
        return Evidence((links, links), title, LINKS)
    if len(title.rows):
        return Evidence((title, title), title, TITLE_ONLY)
    any_word = WordBag(np.array([0]), np.array([1.0]))
    return Evidence((any_word, any_word), title, NO_EVIDENCE)


def _start(title: WordBag, words: torch.Tensor, rng: np.random.Generator, config: EmbeddingConfig) -> torch.Tensor:
    random = torch.from_numpy(rng.standard_normal(words.shape[1]).astype(np.float32))
    # Differs from the paper: title words by default, as in the authors' code
    use_title = config.initialization == "title" and len(title.rows) > 0
    return words[title.rows].mean(dim=0) if use_title else random


def _draw_steps(
    bags: Sequence[WordBag],
    rngs: Sequence[np.random.Generator],
    noise: npt.NDArray[np.float64],
    steps: int,
    config: EmbeddingConfig,
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    draws = [
        objective.draw(
            bag, noise, rng, steps=steps, num_positives=config.num_positives, num_negatives=config.num_negatives
        )
        for bag, rng in zip(bags, rngs, strict=True)
    ]
    positives = torch.from_numpy(np.stack([draw.positives for draw in draws], axis=1))  # [steps, b, P]
    negatives = torch.from_numpy(np.stack([draw.negatives for draw in draws], axis=1))  # [steps, b, P, N]
    return list(zip(positives, negatives, strict=True))


def _loss(
    z: torch.Tensor,
    evidence: Sequence[Evidence],
    words: torch.Tensor,
    noise: npt.NDArray[np.float64],
    config: EmbeddingConfig,
) -> npt.NDArray[np.float32]:
    """J on a fixed sample of 200 words of each phase with 5 negatives each, the same before and after."""
    losses = np.zeros(len(evidence), dtype=np.float32)
    for row, found in enumerate(evidence):
        for bag in found.phases:
            sample = objective.draw(
                bag, noise, np.random.default_rng(config.seed), steps=1, num_positives=200, num_negatives=5
            )
            positives, negatives = words[torch.from_numpy(sample.positives)], words[torch.from_numpy(sample.negatives)]
            losses[row] += objective.objective(z[row : row + 1], positives, negatives, gamma=config.gamma).item() / len(
                found.phases
            )
    return losses


# -- shard files


def _write_shard(path: Path, result: ShardResult) -> None:
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    with open(temporary, "wb") as handle:
        np.savez(handle, **result._asdict())
        handle.flush()
        os.fsync(handle.fileno())
    temporary.replace(path)


def _read_shard(path: Path) -> ShardResult:
    with open(path, "rb") as handle, np.load(handle, allow_pickle=False) as arrays:
        return ShardResult(**{name: arrays[name] for name in ShardResult._fields})


def _is_finished(path: Path) -> bool:
    """Present and readable to the end; zip checksums tell a damaged shard from a good one."""
    try:
        _read_shard(path)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return False
    return True
