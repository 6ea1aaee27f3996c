"""From the model's numbers to answers, compiled: how sure the linker may be, the order of candidates, the reasons.

Numbers of answers have DIGITS digits after the point. Further ones are noise of the arithmetic. The kernels give them times
SCALE, as whole numbers: they would multiply by a rounded 1 / SCALE.
"""

import numpy as np

from deeped_ray.linking.compiling import compiled, compiled_exactly
from deeped_ray.linking.layout_kernels import CELLS, CONTEXTS, ENTITIES, MENTIONS, PAIRS, WORDS, window_of

DIGITS = 6
SCALE = float(10**DIGITS)
_LEAST, _MIN_PRIOR = 1e-6, np.float32(1e-3)
OF_MENTION, OF_NAME, OF_OTHERS, SIZES = 14, 5, 4, 3
"""Columns of x: about the mention, about how it is written, means over the other names, and how many these are."""


@compiled
def features(  # type: ignore[no-untyped-def]
    num_candidates, rho, prior, psi, belief, evidence, of_document, written, name, x
) -> None:
    """x of `certainty`, a row for every mention. Without psi or belief, these have no columns."""
    n, S = rho.shape
    log_shares = np.empty((n, S), np.float32)
    F, num_known = evidence.shape[2], OF_OTHERS + len(of_document)
    known, all_known = np.zeros((n, num_known)), np.zeros(num_known)
    by_name, times = np.zeros((name.max() + 1, num_known)), np.zeros(name.max() + 1, np.int64)
    for i in range(n):
        times[name[i]] += 1
        num = num_candidates[i]
        if num == 0:
            continue
        _log_softmax(rho[i], np.float32(1), num, log_shares[i])
        best, likeliest, entropy, highest, most_psi = 0, 0, 0.0, 0.0, -np.inf
        for s in range(num):
            best = s if rho[i, s] > rho[i, best] else best
            likeliest = s if prior[i, s] > prior[i, likeliest] else likeliest
            share = np.exp(np.float64(log_shares[i, s]))
            highest = max(highest, share)
            entropy -= share * log_shares[i, s]
            most_psi = max(most_psi, psi[i, s] if psi.shape[1] else 0.0)
        if num < S:
            most_psi = max(most_psi, 0.0)
        top, share = np.float64(rho[i, best]), np.float64(log_shares[i, best])
        of_belief = np.float64(belief[i, best]) if belief.shape[1] else np.exp(share)
        x[i, 0], x[i, 1], x[i, 2] = share, highest, np.log1p(-min(highest, 1 - _LEAST))
        x[i, 3], x[i, 4], x[i, 5] = entropy, top, top - share
        x[i, 6], x[i, 7] = np.log(max(prior[i, best], _MIN_PRIOR)), prior[i, likeliest]
        x[i, 8], x[i, 9] = best == likeliest, psi[i, best] if psi.shape[1] else 0.0
        x[i, 10], x[i, 11] = most_psi, np.log(max(of_belief, _LEAST))
        x[i, 12], x[i, 13] = num / 10, num == 1
        x[i, OF_MENTION : OF_MENTION + F] = evidence[i, best]
        x[i, OF_MENTION + F : OF_MENTION + F + OF_NAME] = written[i]
        known[i, 0], known[i, 1], known[i, 2], known[i, 3] = highest, prior[i, best], 1, top
        for each in range(len(of_document)):
            known[i, OF_OTHERS + each] = evidence[i, best, of_document[each]]
        by_name[name[i]] += known[i]
        all_known += known[i]
    first = OF_MENTION + F + OF_NAME
    for i in range(n):
        if num_candidates[i]:
            num_others = n - times[name[i]]
            for each in range(num_known):
                x[i, first + each] = (all_known[each] - by_name[name[i], each]) / max(num_others, 1)
            x[i, first + num_known] = np.log1p(num_others) / 3
            x[i, first + num_known + 1] = np.log1p(n) / 3
            x[i, first + num_known + 2] = times[name[i]] / 3


