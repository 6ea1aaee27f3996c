"""The pools of mentions, compiled: all entities that some source names, what is known of each, and the best of them.

Entities that several sources name are found by a table of open places: place -> row of the mention's pool. Rows of all
mentions are numbered on, so that what the table holds of an earlier mention is told by its number, and nothing is cleared.
"""

import numpy as np

from deeped_ray.linking.choice_kernels import keep_best_of, score
from deeped_ray.linking.compiling import compiled
from deeped_ray.linking.fit_kernels import two_dots, unit
from deeped_ray.linking.kernels import log

_SPREAD, _32 = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)


@compiled
def gather(  # type: ignore[no-untyped-def]
    firsts,
    longer,
    names,
    near,
    vectors,
    contexts,
    document,
    num_links,
    columns,
    weights,
    by_prior,
    by_score,
    kept,
):
    """The best rows of the pools of a window's mentions, by mention; returns their number.

    `columns` are the places of evidence: prior, first kind of name, longer name, context fit; the other measures follow.
    The weights of all evidence come with that of the logarithm of the prior at the end.
    """
    first_starts, first_entity, first_prior, first_support = firsts
    longer_starts, longer_mention = longer
    slots, places_of, name_entity, name_kind, name_strength, num_letters = names
    near_entity, near_source, letters, is_listed = near
    own, extra = vectors
    prior_at, name_at, longer_at, fit_at = columns
    kept_mention, kept_entity, kept_evidence, kept_scores = kept
    most = 0
    for i in range(len(slots)):
        num_named = places_of[slots[i], 1] - places_of[slots[i], 0]
        size = first_starts[i + 1] - first_starts[i] + num_named + len(near_entity)
        for k in range(longer_starts[i], longer_starts[i + 1]):
            size += first_starts[longer_mention[k] + 1] - first_starts[longer_mention[k]]
        most = max(most, size)
    num_places = 16
    while num_places < 2 * most:
        num_places *= 2
    places, base = np.zeros(num_places, np.int64), 1
    entity, evidence = np.empty(most, np.int64), np.empty((most, kept_evidence.shape[1]), np.float32)
    scores, prior = np.empty(most, np.float32), np.empty(most, np.float32)
    support, is_first = np.empty(most, np.float64), np.empty(most, np.bool_)
    best, is_best = np.empty(by_prior + by_score, np.int64), np.zeros(most, np.bool_)
    context = np.empty(contexts.shape[1], np.float32)
    num_kept = 0
    for i in range(len(slots)):
        number, adds = 0, not is_listed[i]
        for k in range(first_starts[i], first_starts[i + 1]):
            row = _row_of(first_entity[k], True, places, base, entity, number)
            if row == number:
                number += 1
                evidence[row] = 0
            evidence[row, prior_at] = max(evidence[row, prior_at], first_prior[k])
            support[row], is_first[row] = first_support[k], True
        for k in range(longer_starts[i], longer_starts[i + 1]):
            for each in range(first_starts[longer_mention[k]], first_starts[longer_mention[k] + 1]):
                row = _row_of(first_entity[each], adds, places, base, entity, number)
                number = _note(row, longer_at, first_prior[each], evidence, is_first, number)
        for k in range(places_of[slots[i], 0], places_of[slots[i], 1]):
            row = _row_of(np.int64(name_entity[k]), adds, places, base, entity, number)
            number = _note(row, name_at + name_kind[k], name_strength[k], evidence, is_first, number)
        for k in range(len(near_entity)):
            if letters[i, k] > 0:
                row = _row_of(near_entity[k], adds, places, base, entity, number)
                number = _note(row, near_source[k], letters[i, k] / num_letters[slots[i]], evidence, is_first, number)
        base += number
        unit(contexts[i], context)
        total = 0.0
        for row in range(number):
            total += num_links[entity[row]] + 1
        total = np.log(total)
        for row in range(number):
            fit, document_fit = two_dots(own, extra, entity[row], context, document)
            links = num_links[entity[row]]
            log_links = log(np.float32(links + 1))
            evidence[row, fit_at], evidence[row, fit_at + 1] = fit, document_fit
            evidence[row, fit_at + 2] = log_links / 10
            evidence[row, fit_at + 3] = (log_links - total) / 10
            if is_first[row]:
                evidence[row, fit_at + 4] = log(np.float32(support[row] + 1)) / 5
                evidence[row, fit_at + 5] = min(support[row] / max(links, 1), 1.0)
            prior[row] = evidence[row, prior_at]
            scores[row] = score(evidence[row], weights, prior[row])
            is_best[row] = False
        count = keep_best_of(0, number, prior, scores, entity, by_prior, by_score, best, is_best)
        for place in range(count):
            row = best[place]
            kept_mention[num_kept], kept_entity[num_kept] = i, entity[row]
            kept_evidence[num_kept], kept_scores[num_kept] = evidence[row], scores[row]
            num_kept += 1
    return num_kept


@compiled
def _row_of(value, adds, places, base, entity, number):  # type: ignore[no-untyped-def]
    """The row of an entity; `number` if it is a new one, -1 if it is new and must not be added."""
    mask = len(places) - 1
    place = np.int64((np.uint64(value) * _SPREAD) >> _32) & mask
    while places[place] >= base:
        row = places[place] - base
        if entity[row] == value:
            return row
        place = (place + 1) & mask
    if not adds:
        return -1
    places[place] = base + number
    entity[number] = value
    return number


@compiled
def _note(row, column, strength, evidence, is_first, number):  # type: ignore[no-untyped-def]
    """The strongest evidence of a source counts. Returns the number of rows."""
    if row < 0:
        return number
    if row == number:
        evidence[row] = 0
        is_first[row] = False
        number += 1
    evidence[row, column] = max(evidence[row, column], strength)
    return number
