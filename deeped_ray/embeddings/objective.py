"""Section 3: the max-margin objective of an entity vector, and the paper's way to minimise it.

z      [b, d]        entity vectors on the unit sphere, b independent problems at once
x_pos  [b, P, d]     vectors of words drawn from p(w|e), the entity's own words
x_neg  [b, P, N, d]  vectors of words drawn from q(w) = p(w)^alpha, N for each positive word
gamma                the margin
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float, Int
from torch import Tensor

Rows = npt.NDArray[np.int64]


def margins(
    z: Float[Tensor, "b d"], x_pos: Float[Tensor, "b P d"], x_neg: Float[Tensor, "b P N d"], *, gamma: float
) -> Float[Tensor, "b P N"]:
    """gamma - <z, x_w+ - x_w->: what the ReLU of the objective is applied to."""
    positive = torch.einsum("bd,bpd->bp", z, x_pos)
    negative = torch.einsum("bd,bpnd->bpn", z, x_neg)
    return gamma - positive[:, :, None] + negative


def objective(
    z: Float[Tensor, "b d"], x_pos: Float[Tensor, "b P d"], x_neg: Float[Tensor, "b P N d"], *, gamma: float
) -> Float[Tensor, " b"]:
    """J(z; e) = E_w+ E_w- [gamma - <z, x_w+ - x_w->]_+ on the sampled words."""
    return margins(z, x_pos, x_neg, gamma=gamma).relu().mean(dim=(1, 2))


def gradient(
    z: Float[Tensor, "b d"], x_pos: Float[Tensor, "b P d"], x_neg: Float[Tensor, "b P N d"], *, gamma: float
) -> Float[Tensor, "b d"]:
    """dJ/dz = -mean over violated pairs of (x_w+ - x_w-); written out, since it needs no autograd."""
    violated = (margins(z, x_pos, x_neg, gamma=gamma) > 0).to(z.dtype)  # [b, P, N]
    pull = torch.einsum("bpn,bpd->bd", violated, x_pos)
    push = torch.einsum("bpn,bpnd->bd", violated, x_neg)
    return (push - pull) / violated[0].numel()


def project(z: Float[Tensor, "b d"]) -> Float[Tensor, "b d"]:
    """Back to the unit sphere, on which x_e is defined."""
    return torch.nn.functional.normalize(z, dim=-1)


class WordBag(NamedTuple):
    """An entity's words: rows of the word matrix with their weights in p(w|e)."""

    rows: Rows
    weights: npt.NDArray[np.float64]


class Draws(NamedTuple):
    """Words for every step of one entity, as rows of the word matrix."""

    positives: Rows  # [steps, P]
    negatives: Rows  # [steps, P, N]


def noise_cdf(counts: npt.NDArray[np.int64], *, alpha: float) -> npt.NDArray[np.float64]:
    """Cumulative q(w) proportional to p(w)^alpha."""
    weights = np.asarray(counts, dtype=np.float64) ** alpha
    cumulative: npt.NDArray[np.float64] = np.cumsum(weights) / weights.sum()
    return cumulative


def draw(
    bag: WordBag,
    noise: npt.NDArray[np.float64],
    rng: np.random.Generator,
    *,
    steps: int,
    num_positives: int,
    num_negatives: int,
) -> Draws:
    """All words an entity will see; its own generator makes them independent of how entities are sharded."""
    own = np.cumsum(bag.weights) / bag.weights.sum()
    positives = bag.rows[_pick(own, rng.random((steps, num_positives)))]
    negatives = _pick(noise, rng.random((steps, num_positives, num_negatives)))
    return Draws(positives, negatives)


def _pick(cumulative: npt.NDArray[np.float64], uniform: npt.NDArray[np.float64]) -> Rows:
    picked: Rows = np.minimum(np.searchsorted(cumulative, uniform, side="right"), len(cumulative) - 1)
    return picked


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
