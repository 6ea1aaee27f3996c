"""What stands around attention and propagation, compiled: products with folded vectors, beliefs, f of all candidates."""

import numpy as np

from deeped_ray.linking.compiling import compiled, compiled_exactly
from deeped_ray.linking.kernels import dots, dots_of, weigh

_LOWEST, _MIN_PRIOR, _ZERO = np.float32(-1e30), np.float32(1e-3), np.float32(0)


@compiled
def take_wide(vectors, rows, result) -> None:  # type: ignore[no-untyped-def]
    """The rows of two layers, beside zeros."""
    own, extra = vectors
    for i in range(len(rows)):
        for k in range(own.shape[1], result.shape[1]):
            result[i, k] = 0
        if rows[i] < len(own):
            for k in range(own.shape[1]):
                result[i, k] = own[rows[i], k]
        else:
            for k in range(own.shape[1]):
                result[i, k] = extra[rows[i] - len(own), k]


@compiled
def local_scores(  # type: ignore[no-untyped-def]
    entities, table, slots, candidates, num_candidates, context, num_words, R, psi, beta
) -> None:
    """Psi and beta (section 4). The table holds A x_w and B x_w of the words of the document, at `slots`.

    Psi(e, c) = x_e' sum over w of beta(w) B x_w: the words that are kept are added up first.
    """
    scores = np.empty((len(entities), len(slots)), np.float32)
    dots_of(entities, table, 0, slots, scores)
    strongest, u = np.empty(len(slots), np.float32), np.empty(context.shape[1], np.float32)
    highest, meant = np.empty(R, np.float32), np.empty(entities.shape[1], np.float32)
    for i in range(len(candidates)):
        num, words = num_candidates[i], num_words[i]
        if num == 0 or words == 0:
            continue
        strongest[:] = scores[candidates[i, 0]]
        for s in range(1, num):
            _raise_to(scores[candidates[i, s]], strongest)
        for k in range(words):
            u[k] = strongest[context[i, k]]
        weigh(u, words, highest, beta[i])
        meant[:] = 0
        for k in range(words):
            if beta[i, k] > 0:
                _add(beta[i, k], table[slots[context[i, k]], 1], meant)
        for s in range(num):
            psi[i, s] = product(entities[candidates[i, s]], meant)


@compiled
def _raise_to(values, highest) -> None:  # type: ignore[no-untyped-def]
    for each in range(len(highest)):
        highest[each] = max(highest[each], values[each])


@compiled
def _add(share, vector, total) -> None:  # type: ignore[no-untyped-def]
    for each in range(len(total)):
        total[each] += share * vector[each]


@compiled
def pair_scores(entities, table, slots, scale, pairs) -> None:  # type: ignore[no-untyped-def]
    """Phi of all pairs of entities (section 5). The table holds C x_e at `slots`."""
    dots_of(entities, table, 0, slots, pairs)
    for i in range(len(pairs)):
        for j in range(pairs.shape[1]):
            pairs[i, j] *= scale


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
def combine(  # type: ignore[no-untyped-def]
    first, prior, evidence, num_candidates, weights, biases, rho
) -> None:
    """f(first, log p(e|m), evidence) of every candidate; the lowest number where there is none."""
    total, row = num_candidates.sum(), 0
    values = np.zeros((total, weights[0].shape[1]), np.float32)
    for i in range(len(rho)):
        for s in range(num_candidates[i]):
            values[row, 0], values[row, 1] = first[i, s], np.log(max(prior[i, s], _MIN_PRIOR))
            for each in range(evidence.shape[2]):
                values[row, each + 2] = evidence[i, s, each]
            row += 1
    for place in range(len(weights) - 1):
        hidden = np.zeros((total, weights[place + 1].shape[1]), np.float32)
        dots(values, weights[place], hidden)
        _activate(hidden, biases[place])
        values = hidden
    row = 0
    for i in range(len(rho)):
        for s in range(rho.shape[1]):
            if s < num_candidates[i]:
                rho[i, s] = product(values[row], weights[-1][0]) + biases[-1][0]
                row += 1
            else:
                rho[i, s] = _LOWEST


@compiled
def _activate(hidden, bias) -> None:  # type: ignore[no-untyped-def]
    """relu(h + b)."""
    for row in range(len(hidden)):
        for each in range(len(bias)):
            value = hidden[row, each] + bias[each]
            hidden[row, each] = value if value > _ZERO else _ZERO


@compiled
def product(values, weight):  # type: ignore[no-untyped-def]
    total = _ZERO
    for k in range(len(values)):
        total += values[k] * weight[k]
    return total
