"""Entities embedded per second: blocks of entities with a written-out gradient against one entity at a time in plain torch.

The baseline is the paper read literally: an autograd loss and torch.optim.Adagrad per entity. Same objective, same draws
per step, one process, one thread for both.
"""

import numpy as np
import numpy.typing as npt
import torch
from _harness import best_seconds, finish, parse

from deeped_ray.artifacts import KnowledgeBase
from deeped_ray.embeddings import objective
from deeped_ray.embeddings.trainer import EmbeddingConfig, EntityWords, embed_block
from deeped_ray.embeddings.words import Words

NUM_ENTITIES = 32
CONFIG = EmbeddingConfig(link_steps=0)


def embed_one_by_one(sources: EntityWords, words: torch.Tensor, noise: npt.NDArray[np.float64]) -> torch.Tensor:
    vectors = []
    for entity_id in range(NUM_ENTITIES):
        rng = np.random.default_rng(entity_id)
        z = torch.nn.Parameter(words[torch.from_numpy(sources.title(entity_id).rows)].mean(dim=0, keepdim=True))
        optimizer = torch.optim.Adagrad([z], lr=CONFIG.learning_rate)
        draws = objective.draw(
            sources.page(entity_id),
            noise,
            rng,
            steps=CONFIG.page_steps,
            num_positives=CONFIG.num_positives,
            num_negatives=CONFIG.num_negatives,
        )
        for positives, negatives in zip(draws.positives, draws.negatives, strict=True):
            optimizer.zero_grad()
            x_pos, x_neg = words[torch.from_numpy(positives)][None], words[torch.from_numpy(negatives)][None]
            objective.objective(z, x_pos, x_neg, gamma=CONFIG.gamma).sum().backward()
            optimizer.step()
            with torch.no_grad():
                z.div_(z.norm())
        vectors.append(z.detach())
    return torch.cat(vectors)


def main() -> None:
    args = parse(__doc__, needs_kb=True)
    torch.set_num_threads(1)
    kb = KnowledgeBase(args.kb)
    corpus, words = kb.open("corpus"), Words(kb.open("words"))
    sources = EntityWords(corpus, words, words.rows_of_corpus_ids(len(corpus.array("vocabulary.counts"))))
    vectors, noise = torch.from_numpy(np.array(words.vectors)), objective.noise_cdf(words.counts, alpha=CONFIG.alpha)
    ours = best_seconds(lambda: embed_block(range(NUM_ENTITIES), sources, vectors, noise, CONFIG))
    baseline = best_seconds(lambda: embed_one_by_one(sources, vectors, noise), repeats=2)
    finish(
        args,
        claim=f"embedding {NUM_ENTITIES} entities with {CONFIG.page_steps} steps each, d = {vectors.shape[1]}",
        unit="entities",
        ours=NUM_ENTITIES / ours,
        baseline=NUM_ENTITIES / baseline,
        baseline_name="one entity at a time, autograd",
        dimension=vectors.shape[1],
    )


if __name__ == "__main__":
    main()
