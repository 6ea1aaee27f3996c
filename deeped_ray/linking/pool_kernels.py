"""The pools of mentions, compiled: all entities that some source names, what is known of each, and the best of them.

Entities that several sources name are found by a table of open places: place -> row of the mention's pool. Rows of all
mentions are numbered on, so that what the table holds of an earlier mention is told by its number, and nothing is cleared.
"""

import numpy as np

from deeped_ray.linking.choice_kernels import keep_best_of, score
from deeped_ray.linking.compiling import compiled
from deeped_ray.linking.fit_kernels import products, two_products, unit
from deeped_ray.linking.kernels import log

_SPREAD, _32 = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)


@compiled
def gather(  # type: ignore[no-untyped-def]
    firsts, longer, names, near, vectors, contexts, document, num_links, columns, weights, by_prior, by_score, kept
):
    """The best rows of the pools of a window's mentions, by mention; returns their number.

    `columns` are the places of evidence: prior, first kind of name, longer name, context fit; the other measures follow.
    The weights of all evidence come with that of the logarithm of the prior at the end. Mentions that are written alike
    have one pool, and differ in their contexts alone.
    """
    slots, is_listed = names[0], near[3]
    (prior_at, _, _, fit_at), size = columns, by_prior + by_score
    kept_mention, kept_entity, kept_evidence, kept_scores = kept
    most = most_rows(firsts, longer, names, near)
    num_places = 16
    while num_places < 2 * most:
        num_places *= 2
    table = (
        np.zeros(num_places, np.int64),
        np.empty(most, np.int64),
        np.empty((most, kept_evidence.shape[1]), np.float32),
    )
    _, entity, evidence = table
    seen = np.empty(most, np.float64), np.empty(most, np.bool_)
    prior, known, fits = np.empty(most, np.float32), np.empty(most, np.float32), np.empty(most, np.float32)
    scores, best, is_best = np.empty(most, np.float32), np.empty(size, np.int64), np.empty(most, np.bool_)
    context, document_fits = np.empty(contexts.shape[1], np.float32), np.empty(most, np.float32)
    counts, is_done, base = np.zeros(len(slots), np.int64), np.zeros(len(slots), np.bool_), 1
    for i in range(len(slots)):
        if is_done[i]:
            continue
        number = fill(i, firsts, longer, names, near, columns, table, base, seen)
        base += number
        unit(contexts[i], context)
        two_products(vectors[0], vectors[1], entity, number, context, document, fits, document_fits)
        note_links(entity, number, num_links, seen[0], seen[1], fit_at + 2, evidence)
        for row in range(number):
            evidence[row, fit_at + 1] = document_fits[row]
            prior[row] = evidence[row, prior_at]
            known[row] = score(evidence[row], weights, prior[row])
        for j in range(i, len(slots)):
            if slots[j] != slots[i] or is_listed[j] != is_listed[i] or not has_same(i, j, firsts):
                continue
            if j > i:
                unit(contexts[j], context)
                products(vectors[0], vectors[1], entity, number, context, fits)
            for row in range(number):
                scores[row] = known[row] + weights[fit_at] * fits[row]
                is_best[row] = False
            counts[j] = keep_best_of(0, number, prior, scores, entity, by_prior, by_score, best, is_best)
            is_done[j] = True
            for place in range(counts[j]):
                row, to = best[place], j * size + place
                kept_entity[to], kept_scores[to] = entity[row], scores[row]
                kept_evidence[to] = evidence[row]
                kept_evidence[to, fit_at] = fits[row]
    num_kept = 0
    for i in range(len(slots)):
        for row in range(i * size, i * size + counts[i]):
            kept_mention[num_kept], kept_entity[num_kept], kept_scores[num_kept] = i, kept_entity[row], kept_scores[row]
            if row > num_kept:
                kept_evidence[num_kept] = kept_evidence[row]
            num_kept += 1
    return num_kept


@compiled
def most_rows(firsts, longer, names, near):  # type: ignore[no-untyped-def]
    """That the pool of any of the mentions may have."""
    starts, (longer_starts, longer_mention), (slots, places_of) = firsts[0], longer, names[:2]
    most = 0
    for i in range(len(slots)):
        size = starts[i + 1] - starts[i] + places_of[slots[i], 1] - places_of[slots[i], 0] + len(near[0])
        for k in range(longer_starts[i], longer_starts[i + 1]):
            size += starts[longer_mention[k] + 1] - starts[longer_mention[k]]
        most = max(most, size)
    return most


@compiled
def fill(i, firsts, longer, names, near, columns, table, base, seen):  # type: ignore[no-untyped-def]
    """The pool of a mention: all entities that some source names, with what the sources say; returns their number.

    `seen` are the counts of entities that the prior knows, and whether it does.
    """
    first_starts, first_entity, first_prior, first_support = firsts
    longer_starts, longer_mention = longer
    slots, places_of, name_entity, name_kind, name_strength, num_letters = names
    near_entity, near_source, letters, is_listed = near
    prior_at, name_at, longer_at, _ = columns
    places, entity, evidence = table
    support, is_first = seen
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
    return number


@compiled
def note_links(entity, number, num_links, support, is_first, at, evidence) -> None:  # type: ignore[no-untyped-def]
    """The measures of counts from `at` on: links, share of links, and for the prior's entities count and called so."""
    total = 0.0
    for row in range(number):
        total += num_links[entity[row]] + 1
    total = np.log(total)
    for row in range(number):
        links = num_links[entity[row]]
        log_links = log(np.float32(links + 1))
        evidence[row, at], evidence[row, at + 1] = log_links / 10, (log_links - total) / 10
        if is_first[row]:
            evidence[row, at + 2] = log(np.float32(support[row] + 1)) / 5
            evidence[row, at + 3] = min(support[row] / max(links, 1), 1.0)


@compiled
def has_same(i, j, firsts):  # type: ignore[no-untyped-def]
    """Whether the prior says the same of two mentions."""
    starts, entity, prior, support = firsts
    if starts[i + 1] - starts[i] != starts[j + 1] - starts[j]:
        return False
    for k in range(starts[i + 1] - starts[i]):
        one, other = starts[i] + k, starts[j] + k
        if entity[one] != entity[other] or prior[one] != prior[other] or support[one] != support[other]:
            return False
    return True


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
