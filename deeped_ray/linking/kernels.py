"""Sections 4 and 5 fused for processors: what `attention` and `lbp` say equation by equation, document by document.

Torch's operators write every intermediate of a padded batch to memory, forwards and backwards. Here a document stays in
the cache: nothing is padded or gathered, and the backward pass follows the maxima found going forwards. The compiled code
runs without Python's lock, so that documents can go to several threads. Sums have one order, whatever else is in the
batch and however many threads there are.
"""

import numpy as np

from deeped_ray.linking.compiling import compiled

_LOWEST = np.float32(-1e30)
_TINY = 1e-37


def can_propagate(*, delta: float, T: int) -> bool:
    """Whether messages, kept as float32 probabilities, cannot vanish: they stay above (1 - delta)^T."""
    return (1 - delta) ** T > _TINY


def _constants(*values: float) -> tuple[np.float32, ...]:
    return tuple(np.float32(value) for value in values)


# exp and log by polynomials, with Cephes's coefficients, so that the compiler can take several numbers at once: the C
# library's take one at a time, and half of the time would go there. Errors stay below 3e-7 of the result.
_HALF, _ONE, _LOG2_E, _LN2_HIGH, _LN2_LOW = _constants(0.5, 1.0, 1.44269504, 0.693359375, -2.12194440e-4)
_E0, _E1, _E2, _E3, _E4, _E5 = _constants(
    1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1
)
_L0, _L1, _L2, _L3, _L4 = _constants(
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1
)
_L5, _L6, _L7, _L8 = _constants(-1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1)
_LEAST_EXPONENT, _ROOT_HALF = _constants(-87.0, 0.70710678)


@compiled
def exp(x):  # type: ignore[no-untyped-def]
    """Of a number up to 0; below -87 it is as good as 0."""
    x = max(x, _LEAST_EXPONENT)
    power = np.floor(x * _LOG2_E + _HALF)
    rest = x - power * _LN2_HIGH - power * _LN2_LOW
    value = ((((_E0 * rest + _E1) * rest + _E2) * rest + _E3) * rest + _E4) * rest + _E5
    value = value * rest * rest + rest + _ONE
    return value * np.int32((np.int32(power) + np.int32(127)) << np.int32(23)).view(np.float32)


@compiled
def log(x):  # type: ignore[no-untyped-def]
    """Of a positive number."""
    bits = np.float32(x).view(np.int32)
    part = np.int32((bits & np.int32(0x007FFFFF)) | np.int32(0x3F000000)).view(np.float32)
    power = np.float32((bits >> np.int32(23)) - np.int32(126))
    is_small = part < _ROOT_HALF
    power = power - _ONE if is_small else power
    part = part + part - _ONE if is_small else part - _ONE
    square = part * part
    value = ((((_L0 * part + _L1) * part + _L2) * part + _L3) * part + _L4) * part + _L5
    value = (((value * part + _L6) * part + _L7) * part + _L8) * part * square
    return part + (value + _LN2_LOW * power - _HALF * square) + _LN2_HIGH * power


@compiled
def dots(x, y, result) -> None:  # type: ignore[no-untyped-def]
    """x_i' y_j for all pairs of rows: as fast as BLAS at our sizes, and without its threads."""
    i = 0
    while i < len(x):
        height = min(4, len(x) - i)
        for j in range(0, len(y), 2):
            width = min(2, len(y) - j)
            if height < 4 or width < 2:
                for a in range(i, i + height):
                    for b in range(j, j + width):
                        total = np.float32(0)
                        for k in range(x.shape[1]):
                            total += x[a, k] * y[b, k]
                        result[a, b] = total
                continue
            # eight sums at once, so that a number that is read is used several times
            s00 = s01 = s10 = s11 = s20 = s21 = s30 = s31 = np.float32(0)
            for k in range(x.shape[1]):
                y0, y1 = y[j, k], y[j + 1, k]
                s00 += x[i, k] * y0
                s01 += x[i, k] * y1
                s10 += x[i + 1, k] * y0
                s11 += x[i + 1, k] * y1
                s20 += x[i + 2, k] * y0
                s21 += x[i + 2, k] * y1
                s30 += x[i + 3, k] * y0
                s31 += x[i + 3, k] * y1
            result[i, j], result[i, j + 1] = s00, s01
            result[i + 1, j], result[i + 1, j + 1] = s10, s11
            result[i + 2, j], result[i + 2, j + 1] = s20, s21
            result[i + 3, j], result[i + 3, j + 1] = s30, s31
        i += height


