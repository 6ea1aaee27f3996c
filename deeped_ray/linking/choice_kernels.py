"""Which candidates are kept, compiled: the best by prior, then the best by a weighted sum of the evidence."""

import numpy as np

from deeped_ray.linking.compiling import compiled

_MIN_PRIOR, _LOG_MIN_PRIOR = np.float32(1e-3), np.float32(np.log(np.float32(1e-3)))


@compiled
def score(evidence, weights, prior):  # type: ignore[no-untyped-def]
    """By which candidates are kept: `retrieval.score`."""
    total = weights[-1] * (np.float32(np.log(prior)) if prior > _MIN_PRIOR else _LOG_MIN_PRIOR)
    for each in range(len(evidence)):
        total += evidence[each] * weights[each]
    return total


@compiled
def choose(mention, entity, evidence, scores, weights, by_prior, by_score, kept):  # type: ignore[no-untyped-def]
    """Scores all rows, then `keep_best`."""
    prior = np.empty(len(mention), np.float32)
    for row in range(len(mention)):
        prior[row] = evidence[row, 0]
        scores[row] = score(evidence[row], weights, prior[row])
    return keep_best(mention, prior, scores, entity, by_prior, by_score, kept)


@compiled
def keep_best(mention, prior, scores, entity, by_prior, by_score, kept):  # type: ignore[no-untyped-def]
    """Rows of each mention's best by prior, then of its best by score; by mention and falling prior. Returns their number.

    Rows come by mention. Of equals the smaller entity comes first.
    """
    is_best = np.zeros(len(mention), np.bool_)
    best = np.empty(by_prior + by_score, np.int64)
    num_kept = start = 0
    while start < len(mention):
        end = start
        while end < len(mention) and mention[end] == mention[start]:
            end += 1
        count = keep_best_of(start, end, prior, scores, entity, by_prior, by_score, best, is_best)
        kept[num_kept : num_kept + count] = best[:count]
        num_kept, start = num_kept + count, end
    return num_kept


@compiled
def keep_best_of(start, end, prior, scores, entity, by_prior, by_score, best, is_best):  # type: ignore[no-untyped-def]
    """Of one mention; rows of `is_best` are false before."""
    count = 0
    for row in range(start, end):
        if prior[row] > 0:
            count = _insert(row, prior, scores, entity, best, count, by_prior)
    for place in range(count):
        is_best[best[place]] = True
    room, count = by_prior + by_score - count, 0
    for row in range(start, end):
        if not is_best[row]:
            count = _insert(row, scores, scores, entity, best, count, room)
    for place in range(count):
        is_best[best[place]] = True
    count = 0
    for row in range(start, end):
        if is_best[row]:
            count = _insert(row, prior, scores, entity, best, count, len(best))
    return count


@compiled
def _insert(row, first, then, entity, best, count, most):  # type: ignore[no-untyped-def]
    """Puts a row in its place among the best, which fall by two keys; returns how many there are, `most` at most."""
    place = count
    while place > 0:
        other = best[place - 1]
        is_equal = first[other] == first[row]
        if first[other] > first[row] or (is_equal and then[other] > then[row]):
            break
        if is_equal and then[other] == then[row] and entity[other] < entity[row]:
            break
        if place < most:
            best[place] = other
        place -= 1
    if place < most:
        best[place] = row
    return min(count + 1, most)