@compiled
def networks(x, mean, deviation, limit, weights, outputs) -> None:  # type: ignore[no-untyped-def]
    """The mean of the outputs of all networks, each of two hidden layers."""
    first, first_bias, second, second_bias, last, last_bias = weights
    scaled, hidden = np.empty(x.shape[1], np.float32), np.empty(first.shape[1], np.float32)
    deeper = np.empty(second.shape[1], np.float32)
    for i in range(len(x)):
        for each in range(len(scaled)):
            scaled[each] = min(max((x[i, each] - mean[each]) / deviation[each], -limit), limit)
        for number in range(len(first)):
            _layer(scaled, first[number], first_bias[number], hidden)
            _layer(np.maximum(hidden, np.float32(0)), second[number], second_bias[number], deeper)
            for each in range(last.shape[1]):
                total = last_bias[number, each]
                for k in range(len(deeper)):
                    total += last[number, each, k] * max(deeper[k], np.float32(0))
                outputs[i, each] += total / len(first)


@compiled
def _layer(values, weight, bias, result) -> None:  # type: ignore[no-untyped-def]
    for each in range(len(result)):
        total = np.float32(0)
        for k in range(len(values)):
            total += weight[each, k] * values[k]
        result[each] = total + bias[each]


@compiled_exactly
def _log_softmax(rho, scale, num, result) -> None:  # type: ignore[no-untyped-def]
    """Of the scaled scores of a mention's candidates."""
    highest, total = scale * rho[0], np.float32(0)
    for s in range(1, num):
        highest = max(highest, scale * rho[s])
    for s in range(num):
        result[s] = scale * rho[s] - highest
        total += np.exp(result[s])
    total = np.log(total)
    for s in range(num):
        result[s] -= total


@compiled_exactly
def probabilities(outputs, soft_one, rho, num_candidates, shares, none) -> None:  # type: ignore[no-untyped-def]
    """P(e) and P(none) of `certainty`. Without candidates, none is certain."""
    for i in range(len(rho)):
        num, x = num_candidates[i], outputs[i, 1] + soft_one
        if num == 0:
            none[i] = 1
            continue
        none[i] = np.float32(1) / (np.float32(1) + np.exp(-outputs[i, 0]))
        scale = max(x, np.float32(0)) + np.log1p(np.exp(-abs(x)))  # log(1 + exp(x))
        _log_softmax(rho[i], scale, num, shares[i])
        for s in range(num):
            shares[i, s] = (np.float32(1) - none[i]) * np.exp(shares[i, s])


@compiled
def _rounded(value):  # type: ignore[no-untyped-def]
    return np.rint(np.float64(value) * SCALE)


@compiled_exactly
def _scale_back(numbers) -> None:  # type: ignore[no-untyped-def]
    """Divides by SCALE: other kernels would multiply by a rounded 1 / SCALE."""
    for each in range(len(numbers)):
        numbers[each] = numbers[each] / SCALE


@compiled
def judge(given, of_document, written, name, scaling, weights, soft_one):  # type: ignore[no-untyped-def]
    """P(e) and P(none) of `certainty`, from what `features` is given."""
    num_candidates, rho = given[:2]
    mean, deviation, limit = scaling
    n = len(rho)
    x, outputs = np.zeros((n, len(mean)), np.float32), np.zeros((n, 2), np.float32)
    if n:
        features(*given, of_document, written, name, x)
    networks(x, mean, deviation, limit, weights, outputs)
    shares, none = np.zeros(rho.shape, np.float32), np.empty(n, np.float32)
    probabilities(outputs, soft_one, rho, num_candidates, shares, none)
    return shares, none


@compiled
def judge_all(group, scores, of_document, written, name, scaling, weights, soft_one):  # type: ignore[no-untyped-def]
    """`judge` of every window: shares of all cells, and a number for each mention."""
    layout = group[0]
    rho, psi, belief = scores
    shares, none = np.empty(len(rho), np.float32), np.empty(layout[-1, MENTIONS], np.float32)
    for w in range(len(layout) - 1):
        _, num_candidates, _, _, prior, evidence = window_of(group, w)
        first, end, cells = layout[w, MENTIONS], layout[w + 1, MENTIONS], layout[w, CELLS]
        size = prior.shape
        given = (
            num_candidates,
            cells_of(rho, cells, size),
            prior,
            cells_of(psi, cells, size),
            cells_of(belief, cells, size),
            evidence,
        )
        found, own_none = judge(given, of_document, written[first:end], name[first:end], scaling, weights, soft_one)
        shares[cells : cells + found.size] = found.reshape(found.size)
        none[first:end] = own_none
    return shares, none


