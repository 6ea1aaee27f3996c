"""The fitted model, compiled: the equations of `scoring`, from vectors to scores, window after window in one call."""

import numpy as np

from deeped_ray.linking.answer_kernels import support
from deeped_ray.linking.compiling import compiled, compiled_exactly
from deeped_ray.linking.kernels import dots, dots_of, propagate, weigh
from deeped_ray.linking.layout_kernels import CELLS, CONTEXTS, ENTITIES, PAIRS, WORDS, window_of
from deeped_ray.linking.memory_kernels import fetch_ahead

_LOWEST, _MIN_PRIOR, _ZERO = np.float32(-1e30), np.float32(1e-3), np.float32(0)


@compiled
def score_all(  # type: ignore[no-untyped-def]
    vectors, group, words, times_entities, R, scale, counts_itself, is_global, has_g, uses_log, explains, messages, g, f
):
    """`score` of every window. `words` and `times_entities` have the slots of all windows, one after the other."""
    rho, psi, belief, beta, support = empty_scores(group, is_global, explains)
    layout, widths, entities = group[:3]
    for w in range(len(widths)):
        document = window_of(group, w)
        scales = np.float32(scale), pairwise_scale(scale, document[1], counts_itself)
        of_words = slice(layout[w, WORDS], layout[w + 1, WORDS])
        of_entities = slice(layout[w, ENTITIES], layout[w + 1, ENTITIES])
        own = score(
            vectors,
            entities[of_entities],
            (words[0], words[1][of_words]),
            (times_entities[0], times_entities[1][of_entities]),
            document,
            R,
            scales,
            is_global,
            has_g,
            uses_log,
            explains,
            messages,
            g,
            f,
        )
        put(own[0], psi, layout[w, CELLS])
        put(own[1], beta, layout[w, CONTEXTS])
        put(own[3], rho, layout[w, CELLS])
        if is_global:
            put(own[2], belief, layout[w, CELLS])
        if explains and is_global:
            put(own[4], support, layout[w, PAIRS])
    return rho, psi, belief, beta, support


@compiled
def empty_scores(group, is_global, explains):  # type: ignore[no-untyped-def]
    """rho, psi, belief, beta and support of all windows, to be filled. Without a belief or support, these are empty."""
    layout = group[0]
    num_cells, num_contexts, num_pairs = layout[-1, CELLS], layout[-1, CONTEXTS], layout[-1, PAIRS]
    rho, psi = np.empty(num_cells, np.float32), np.empty(num_cells, np.float32)
    belief = np.empty(num_cells if is_global else 0, np.float32)
    return (
        rho,
        psi,
        belief,
        np.empty(num_contexts, np.float32),
        np.empty(num_pairs if is_global and explains else 0, np.float32),
    )


@compiled
def put(values, target, at) -> None:  # type: ignore[no-untyped-def]
    target[at : at + values.size] = values.reshape(values.size)


@compiled
def pairwise_scale(scale, num_candidates, counts_itself):  # type: ignore[no-untyped-def]
    """The factor of Phi: 2 / (n - 1), or 2 / n, of the mentions that have candidates."""
    number = 0 if counts_itself else -1
    for i in range(len(num_candidates)):
        number += num_candidates[i] > 0
    return np.float32(scale * 2 / max(1, number))


@compiled
def score(  # type: ignore[no-untyped-def]
    vectors, entities, words, times_entities, document, R, scales, is_global, has_g, uses_log, explains, messages, g, f
):
    """psi, beta, belief, rho and support. `words` and `times_entities` are tables of `folded` with the slots of the document.

    `messages` are delta, whether the receiver is left out, and T.
    """
    psi, beta, pairs, unary = before_messages(
        vectors, entities, words, times_entities, document, R, scales, is_global, has_g, g
    )
    mu = psi
    if is_global:
        candidates, num_candidates = document[:2]
        (n, S), (delta, excludes, T) = psi.shape, messages
        width = -(-n * S // 64) * 64
        mu = np.zeros((n, S), np.float32)
        softmax, damped = np.empty((1, n, width), np.float32), np.empty((1, n, width), np.float32)
        strongest = np.empty((1, n, 1), np.int8)
        propagate(unary, pairs, candidates, num_candidates, delta, excludes, T, False, softmax, damped, strongest, mu)
    belief, rho, support = after_messages(mu, psi, document, pairs, scales, is_global, uses_log, explains, f)
    return psi, beta, belief, rho, support


@compiled
def before_messages(  # type: ignore[no-untyped-def]
    vectors, entities, words, times_entities, document, R, scales, is_global, has_g, g
):
    """Psi and beta (section 4), Phi of all pairs of entities, and what each mention itself says of its candidates (section 5)."""
    candidates, num_candidates, context, num_words, prior, evidence = document
    scale, pairwise_scale = scales
    table, slots = words
    wide = np.empty((len(entities), table.shape[2]), np.float32)
    take_wide(vectors, entities, wide)
    psi, beta = np.zeros(candidates.shape, np.float32), np.zeros(context.shape, np.float32)
    local_scores(wide, table, slots, candidates, num_candidates, context, num_words, R, psi, beta)
    if not is_global:
        return psi, beta, np.empty((0, 0), np.float32), psi
    pairs = np.empty((len(entities), len(entities)), np.float32)
    pair_scores(wide, times_entities[0], times_entities[1], pairwise_scale, pairs)
    unary = scaled(psi, scale)
    return psi, beta, pairs, combine(unary, prior, evidence, num_candidates, g) if has_g else unary


@compiled
def after_messages(mu, psi, document, pairs, scales, is_global, uses_log, explains, f):  # type: ignore[no-untyped-def]
    """Beliefs, final scores, and how far the answer of one mention speaks for that of another."""
    candidates, num_candidates, _, _, prior, evidence = document
    log_belief, belief = np.zeros(psi.shape, np.float32), np.zeros(psi.shape, np.float32)
    if not is_global:
        return belief, combine(scaled(psi, scales[0]), prior, evidence, num_candidates, f), pairs
    beliefs(mu, num_candidates, log_belief, belief)
    rho = combine(log_belief if uses_log else belief, prior, evidence, num_candidates, f)
    gain = np.empty((len(rho), len(rho)) if explains else (0, 0), np.float32)
    if explains:
        support(rho, candidates, num_candidates, pairs, gain)
    return belief, rho, gain


@compiled
def scaled(values, scale):  # type: ignore[no-untyped-def]
    result = np.empty(values.shape, np.float32)
    for i in range(len(values)):
        for s in range(values.shape[1]):
            result[i, s] = scale * values[i, s]
    return result


@compiled
def take_wide(vectors, rows, result) -> None:  # type: ignore[no-untyped-def]
    """The rows of two layers, beside zeros."""
    own, extra = vectors
    for i in range(len(rows)):
        fetch_ahead(own, rows, i, len(rows))
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
def combine(first, prior, evidence, num_candidates, layers):  # type: ignore[no-untyped-def]
    """f(first, log p(e|m), evidence) of every candidate; the lowest number where there is none."""
    weights, biases = layers
    rho = np.empty(first.shape, np.float32)
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
    return rho


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
