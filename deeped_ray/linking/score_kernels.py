"""What stands around attention and propagation, compiled: beliefs, and f of all candidates of a document."""

import numpy as np

from deeped_ray.linking.compiling import compiled, compiled_exactly
from deeped_ray.linking.kernels import dots

_LOWEST, _MIN_PRIOR = np.float32(-1e30), np.float32(1e-3)


@compiled_exactly
def beliefs(mu, num_candidates, log_belief, belief) -> None:  # type: ignore[no-untyped-def]
    """Softmax of mu over the candidates of each mention, and its logarithm."""
    for i in range(len(mu)):
        num = num_candidates[i]
        if num == 0:
            continue
        highest, total = mu[i, 0], np.float32(0)
        for s in range(1, num):
            highest = max(highest, mu[i, s])
        for s in range(num):
            total += np.exp(mu[i, s] - highest)
        total = np.log(total)
        for s in range(num):
            log_belief[i, s] = mu[i, s] - highest - total
            belief[i, s] = np.exp(log_belief[i, s])


@compiled
def assemble(first, prior, evidence, num_candidates, values) -> None:  # type: ignore[no-untyped-def]
    """A row for every candidate: what f is given."""
    row = 0
    for i in range(len(num_candidates)):
        for s in range(num_candidates[i]):
            values[row, 0] = first[i, s]
            values[row, 1] = np.log(max(prior[i, s], _MIN_PRIOR))
            for each in range(evidence.shape[2]):
                values[row, each + 2] = evidence[i, s, each]
            row += 1


@compiled
def layer(values, weight, bias, is_first, result) -> None:  # type: ignore[no-untyped-def]
    """W relu(x) + b for the rows x; the first layer has no ReLU before it."""
    if not is_first:
        for row in range(len(values)):
            for each in range(values.shape[1]):
                values[row, each] = max(values[row, each], np.float32(0))
    dots(values, weight, result)
    for row in range(len(result)):
        for each in range(result.shape[1]):
            result[row, each] += bias[each]


@compiled
def spread(values, num_candidates, rho) -> None:  # type: ignore[no-untyped-def]
    """One number a candidate, back to their places; the lowest number where there is no candidate."""
    row = 0
    for i in range(len(rho)):
        for s in range(rho.shape[1]):
            if s < num_candidates[i]:
                rho[i, s] = values[row, 0]
                row += 1
            else:
                rho[i, s] = _LOWEST