@compiled
def cells_of(values, start, shape):  # type: ignore[no-untyped-def]
    """[n, S]; no columns, if there are no such values."""
    if len(values) == 0:
        return values.reshape((shape[0], 0))
    return values[start : start + shape[0] * shape[1]].reshape(shape)


@compiled
def answer_all(is_answered, group, sources, scores, none, reasons, explains, most):  # type: ignore[no-untyped-def]
    """The columns of `answers` for the mentions that are answered, window after window.

    `scores` are Psi, belief, rho and shares of all cells, `reasons` beta and support. Nothing is read of the reasons
    unless the answer explains. Returns where rows, candidates, words and supporters of each window begin, and the columns.
    """
    layout, entities = group[0], group[2]
    psi, belief, rho, shares = scores
    beta, support = reasons
    bounds = count_answers(is_answered, group, beta, explains, most)
    num_windows, (rows, total, num_attended, num_supported) = len(layout) - 1, bounds[-1]
    offsets, entity = np.zeros(rows + num_windows, np.int64), np.empty(total, np.int64)
    numbers, source, shown = np.empty(5 * total), np.empty(total, np.int8), np.empty(rows)
    word_offsets, word, weight = (
        np.zeros(len(offsets), np.int64),
        np.empty(num_attended, np.int64),
        np.empty(num_attended),
    )
    offsets_of, other = np.zeros(len(offsets), np.int64), np.empty(num_supported, np.int64)
    strength = np.empty(num_supported)
    for w in range(num_windows):
        candidates, num_candidates, context, num_words, prior, _ = window_of(group, w)
        first, cells, size = layout[w, MENTIONS], layout[w, CELLS], prior.shape
        asked = is_answered[first : layout[w + 1, MENTIONS]]
        row, at, words, others = bounds[w]
        end = bounds[w + 1, 1]
        own = slice(row + w, bounds[w + 1, 0] + w + 1)
        columns = (
            prior,
            cells_of(psi, cells, size),
            cells_of(belief, cells, size),
            cells_of(rho, cells, size),
            cells_of(shares, cells, size),
        )
        own_entities = entities[layout[w, ENTITIES] : layout[w + 1, ENTITIES]]
        own_sources = sources[cells : cells + prior.size].reshape(size)
        own_numbers = numbers[5 * at : 5 * end].reshape((5, end - at))
        given = (asked, num_candidates, candidates, own_entities, columns, own_sources)
        rank(*given, offsets[own], entity[at:end], own_numbers, source[at:end])
        for i in range(len(asked)):
            if asked[i]:
                shown[row] = _rounded(none[first + i]) if num_candidates[i] else SCALE
                row += 1
        if not explains:
            continue
        own_beta = cells_of(beta, layout[w, CONTEXTS], context.shape)
        num_distinct = layout[w + 1, WORDS] - layout[w, WORDS]
        heaviest_words(
            asked, own_beta, context, num_words, num_distinct, word_offsets[own], word[words:], weight[words:]
        )
        bounds[w + 1, 2] = words + word_offsets[own][-1]
        if len(support):
            own_support = cells_of(support, layout[w, PAIRS], (size[0], size[0]))
            strongest_supporters(asked, own_support, most, offsets_of[own], other[others:], strength[others:])
        bounds[w + 1, 3] = others + offsets_of[own][-1]
    _scale_back(numbers)
    _scale_back(shown)
    _scale_back(weight)
    _scale_back(strength)
    return bounds, offsets, entity, numbers, source, shown, (word_offsets, word, weight), (offsets_of, other, strength)


@compiled
def count_answers(is_answered, group, beta, explains, most):  # type: ignore[no-untyped-def]
    """Where rows and candidates of each window begin; and room for words and supporters, after the last one."""
    layout, widths = group[0], group[1]
    num_words, num_candidates = group[4], group[6]
    bounds = np.zeros((len(layout), 4), np.int64)
    num_attended = num_supported = 0
    for w in range(len(widths)):
        rows, total = bounds[w, 0], bounds[w, 1]
        for i in range(layout[w, MENTIONS], layout[w + 1, MENTIONS]):
            if not is_answered[i]:
                continue
            rows, total, num_supported = rows + 1, total + num_candidates[i], num_supported + most
            start = layout[w, CONTEXTS] + (i - layout[w, MENTIONS]) * widths[w, 0]
            for k in range(start, start + num_words[i] if explains else start):
                num_attended += beta[k] > 0
        bounds[w + 1, 0], bounds[w + 1, 1] = rows, total
    bounds[-1, 2], bounds[-1, 3] = num_attended, num_supported if explains else 0
    return bounds