@compiled
def dots_of(x, table, form, rows, result) -> None:  # type: ignore[no-untyped-def]
    """x_i' y_j, where y_j is the product of row rows[j] with a form, as `folded` keeps it."""
    width = x.shape[1]
    for i in range(0, len(x), 4):
        for j in range(0, len(rows), 2):
            if i + 4 > len(x) or j + 2 > len(rows):
                for a in range(i, min(i + 4, len(x))):
                    for b in range(j, min(j + 2, len(rows))):
                        row, total = rows[b], np.float32(0)
                        for k in range(width):
                            total += x[a, k] * table[row, form, k]
                        result[a, b] = total
                continue
            r0, r1 = rows[j], rows[j + 1]
            s00 = s01 = s10 = s11 = s20 = s21 = s30 = s31 = np.float32(0)
            for k in range(width):
                y0, y1 = table[r0, form, k], table[r1, form, k]
                s00 += x[i, k] * y0
                s01 += x[i, k] * y1
                s10 += x[i + 1, k] * y0
                s11 += x[i + 1, k] * y1
                s20 += x[i + 2, k] * y0
                s21 += x[i + 2, k] * y1
                s30 += x[i + 3, k] * y0
                s31 += x[i + 3, k] * y1
            result[i, j], result[i, j + 1] = s00, s01
            result[i + 1, j], result[i + 1, j + 1] = s10, s11
            result[i + 2, j], result[i + 2, j + 1] = s20, s21
            result[i + 3, j], result[i + 3, j + 1] = s30, s31


@compiled
def context_fits(running, left, right, sizes, vectors, candidates, fits) -> None:  # type: ignore[no-untyped-def]
    """Cosine of candidates with the sum of the words around a span, up to so many on each side.

    running[i] is the sum of the first i word vectors. The words before a span end at left, those after it begin at right.
    """
    context = np.empty(running.shape[1], np.float32)
    for i in range(len(candidates)):
        for c in range(len(sizes)):
            low, high = max(left[i] - sizes[c], 0), min(right[i] + sizes[c], len(running) - 1)
            norm = np.float32(1e-6)
            for d in range(len(context)):
                context[d] = running[left[i], d] - running[low, d] + running[high, d] - running[right[i], d]
                norm += context[d] * context[d]
            norm = np.sqrt(norm)
            for k in range(candidates.shape[1]):
                row = candidates[i, k]
                if row < 0:
                    continue
                total = np.float32(0)
                for d in range(len(context)):
                    total += vectors[row, d] * context[d]
                fits[c, i, k] = total / norm


@compiled
def attend(  # type: ignore[no-untyped-def]
    a_scores, b_scores, candidates, num_candidates, context, num_words, R, psi, beta, strongest
) -> None:
    K = context.shape[1]
    u, highest = np.empty(K, np.float32), np.empty(R, np.float32)
    for i in range(len(candidates)):
        num, words = num_candidates[i], num_words[i]
        if num == 0 or words == 0:
            continue
        for k in range(words):
            u[k] = _LOWEST
        for s in range(num):
            e = candidates[i, s]
            for k in range(words):
                value = a_scores[e, context[i, k]]
                if value > u[k]:
                    u[k] = value
                    strongest[i, k] = e
        weigh(u, words, highest, beta[i])
        for s in range(num):
            e = candidates[i, s]
            score = np.float32(0)
            for k in range(words):
                score += beta[i, k] * b_scores[e, context[i, k]]
            psi[i, s] = score


@compiled
def weigh(u, words, highest, beta) -> None:  # type: ignore[no-untyped-def]
    """Softmax of the largest values of u, as many as fit into `highest`; beta is 0 before. Of equals the first ones count."""
    _keep_largest(u, words, highest)
    threshold, num_ties = highest[0], 0
    for k in range(len(highest)):
        num_ties += highest[k] == threshold
    total = np.float32(0)
    for k in range(words):
        if u[k] > threshold or (u[k] == threshold and num_ties > 0):
            num_ties -= u[k] == threshold
            beta[k] = exp(u[k] - highest[-1])
    for k in range(words):
        total += beta[k]
    for k in range(words):
        beta[k] /= total


