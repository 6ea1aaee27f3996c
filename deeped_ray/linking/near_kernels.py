"""What stands around the mentions of a document, compiled: their contexts, entities near the document, longer names."""

import numpy as np

from deeped_ray.linking.compiling import compiled
from deeped_ray.linking.fit_kernels import add, unit
from deeped_ray.linking.layout_kernels import is_in, place_from, sort


@compiled
def sum_contexts(vectors, rows, sides, sums) -> None:  # type: ignore[no-untyped-def]
    """The sums of the word vectors around each mention; sides are those of `KnownWords.contexts`."""
    for i in range(len(sides)):
        for side in range(0, 4, 2):
            for place in range(sides[i, side], sides[i, side + 1]):
                row = rows[place]
                for each in range(vectors.shape[1]):
                    sums[i, each] += vectors[row, each]


@compiled
def certain_of(firsts, contexts, vectors, graph, queries, document):  # type: ignore[no-untyped-def]
    """What the index is asked for, and the entities that pages of certain entities link to.

    An entity is certain as far as it is the best of some mention by prior. The sum of their vectors is the document's.
    """
    starts, entity, prior, _ = firsts
    own, extra = vectors
    offsets, linked = graph
    certain, priors = np.empty(len(starts), np.int64), np.empty(len(starts), np.float32)
    number = num_linked = 0
    for i in range(len(starts) - 1):
        for each in range(contexts.shape[1]):
            queries[0, each] += contexts[i, each]
        if starts[i] == starts[i + 1]:
            continue
        best, place = entity[starts[i]], 0
        while place < number and certain[place] != best:
            place += 1
        if place == number:
            certain[place], priors[place] = best, prior[starts[i]]
            number += 1
            num_linked += offsets[best + 1] - offsets[best] if best < len(offsets) - 1 else 0
        priors[place] = max(priors[place], prior[starts[i]])
    found, at = np.empty(num_linked, np.int32), 0
    for place in range(number):
        best = certain[place]
        add(own, extra, best, priors[place], queries[1])
        for cell in range(offsets[best], offsets[best + 1]) if best < len(offsets) - 1 else range(0):
            found[at] = linked[cell]
            at += 1
    unit(queries[1], document)
    return found


@compiled
def most_linked(linked, most, found):  # type: ignore[no-untyped-def]
    """The entities that come most often in a rising list, the smaller first of equals; returns how many there are."""
    number = 0
    times = np.empty(len(linked), np.int64)
    for place in range(len(linked)):
        if place and linked[place] == linked[place - 1]:
            times[number - 1] += 1
        else:
            found[number], times[number] = linked[place], 1
            number += 1
    if number <= most:
        return number
    # how often an entity must come: times are small numbers, so that counting them is sorting them
    histogram = np.zeros(times[:number].max() + 1, np.int64)
    for place in range(number):
        histogram[times[place]] += 1
    least, above = len(histogram) - 1, 0
    while above + histogram[least] <= most:
        above += histogram[least]
        least -= 1
    room, kept = most - above, 0
    for place in range(number):
        if times[place] > least or (times[place] == least and room > 0):
            room -= times[place] == least
            found[kept] = found[place]
            kept += 1
    return kept


@compiled
def join_near(by_words, by_entities, by_links, sources):  # type: ignore[no-untyped-def]
    """Entities near the document, rising, and the source of each. The index may have found fewer: -1."""
    some, others = rising(by_words), rising(by_entities)
    merged, source = np.empty(len(others) + len(by_links), np.int64), np.empty(len(others) + len(by_links), np.int64)
    of_words, of_document = sources
    others = merged[: merge_sources(others, of_document, by_links, of_document, merged, source)]
    size = len(some) + len(others)
    found, source = np.empty(size, np.int64), np.empty(size, np.int64)
    number = merge_sources(some, of_words, others, of_document, found, source)
    return found[:number], source[:number]


@compiled
def rising(found):  # type: ignore[no-untyped-def]
    """What the index has found, in order."""
    values, number = np.empty(len(found), np.int64), 0
    for place in range(len(found)):
        if found[place] >= 0:
            values[number] = found[place]
            number += 1
    sort(values[:number])
    return values[:number]


@compiled
def merge_sources(some, source, others, other_source, merged, sources):  # type: ignore[no-untyped-def]
    """Two rising lists as one without repetitions; what is in both is of the other source. Returns the length."""
    number = i = j = 0
    while i < len(some) or j < len(others):
        is_other = j < len(others) and (i == len(some) or others[j] <= some[i])
        value = others[j] if is_other else some[i]
        if number == 0 or merged[number - 1] != value:
            merged[number], sources[number] = value, other_source if is_other else source
            number += 1
        i, j = (i, j + 1) if is_other else (i + 1, j)
    return number


@compiled
def shared_letters(slots, places, lists, near, listed, letters) -> None:  # type: ignore[no-untyped-def]
    """Letters of the words of each name that names of near entities have, [mentions, near].

    A word's list has the entities that are called so: where it begins and ends in `listed`, and the word's letters. Both
    lists of entities rise. The shorter one is looked up in the other, on from where the one before was found.
    """
    for i in range(len(slots)):
        row, before = letters[i], 0
        while slots[before] != slots[i]:
            before += 1
        if before < i:
            row[:] = letters[before]
            continue
        for word in range(places[slots[i], 0], places[slots[i], 1]):
            entities, length = listed[lists[word, 0] : lists[word, 1]], lists[word, 2]
            is_short, place = len(entities) < len(near), 0
            for k in range(len(entities) if is_short else len(near)):
                place = place_from(place, entities[k], near) if is_short else place_from(place, near[k], entities)
                if place == (len(near) if is_short else len(entities)):
                    break
                if near[place if is_short else k] == entities[k if is_short else place]:
                    row[place if is_short else k] += length


@compiled
def longer_names(slots, places, words, initials, acronyms, first_starts, starts, longer):  # type: ignore[no-untyped-def]
    """For every mention, those with a longer name: it has all words of the mention, or the mention is its acronym.

    Of mentions with the same name, the first that has candidates counts. `longer` is filled up to starts[-1].
    """
    number = 0
    for i in range(len(slots)):
        own = words[places[slots[i], 0] : places[slots[i], 1]]
        acronym = acronyms[slots[i]]
        for j in range(len(slots)):
            if first_starts[j] == first_starts[j + 1]:
                continue
            theirs = words[places[slots[j], 0] : places[slots[j], 1]]
            is_longer = 0 < len(own) < len(theirs)
            for k in range(len(own)):
                is_longer = is_longer and is_in(own[k], theirs)
            if not is_longer and not (acronym and acronym == initials[slots[j]]):
                continue
            is_first = True
            for before in range(j):
                has_candidates = first_starts[before] < first_starts[before + 1]
                is_first = is_first and not (has_candidates and slots[before] == slots[j])
            if is_first:
                longer[number] = j
                number += 1
        starts[i + 1] = number