@compiled
def rank(is_answered, num_candidates, candidates, entities, columns, sources, offsets, entity, numbers, source) -> None:  # type: ignore[no-untyped-def]
    """The candidates of the mentions that are answered, the highest score first, one mention after the other.

    `columns` are prior, Psi, belief, score and probability, [n, S] each; Psi and belief may be empty.
    """
    score = columns[3]
    row = at = 0
    order = np.empty(candidates.shape[1], np.int64)
    for i in range(len(num_candidates)):
        if not is_answered[i]:
            continue
        for s in range(num_candidates[i]):
            place = s
            while place > 0 and _rounded(score[i, order[place - 1]]) < _rounded(score[i, s]):
                order[place] = order[place - 1]
                place -= 1
            order[place] = s
        for place in range(num_candidates[i]):
            s = order[place]
            entity[at], source[at] = entities[candidates[i, s]], sources[i, s]
            for number in range(len(columns)):
                numbers[number, at] = _rounded(columns[number][i, s]) if columns[number].shape[1] else 0.0
            at += 1
        row += 1
        offsets[row] = at


@compiled
def heaviest_words(is_answered, beta, context, num_words, num_distinct, offsets, word, weight) -> None:  # type: ignore[no-untyped-def]
    """The distinct attended words of every mention, heaviest first. Weights of a repeated word are added up."""
    total, found = np.zeros(num_distinct, np.float32), np.empty(num_distinct, np.int64)
    row = at = 0
    for i in range(len(num_words)):
        if not is_answered[i]:
            continue
        number = 0
        for k in range(num_words[i]):
            if beta[i, k] > 0:
                each = context[i, k]
                if total[each] == 0:
                    found[number] = each
                    number += 1
                total[each] += beta[i, k]
        for k in range(1, number):
            each, place = found[k], k
            while place > 0 and _is_lighter(found[place - 1], each, total):
                found[place] = found[place - 1]
                place -= 1
            found[place] = each
        for k in range(number):
            word[at], weight[at] = found[k], _rounded(total[found[k]])
            total[found[k]] = 0
            at += 1
        row += 1
        offsets[row] = at


@compiled
def _is_lighter(one, other, total):  # type: ignore[no-untyped-def]
    return total[one] < total[other] or (total[one] == total[other] and one > other)


@compiled
def strongest_supporters(is_answered, support, most, offsets, mention, weight) -> None:  # type: ignore[no-untyped-def]
    """The mentions that speak most for or against each answer, strongest first."""
    best = np.empty(most, np.int64)
    row = at = 0
    for i in range(len(support)):
        if not is_answered[i]:
            continue
        number = 0
        for j in range(len(support)):
            if j == i:
                continue
            place = number
            while place > 0 and abs(support[i, best[place - 1]]) < abs(support[i, j]):
                if place < most:
                    best[place] = best[place - 1]
                place -= 1
            if place < most:
                best[place] = j
            number = min(number + 1, most)
        for k in range(number):
            value = _rounded(support[i, best[k]])
            if value != 0:
                mention[at], weight[at] = best[k], value
                at += 1
        row += 1
        offsets[row] = at


@compiled
def support(rho, candidates, num_candidates, pairs, result) -> None:  # type: ignore[no-untyped-def]
    """Phi(e_i, e_j) - Phi(r_i, e_j), with r_i the runner-up of mention i."""
    n = len(rho)
    answer, rival = np.full(n, -1), np.full(n, -1)
    for i in range(n):
        best = second = -1
        for s in range(num_candidates[i]):
            if best < 0 or rho[i, s] > rho[i, best]:
                best, second = s, best
            elif second < 0 or rho[i, s] > rho[i, second]:
                second = s
        answer[i] = candidates[i, best] if best >= 0 else -1
        rival[i] = candidates[i, second] if second >= 0 else -1
    for i in range(n):
        for j in range(n):
            is_known = rival[i] >= 0 and answer[j] >= 0
            result[i, j] = pairs[answer[i], answer[j]] - pairs[rival[i], answer[j]] if is_known else 0
