"""Section 3: the max-margin objective of an entity vector, and the words it is sampled with.

z      [b, d]        entity vectors on the unit sphere, b independent problems at once
x_pos  [b, P, d]     vectors of words drawn from p(w|e), the entity's own words
x_neg  [b, P, N, d]  vectors of words drawn from q(w) = p(w)^alpha, N for each positive word
gamma                the margin
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from jaxtyping import Float
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


def exact_objective(
    z: npt.NDArray[np.float32],
    x_pos: npt.NDArray[np.float32],
    weights: npt.NDArray[np.float64],
    x_neg: npt.NDArray[np.float32],
    *,
    gamma: float,
) -> float:
    """J(z; e), exact over an entity's words with their weights and over a pool of negatives: n log n by sorted scores."""
    negative = np.sort((x_neg @ z).astype(np.float64))
    above = np.append(np.cumsum(negative[::-1])[::-1], 0.0)  # sums of the scores from a place on
    margin = gamma - (x_pos @ z).astype(np.float64)
    first = np.searchsorted(negative, -margin)
    violated = (len(negative) - first) * margin + above[first]
    return float(weights @ violated / (len(negative) * weights.sum()))
