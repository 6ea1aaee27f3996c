"""Retrieval for a group of windows, compiled: window after window, the steps of `near_`, `pool_`, `fit_` and `title_kernels`."""

import numpy as np

from deeped_ray.linking import choice_kernels, fit_kernels, near_kernels, pool_kernels, title_kernels
from deeped_ray.linking.compiling import compiled
from deeped_ray.linking.layout_kernels import sort


@compiled
def look_around(bounds, known, sides, words, firsts, vectors, graph, most):  # type: ignore[no-untyped-def]
    """What the index is asked for by each window: its words, and its certain entities. And what pages of these link to.

    Also the sums of each mention's context, and a vector of unit length for each window. `known` are rows of `words`.
    """
    starts, entity, prior, support = firsts
    num_windows, d = len(bounds) - 1, words.shape[1]
    sums, queries = np.zeros((len(sides), d), np.float32), np.zeros((2 * num_windows, d), np.float32)
    documents = np.empty((num_windows, d), np.float32)
    linked, num_linked = np.empty((num_windows, most), np.int64), np.empty(num_windows, np.int64)
    for w in range(num_windows):
        first, end = bounds[w], bounds[w + 1]
        near_kernels.sum_contexts(words, known, sides[first:end], sums[first:end])
        own = starts[first : end + 1], entity, prior, support
        found = near_kernels.certain_of(own, sums[first:end], vectors, graph, queries[2 * w : 2 * w + 2], documents[w])
        sort(found)
        distinct = np.empty(len(found), np.int64)
        num_linked[w] = near_kernels.most_linked(found, most, distinct)
        linked[w, : num_linked[w]] = distinct[: num_linked[w]]
    return sums, queries, documents, linked, num_linked


@compiled
def gather(  # type: ignore[no-untyped-def]
    bounds, name, firsts, near, names, is_listed, vectors, sums, documents, num_links, columns, weights, sizes
):
    """The best rows of all pools, compared with what the other names of the window seem to mean.

    `near` are the answers of the index, -1 where there is none, with what `look_around` has found. `sizes` are how many
    rows are kept by prior, and by score, first and then.
    """
    starts, first_entity, first_prior, first_support = firsts
    nearest, linked, num_linked, sources = near
    slots, matched, listed, lists, listed_entity, words, own_names = names
    by_prior, by_score, compared = sizes
    num_windows, most = len(bounds) - 1, len(slots) * (by_prior + compared)
    row_bounds = np.zeros(num_windows + 1, np.int64)
    mention, entity = np.empty(most, np.int64), np.empty(most, np.int64)
    evidence, scores = np.empty((most, len(weights) - 1), np.float32), np.empty(most, np.float32)
    total = 0
    for w in range(num_windows):
        first, end = bounds[w], bounds[w + 1]
        n, own = end - first, slots[first:end]
        own_firsts = starts[first : end + 1], first_entity, first_prior, first_support
        near_entity, near_source = near_kernels.join_near(
            nearest[2 * w], nearest[2 * w + 1], linked[w, : num_linked[w]], sources
        )
        letters = np.zeros((n, len(near_entity)), np.float32)
        near_kernels.shared_letters(own, listed, lists, near_entity, listed_entity, letters)
        longer_starts, longer = np.zeros(n + 1, np.int64), np.empty(n * n, np.int64)
        near_kernels.longer_names(own, *words, own_firsts[0], longer_starts, longer)
        pool = (
            np.empty(n * (by_prior + by_score), np.int64),
            np.empty(n * (by_prior + by_score), np.int64),
            np.empty((n * (by_prior + by_score), evidence.shape[1]), np.float32),
            np.empty(n * (by_prior + by_score), np.float32),
        )
        number = pool_kernels.gather(
            own_firsts,
            (longer_starts, longer),
            (own, matched, *own_names),
            (near_entity, near_source, letters, is_listed[first:end]),
            vectors,
            sums[first:end],
            documents[w],
            num_links,
            columns,
            weights,
            by_prior,
            by_score,
            pool,
        )
        if number:
            best = np.empty(number, np.int64)
            count = fit_kernels.consult(
                pool[0][:number],
                pool[1][:number],
                pool[2],
                pool[3],
                name[first:end],
                vectors,
                columns[3],
                weights,
                by_prior,
                compared,
                best,
            )
            for place in range(count):
                row = best[place]
                mention[total], entity[total], scores[total] = pool[0][row], pool[1][row], pool[3][row]
                evidence[total] = pool[2][row]
                total += 1
        row_bounds[w + 1] = total
    return row_bounds, mention[:total], entity[:total], evidence[:total], scores[:total]


@compiled
def compare(bounds, name, rows, halves, columns, titles, text_words, weights, by_prior, by_score):  # type: ignore[no-untyped-def]
    """The rows of `gather`, compared by hyperlinks and titles too: the best of each mention, moved to the beginning.

    `titles` are the words of the names and where those of each mention stand, and the same for all entities. Returns where
    the rows of each window begin.
    """
    row_bounds, mention, entity, evidence, scores = rows
    own_words, own_places, title_words, title_places = titles
    link_at, titles_at = columns
    found, found_bounds = text_words
    kept_bounds = np.zeros(len(bounds), np.int64)
    for w in range(len(bounds) - 1):
        start, end, at = row_bounds[w], row_bounds[w + 1], kept_bounds[w]
        kept_bounds[w + 1] = at
        if start == end:
            continue
        own, own_evidence, own_name = mention[start:end], evidence[start:end], name[bounds[w] : bounds[w + 1]]
        shares, best = np.empty(end - start, np.float32), np.empty(end - start, np.int64)
        fit_kernels.relate(own, entity[start:end], own_evidence, scores[start:end], own_name, halves, link_at, shares)
        title_kernels.compare_titles(
            own,
            own_words,
            own_places[bounds[w] : bounds[w + 1]],
            title_words,
            title_places[start:end],
            found[found_bounds[w] : found_bounds[w + 1]],
            own_name,
            shares,
            own_evidence[:, titles_at:],
        )
        count = choice_kernels.choose(
            own, entity[start:end], own_evidence, scores[start:end], weights, by_prior, by_score, best
        )
        move(best[:count], start, at, mention, entity, evidence)
        kept_bounds[w + 1] = at + count
    return kept_bounds


@compiled
def move(best, start, at, mention, entity, evidence) -> None:  # type: ignore[no-untyped-def]
    """The rows start + best to at, at + 1, ...: through a copy, since their order changes."""
    number = len(best)
    kept_mention, kept_entity = np.empty(number, np.int64), np.empty(number, np.int64)
    kept_evidence = np.empty((number, evidence.shape[1]), np.float32)
    for place in range(number):
        row = start + best[place]
        kept_mention[place], kept_entity[place] = mention[row], entity[row]
        kept_evidence[place] = evidence[row]
    mention[at : at + number], entity[at : at + number] = kept_mention, kept_entity
    evidence[at : at + number] = kept_evidence