@compiled
def _keep_largest(values, length, largest) -> None:  # type: ignore[no-untyped-def]
    """The largest of the first values in ascending order; by insertion, since numba takes seconds to compile a sort."""
    for k in range(len(largest)):
        largest[k] = _LOWEST
    for k in range(length):
        value, place = values[k], 0
        while place < len(largest) and largest[place] < value:
            if place:
                largest[place - 1] = largest[place]
            place += 1
        if place:
            largest[place - 1] = value


@compiled
def attend_backward(  # type: ignore[no-untyped-def]
    b_scores, candidates, num_candidates, context, num_words, beta, strongest, d_psi, d_a, d_b
) -> None:
    d_beta = np.empty(context.shape[1], np.float32)
    for i in range(len(candidates)):
        num, words = num_candidates[i], num_words[i]
        if num == 0:
            continue
        d_beta[:] = 0
        for s in range(num):
            e, gradient = candidates[i, s], d_psi[i, s]
            for k in range(words):
                w = context[i, k]
                d_b[e, w] += gradient * beta[i, k]
                d_beta[k] += gradient * b_scores[e, w]
        mean = np.float32(0)
        for k in range(words):
            mean += beta[i, k] * d_beta[k]
        for k in range(words):
            d_a[strongest[i, k], context[i, k]] += beta[i, k] * (d_beta[k] - mean)


