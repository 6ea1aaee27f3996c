"""Section 3 without steps: the objective's negatives taken as Gaussian, solved for all entities by one matrix.

x_w      [V, d]   word vectors                        mu, Sigma   their mean and covariance under q(w) = p(w)^alpha
x_e bar  [E, d]   mean word vector under p(w|e)       z           [E, d] entity vectors on the unit sphere

With <z, x_w-> Gaussian, of mean <mu, z> and variance s^2 = z' Sigma z, and the hinge taken at the mean of the positives,

    J(z) = s (u Phi(u) + phi(u)),    u = (gamma - <z, x_e bar - mu>) / s.

Its stationary points on the sphere satisfy ((phi(u)/s) Sigma + kappa I) z = Phi(u) (x_e bar - mu), that is

    z = normalise((Sigma + lambda I)^-1 (x_e bar - mu)),

where lambda = (gamma Phi(u) - J) s / phi(u) stands for the margin: the larger gamma, the larger lambda, up to the plain
centroid x_e bar - mu at infinity. One lambda for all entities makes z a weighted sum of x'_w = (Sigma + lambda I)^-1 (x_w - mu), which is computed once.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, NamedTuple

import numpy as np
import numpy.typing as npt

from deeped_ray.embeddings.evidence import Evidence
from deeped_ray.types import DeepEdError

if TYPE_CHECKING:
    import torch

Floats = npt.NDArray[np.float32]
_BLOCK = 8192


@dataclass(frozen=True, kw_only=True)
class ClosedFormConfig:
    """Method `closed-form`, the default."""

    page_share: Annotated[float, "weight of the entity's own page in p(w|e)"] = 0.7
    link_share: Annotated[float, "weight of the words around links to the entity"] = 0.3
    title_share: Annotated[float, "weight of the words of its title"] = 0.05
    # Differs from the paper, which fixes the margin; at the median entity this is a margin of 0.05 to 0.1
    ridge: Annotated[
        float,
        "lambda, as a multiple of the mean eigenvalue of the word covariance. 0.35 is close to the paper's margin; inf gives centroids.",
    ] = 0.35

    def __post_init__(self) -> None:
        if min(self.page_share, self.link_share, self.title_share) < 0 or self.page_share + self.link_share <= 0:
            raise DeepEdError(
                "`page_share`, `link_share` and `title_share` must be at least 0, and one of the first two above 0."
            )
        if not self.ridge > 0:
            raise DeepEdError(f"`ridge` must be positive, not {self.ridge:g}.")


class Noise(NamedTuple):
    """Mean and covariance of the word vectors under q."""

    mean: npt.NDArray[np.float64]
    covariance: npt.NDArray[np.float64]


def noise_of(vectors: Floats, counts: npt.NDArray[np.int64], *, alpha: float) -> Noise:
    """mu = E_q x_w and Sigma = E_q x_w x_w' - mu mu', in float64 and a block of words at a time."""
    q = np.asarray(counts, dtype=np.float64) ** alpha
    q /= q.sum()
    dimension = vectors.shape[1]
    mean, second = np.zeros(dimension), np.zeros((dimension, dimension))
    for start in range(0, len(vectors), _BLOCK):
        block, weights = vectors[start : start + _BLOCK].astype(np.float64), q[start : start + _BLOCK]
        mean += weights @ block
        second += (block * weights[:, None]).T @ block
    return Noise(mean, second - np.outer(mean, mean))


def inverse_of(noise: Noise, *, ridge: float) -> npt.NDArray[np.float64]:
    """lambda (Sigma + lambda I)^-1, lambda = ridge * tr(Sigma) / d: scaled so that an infinite ridge gives the identity."""
    dimension = len(noise.mean)
    lam = ridge * np.trace(noise.covariance) / dimension
    return np.eye(dimension) if np.isinf(ridge) else np.linalg.inv(noise.covariance / lam + np.eye(dimension))


def contrasts(vectors: Floats, noise: Noise, *, ridge: float) -> Iterator[Floats]:
    """x'_w = (Sigma + lambda I)^-1 (x_w - mu), up to a common factor; a block of words at a time."""
    inverse = inverse_of(noise, ridge=ridge)
    for start in range(0, len(vectors), _BLOCK):
        wide = vectors[start : start + _BLOCK].astype(np.float64)
        yield ((wide - noise.mean) @ inverse).astype(np.float32)


def contrast(vectors: Floats, noise: Noise, *, ridge: float) -> Floats:
    """`contrasts` of few words, in one piece."""
    return np.concatenate(list(contrasts(vectors, noise, ridge=ridge)))


def embed(evidence: Evidence, contrasts: "torch.Tensor", config: ClosedFormConfig) -> Floats:
    """z = normalise(sum_w p(w|e) x'_w), [E, d]; zero where nothing is known.

    p(w|e) mixes the sources by their shares; absent ones give theirs away. Every entity is summed in the order of its own
    words, so the result does not depend on which others are with it.
    """
    import torch  # takes a second to import, and texts of a request need none of it

    total = torch.zeros((len(evidence.page), contrasts.shape[1]), device=contrasts.device)
    for bags, weights in zip(evidence, weights_of(evidence, config), strict=True):
        total += torch.nn.functional.embedding_bag(
            torch.from_numpy(bags.rows).to(contrasts.device),
            contrasts,
            torch.from_numpy(bags.offsets[:-1].astype(np.int32)).to(contrasts.device),
            mode="sum",
            per_sample_weights=torch.from_numpy(weights).to(contrasts.device),
        )
    vectors: Floats = torch.nn.functional.normalize(total, dim=-1).cpu().numpy()
    return vectors


def weights_of(evidence: Evidence, config: ClosedFormConfig) -> list[Floats]:
    """p(w|e) of the words of each source, up to a factor."""
    has_text = evidence.kinds >= 2
    shares = (config.page_share, config.link_share, np.where(has_text, config.title_share, 1.0))
    return [
        (bags.counts * (share / np.maximum(bags.masses, 1))[bags.owners]).astype(np.float32)
        for bags, share in zip(evidence, shares, strict=True)
    ]
