"""Section 3 as the paper minimises it: sampled words, Adagrad, back to the sphere after every step.

The yardstick for `closed_form`: first on the words of the entity's own page, then on those around links to it.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int
from torch import Tensor

from deeped_ray.embeddings.config import ReferenceConfig
from deeped_ray.embeddings.evidence import NOTHING, Evidence
from deeped_ray.embeddings.objective import WordBag, draw, gradient, project


class Adagrad:
    """Adagrad on the sphere: one state per coordinate of every entity, kept over both phases."""

    def __init__(self, z: Float[Tensor, "b d"], *, learning_rate: float) -> None:
        self.z = project(z)
        self.learning_rate = learning_rate
        self._squares = torch.zeros_like(z)

    def step(self, grad: Float[Tensor, "b d"]) -> None:
        self._squares += grad.square()
        self.z = project(self.z - self.learning_rate * grad / (self._squares + 1e-10).sqrt())


def minimize(
    optimizer: Adagrad,
    words: Float[Tensor, "V d"],
    draws: Iterable[tuple[Int[Tensor, "b P"], Int[Tensor, "b P N"]]],
    *,
    gamma: float,
) -> None:
    """One optimiser step per item of `draws`."""
    for positives, negatives in draws:
        optimizer.step(gradient(optimizer.z, words[positives], words[negatives], gamma=gamma))


class Problem(NamedTuple):
    """One entity: its words in both phases, its title's, and its own random numbers."""

    phases: tuple[WordBag, WordBag]
    title: WordBag
    rng: np.random.Generator


def problems_of(evidence: Evidence, seeds: Sequence[int], config: ReferenceConfig) -> list[Problem]:
    """`seeds` belong to the entities, so that an entity's result does not depend on its neighbours."""
    nothing = WordBag(np.array([0]), np.array([1.0]))
    problems = []
    for entity, seed in enumerate(seeds):
        page, links, title = (WordBag(*bags.bag(entity)) for bags in evidence)
        # Differs from the paper: where one source is empty the other serves both phases, so that all take as many steps
        known = [bag for bag in (page, links) if len(bag.rows)] or [title if len(title.rows) else nothing]
        rng = np.random.Generator(np.random.Philox(key=[config.seed, seed]))
        problems.append(Problem((known[0], known[-1]), title, rng))
    return problems


def embed(
    evidence: Evidence,
    seeds: Sequence[int],
    words: Float[Tensor, "V d"],
    noise: npt.NDArray[np.float64],
    config: ReferenceConfig,
    *,
    block_entities: int = 32,
) -> npt.NDArray[np.float32]:
    """Unit vectors [E, d], zero where nothing is known; `block_entities` are optimised side by side."""
    problems = problems_of(evidence, seeds, config)
    blocks = [problems[start : start + block_entities] for start in range(0, len(problems), block_entities)]
    found = [vectors for block in blocks for vectors in _last(stages(block, words, noise, config, [config.link_steps]))]
    vectors: npt.NDArray[np.float32] = (
        torch.cat(found).cpu().numpy() if found else np.zeros((0, words.shape[1]), np.float32)
    )
    vectors[evidence.kinds == NOTHING] = 0
    return vectors


def _last(found: Iterator[Tensor]) -> list[Tensor]:
    return list(found)[-1:]


def stages(
    problems: Sequence[Problem],
    words: Float[Tensor, "V d"],
    noise: npt.NDArray[np.float64],
    config: ReferenceConfig,
    link_steps: Sequence[int],
) -> Iterator[Float[Tensor, "b d"]]:
    """The vectors after the page phase and each of these (rising) numbers of link steps."""
    start = torch.stack([_start(problem, words, config) for problem in problems])
    optimizer = Adagrad(start, learning_rate=config.learning_rate)
    minimize(optimizer, words, _steps(problems, 0, noise, config.page_steps, config), gamma=config.gamma)
    done = 0
    for steps in link_steps:
        minimize(optimizer, words, _steps(problems, 1, noise, steps - done, config), gamma=config.gamma)
        done = steps
        yield optimizer.z.clone()


def _start(problem: Problem, words: Float[Tensor, "V d"], config: ReferenceConfig) -> Float[Tensor, " d"]:
    random = torch.from_numpy(problem.rng.standard_normal(words.shape[1]).astype(np.float32)).to(words.device)
    # Differs from the paper: title words by default, as in the authors' code
    use_title = config.initialization == "title" and len(problem.title.rows) > 0
    return words[torch.from_numpy(problem.title.rows).to(words.device)].mean(dim=0) if use_title else random


def _steps(
    problems: Sequence[Problem], phase: int, noise: npt.NDArray[np.float64], steps: int, config: ReferenceConfig
) -> list[tuple[Tensor, Tensor]]:
    draws = [
        draw(
            problem.phases[phase],
            noise,
            problem.rng,
            steps=steps,
            num_positives=config.num_positives,
            num_negatives=config.num_negatives,
        )
        for problem in problems
    ]
    positives = torch.from_numpy(np.stack([draw.positives for draw in draws], axis=1))  # [steps, b, P]
    negatives = torch.from_numpy(np.stack([draw.negatives for draw in draws], axis=1))  # [steps, b, P, N]
    return list(zip(positives, negatives, strict=True))