def width_of(n: int, S: int) -> int:
    """Numbers that a row of messages takes: one for every candidate of every receiver, and some for nobody.

    Compiled loops take 64 at once. What is left over would take as long as the rest.
    """
    return -(-n * S // 64) * 64


@compiled
def propagate(  # type: ignore[no-untyped-def]
    psi, scores, candidates, num_candidates, delta, excludes, T, keep, softmax, damped, strongest, mu
) -> None:
    """Messages are [sender i, all candidates r of all receivers j at r * n + j]: rows of `width_of`, long enough to pay."""
    n, S = psi.shape
    width = softmax.shape[2]
    phi = np.empty((n, S, width), np.float32)
    # the candidate that each place belongs to; those of nobody get a number beside which all others are nothing
    receiver, nobody = np.zeros(width, np.uint32), np.full(width, _LOWEST)
    for j in range(n):
        for r in range(num_candidates[j]):
            receiver[r * n + j], nobody[r * n + j] = candidates[j, r], 0
    sent, before = np.zeros((n, width), np.float32), np.zeros((n, width), np.float32)
    arrived, leaving = np.zeros(width, np.float32), np.zeros(width, np.float32)
    best, better = np.empty(width, np.float32), np.empty(width, np.float32)
    origin, new_origin = np.empty(width, np.int32), np.empty(width, np.int32)
    rest = _ONE - delta
    for i in range(n):
        for s in range(num_candidates[i]):
            row = scores[candidates[i, s]]
            for each in range(width):
                phi[i, s, each] = row[receiver[each]] + nobody[each]
            for r in range(S):
                phi[i, s, r * n + i] = _LOWEST
    for t in range(T):
        now, last = (t, t - 1) if keep else (0, 0)
        sent, before = before, sent
        for i in range(n):
            if num_candidates[i] == 0:
                continue
            for s in range(num_candidates[i]):
                total = psi[i, s] + arrived[s * n + i]
                for each in range(width):
                    leaving[each] = total
                if excludes:
                    for r in range(S):
                        for j in range(n):
                            leaving[r * n + j] -= before[j, s * n + i]
                if keep:
                    _keep_highest(best, origin, leaving, phi[i, s], np.int32(s), better, new_origin)
                    best, better, origin, new_origin = better, best, new_origin, origin
                else:
                    _raise_to(leaving, phi[i, s], s == 0, best)
            probability, mixed = softmax[now, i], damped[now, i]
            _softmax(best, n, S, probability)
            for each in range(width if keep else 0):
                strongest[now, i, each] = origin[each]
            for each in range(width):
                old = damped[last, i, each] if t else _ONE  # the first messages are log 1
                mixed[each] = delta * probability[each] + rest * old
            for each in range(width):
                sent[i, each] = log(mixed[each])
            for r in range(S):
                sent[i, r * n + i] = 0
        for each in range(width):
            arrived[each] = 0
        for i in range(n):
            for each in range(width):
                arrived[each] += sent[i, each]
    for i in range(n):
        for s in range(num_candidates[i]):
            mu[i, s] = psi[i, s] + arrived[s * n + i]


@compiled
def _raise_to(leaving, phi, is_first, best) -> None:  # type: ignore[no-untyped-def]
    """max(best, leaving + phi)."""
    for each in range(len(best)):
        value = leaving[each] + phi[each]
        best[each] = value if is_first or value > best[each] else best[each]


@compiled
def _keep_highest(best, origin, leaving, phi, place, better, new_origin) -> None:  # type: ignore[no-untyped-def]
    """max(best, leaving + phi), and where it comes from. Into other arrays: in place, stores would be masked, and slow."""
    if place == 0:
        for each in range(len(best)):
            better[each] = leaving[each] + phi[each]
            new_origin[each] = place
        return
    for each in range(len(best)):
        value = leaving[each] + phi[each]
        is_higher = value > best[each]
        better[each] = value if is_higher else best[each]
        new_origin[each] = place if is_higher else origin[each]


@compiled
def _softmax(raw, n, S, result) -> None:  # type: ignore[no-untyped-def]
    """Over the candidates of every receiver."""
    for each in range(len(raw)):
        result[each] = _LOWEST  # what belongs to nobody
    for j in range(n):
        highest = raw[j]
        for r in range(1, S):
            highest = max(highest, raw[r * n + j])
        for r in range(S):
            result[r * n + j] = raw[r * n + j] - highest
    for each in range(len(raw)):
        result[each] = exp(result[each])
    for j in range(n):
        total = result[j]
        for r in range(1, S):
            total += result[r * n + j]
        share = _ONE / total
        for r in range(S):
            result[r * n + j] *= share


@compiled
def propagate_backward(  # type: ignore[no-untyped-def]
    d_mu, candidates, num_candidates, softmax, damped, strongest, delta, excludes, T, d_psi, d_scores
) -> None:
    n, S = len(candidates), d_psi.shape[1]
    d_arrived, d_total = np.zeros(S * n, np.float32), np.zeros(S * n, np.float32)
    d_damped, d_leaving = np.zeros((n, S * n), np.float32), np.zeros((n, S * n), np.float32)
    d_phi = np.zeros((n, S, S * n), np.float32)
    mean = np.empty(n, np.float32)
    for i in range(n):
        for s in range(num_candidates[i]):
            d_psi[i, s] = d_arrived[s * n + i] = d_mu[i, s]
    for t in range(T - 1, -1, -1):
        for i in range(n):
            for each in range(S * n):
                d_damped[i, each] += d_arrived[each] / damped[t, i, each]
            if excludes and t < T - 1:
                for r in range(S):
                    for j in range(n):
                        d_damped[i, r * n + j] -= d_leaving[j, r * n + i] / damped[t, i, r * n + j]
            d_damped[i, i::n] = 0
        d_total[:] = 0
        d_leaving[:] = 0
        for i in range(n):
            if num_candidates[i] == 0:
                continue
            mean[:] = 0
            for r in range(S):
                for j in range(n):
                    mean[j] += softmax[t, i, r * n + j] * d_damped[i, r * n + j]
            for r in range(S):
                for j in range(n):
                    gradient = delta * softmax[t, i, r * n + j] * (d_damped[i, r * n + j] - mean[j])
                    s = strongest[t, i, r * n + j]
                    d_leaving[i, s * n + j] += gradient
                    d_phi[i, s, r * n + j] += gradient
                    d_damped[i, r * n + j] *= _ONE - delta
            for s in range(num_candidates[i]):
                d_total[s * n + i] = d_leaving[i, s * n : (s + 1) * n].sum()
                d_psi[i, s] += d_total[s * n + i]
        d_arrived, d_total = d_total, d_arrived
    for i in range(n):
        for s in range(num_candidates[i]):
            for j in range(n):
                for r in range(num_candidates[j]):
                    d_scores[candidates[i, s], candidates[j, r]] += d_phi[i, s, r * n + j]
