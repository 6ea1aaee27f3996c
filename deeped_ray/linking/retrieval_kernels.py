"""The inner loops of retrieval, compiled: all candidates of a document at once, without a Python object for any of them.

    gather       the pool of each mention, what is known of every entity in it, and the best of them
    consult      what the other names seem to mean, and the best by that
    relate       what hyperlinks say of the few that are left

Entities that several sources name are found by a table of open places: place -> row of the mention's pool. Rows of all
mentions are numbered on, so that what the table holds of an earlier mention is told by its number, and nothing is cleared.
"""

import numpy as np

from deeped_ray.linking.compiling import compiled, compiled_exactly

_ANY, _PRIME = np.int64(42), np.int64(1099511628211)
_SPREAD, _32 = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)
_MIN_PRIOR, _LOG_MIN_PRIOR = np.float32(1e-3), np.float32(np.log(np.float32(1e-3)))
_HALF_SIGN, _HALF_REST, _HALF_SCALE = np.uint32(0x8000), np.uint32(0x7FFF), np.float32(2.0**112)


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
def gather(  # type: ignore[no-untyped-def]
    first_mention,
    end_mention,
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
    """The best rows of some mentions' pools, by mention; returns their number.

    `columns` are the places of evidence: prior, first kind of name, longer name, context fit; the other measures follow.
    The weights of all evidence come with that of the logarithm of the prior at the end.
    """
    first_starts, first_entity, first_prior, first_support = firsts
    longer_starts, longer_mention = longer
    name_starts, name_entity, name_kind, name_strength = names
    near_entity, near_source, letters, num_letters, is_listed = near
    own, extra = vectors
    prior_at, name_at, longer_at, fit_at = columns
    kept_mention, kept_entity, kept_evidence, kept_scores = kept
    most = 0
    for i in range(first_mention, end_mention):
        size = first_starts[i + 1] - first_starts[i] + name_starts[i + 1] - name_starts[i] + len(near_entity)
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
    unit = np.empty(contexts.shape[1], np.float32)
    num_kept = 0
    for i in range(first_mention, end_mention):
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
        for k in range(name_starts[i], name_starts[i + 1]):
            row = _row_of(np.int64(name_entity[k]), adds, places, base, entity, number)
            number = _note(row, name_at + name_kind[k], name_strength[k], evidence, is_first, number)
        for k in range(len(near_entity)):
            if letters[i, k] > 0:
                row = _row_of(near_entity[k], adds, places, base, entity, number)
                number = _note(row, near_source[k], letters[i, k] / num_letters[i], evidence, is_first, number)
        base += number
        _unit(contexts[i], unit)
        total = 0.0
        for row in range(number):
            total += num_links[entity[row]] + 1
        total = np.log(total)
        for row in range(number):
            fit, document_fit = _two_dots(own, extra, entity[row], unit, document)
            links = num_links[entity[row]]
            log_links = np.log1p(np.float64(links))
            evidence[row, fit_at], evidence[row, fit_at + 1] = fit, document_fit
            evidence[row, fit_at + 2] = log_links / 10
            evidence[row, fit_at + 3] = (log_links - total) / 10
            if is_first[row]:
                evidence[row, fit_at + 4] = np.log1p(support[row]) / 5
                evidence[row, fit_at + 5] = min(support[row] / max(links, 1), 1.0)
            prior[row] = evidence[row, prior_at]
            scores[row] = _score(evidence[row], weights, prior[row])
            is_best[row] = False
        count = _keep_best(0, number, prior, scores, entity, by_prior, by_score, best, is_best)
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


@compiled
def _score(evidence, weights, prior):  # type: ignore[no-untyped-def]
    """By which candidates are kept: `retrieval.score`."""
    total = weights[-1] * (np.float32(np.log(prior)) if prior > _MIN_PRIOR else _LOG_MIN_PRIOR)
    for each in range(len(evidence)):
        total += evidence[each] * weights[each]
    return total


@compiled
def _unit(vector, result) -> None:  # type: ignore[no-untyped-def]
    total = np.float32(0)
    for each in range(len(vector)):
        total += vector[each] * vector[each]
    scale = np.float32(1) / np.sqrt(total) if total > 0 else np.float32(0)
    for each in range(len(vector)):
        result[each] = vector[each] * scale


@compiled
def _two_dots(own, extra, row, x, y):  # type: ignore[no-untyped-def]
    """Both products of an entity's vector, which is read once."""
    first = second = np.float32(0)
    if row < len(own):
        for each in range(own.shape[1]):
            first += own[row, each] * x[each]
            second += own[row, each] * y[each]
    else:
        for each in range(own.shape[1]):
            first += extra[row - len(own), each] * x[each]
            second += extra[row - len(own), each] * y[each]
    return first, second


@compiled
def _dot(own, extra, row, x):  # type: ignore[no-untyped-def]
    total = np.float32(0)
    if row < len(own):
        for each in range(own.shape[1]):
            total += own[row, each] * x[each]
    else:
        for each in range(own.shape[1]):
            total += extra[row - len(own), each] * x[each]
    return total


@compiled
def _add(own, extra, row, share, sums) -> None:  # type: ignore[no-untyped-def]
    if row < len(own):
        for each in range(own.shape[1]):
            sums[each] += share * own[row, each]
    else:
        for each in range(own.shape[1]):
            sums[each] += share * extra[row - len(own), each]


@compiled
def consult(mention, entity, evidence, scores, name, vectors, fit_at, weights, by_prior, by_score, kept):  # type: ignore[no-untyped-def]
    """Compare each entity with what the other names of the document seem to mean; keeps the best, returns their number.

    Rows come by mention. A name must not speak for itself, wherever it stands.
    """
    own, extra = vectors
    others = np.zeros((name.max() + 1, own.shape[1]), np.float32)
    shares = np.empty(len(mention), np.float32)
    shares_of(mention, scores, shares)
    for row in range(len(mention)):
        _add(own, extra, entity[row], shares[row], others[name[mention[row]]])
    _of_others(others)
    for row in range(len(mention)):
        evidence[row, fit_at + 1] = _dot(own, extra, entity[row], others[name[mention[row]]])
    return choose(mention, entity, evidence, scores, weights, by_prior, by_score, kept)


@compiled
def relate(mention, entity, evidence, scores, name, halves, at, shares) -> None:  # type: ignore[no-untyped-def]
    """The same by hyperlinks: `halves` are the bits of float16. Entities beyond them have no such vector."""
    vectors = np.zeros((len(mention), halves.shape[1]), np.float32)
    others = np.zeros((name.max() + 1, halves.shape[1]), np.float32)
    shares_of(mention, scores, shares)
    for row in range(len(mention)):
        if entity[row] < len(halves):
            _widen(halves, entity[row], vectors[row])
    # a loop of its own: within the other, the compiler may scale the product instead, and round it twice
    for row in range(len(mention)):
        _add(vectors, vectors, row, shares[row], others[name[mention[row]]])
    _of_others(others)
    for row in range(len(mention)):
        total = np.float32(0)
        for each in range(halves.shape[1]):
            total += vectors[row, each] * others[name[mention[row]], each]
        evidence[row, at] = total


@compiled
def _widen(halves, row, result) -> None:  # type: ignore[no-untyped-def]
    """float16 to float32: the bits are those of a number that is 2 ** 112 times too small."""
    for each in range(halves.shape[1]):
        half = np.uint32(halves[row, each])
        value = np.uint32((half & _HALF_REST) << np.uint32(13)).view(np.float32) * _HALF_SCALE
        result[each] = -value if half & _HALF_SIGN else value


@compiled_exactly
def shares_of(mention, scores, shares) -> None:  # type: ignore[no-untyped-def]
    """Softmax over the rows of each mention."""
    start = 0
    while start < len(mention):
        end, highest = start, scores[start]
        while end < len(mention) and mention[end] == mention[start]:
            highest = max(highest, scores[end])
            end += 1
        total = np.float32(0)
        for row in range(start, end):
            shares[row] = np.exp(scores[row] - highest)
            total += shares[row]
        for row in range(start, end):
            shares[row] /= total
        start = end


@compiled
def _of_others(sums) -> None:  # type: ignore[no-untyped-def]
    """For each row the sum of all other rows, of unit length."""
    total = np.zeros(sums.shape[1], np.float32)
    for row in range(len(sums)):
        total += sums[row]
    for row in range(len(sums)):
        for each in range(len(total)):
            sums[row, each] = total[each] - sums[row, each]
        _unit(sums[row], sums[row])


@compiled
def lay_out(  # type: ignore[no-untyped-def]
    known,
    sides,
    mention,
    entity,
    all_evidence,
    spread,
    num_sources,
    words,
    entities,
    context,
    candidates,
    prior,
    evidence,
    sources,
    gold,
):
    """Fills the rows of an `EncodedDocument`, and makes rising words and entities distinct; returns how many these are.

    `gold` has entities, and gets their places among the candidates.
    """
    num_words, num_entities = _distinct(words), _distinct(entities)
    for i in range(len(sides)):
        at = 0
        for side in range(0, 4, 2):
            for place in range(sides[i, side], sides[i, side + 1]):
                context[i, at] = place_of(known[place], words[:num_words])
                at += 1
    row = 0
    for i in range(len(sides)):
        place, s = -1, 0
        while row < len(mention) and mention[row] == i:
            candidates[i, s] = place_of(entity[row], entities[:num_entities])
            prior[i, s] = all_evidence[row, 0]
            for each in range(evidence.shape[2]):
                evidence[i, s, each] = all_evidence[row, each + 1] / spread[each + 1]
            for source in range(num_sources - 1, -1, -1):
                sources[i, s] = source if all_evidence[row, source] > 0 else sources[i, s]
            place = s if entity[row] == gold[i] else place
            row, s = row + 1, s + 1
        gold[i] = place
    return num_words, num_entities


@compiled
def _distinct(values):  # type: ignore[no-untyped-def]
    """Without repetitions, at the beginning of a rising list; returns how many there are."""
    number = 0
    for place in range(len(values)):
        if place == 0 or values[place] != values[place - 1]:
            # what stands there was read before
            values[number] = values[place]
            number += 1
    return number


@compiled
def compare_titles(  # type: ignore[no-untyped-def]
    mention, names, name_starts, titles, title_places, text_words, name_of, shares, measures
) -> None:
    """The measures of `title_evidence`. Names and titles are rows of `title_evidence.words_of_name`.

    The pattern of a title is the title with `*` for the words of the mention; 0 if it has none of them, or no others.
    """
    patterns = np.zeros(len(mention), np.int64)
    for row in range(len(mention)):
        own = names[name_starts[mention[row]] : name_starts[mention[row] + 1]]
        title = titles[title_places[row, 0] : title_places[row, 1]]
        common = num_rest = rest = in_text = num_shared = pattern = last = np.int64(0)
        for place in range(len(title)):
            word, letters, bare_letters, is_stop = title[place, 0], title[place, 1], title[place, 2], title[place, 3]
            is_shared = False
            for other in range(len(own)):
                if own[other, 0] == word:
                    is_shared = True
                    common += bare_letters if own[other, 2] else 0
            num_shared += is_shared
            if not is_shared and not is_stop:
                num_rest += 1
                rest += letters
                in_text += letters if is_in(word, text_words) else 0
            sign = _ANY if is_shared else word
            if place == 0 or sign != last:
                pattern = (pattern ^ sign) * _PRIME
            last = sign
        if common:
            measures[row, 0] = common / own[:, 2].sum()
            measures[row, 1] = common / title[:, 2].sum()
        if num_rest:
            measures[row, 2] = np.log1p(num_rest) / 2
            measures[row, 3] = in_text / rest
            patterns[row] = pattern if num_shared else 0
    _count_siblings(mention, patterns, name_of, shares, measures[:, 4])


@compiled
def _count_siblings(mention, patterns, name_of, shares, siblings) -> None:  # type: ignore[no-untyped-def]
    """log(1 + sum over other names of the largest share among their candidates with this pattern)."""
    num_places = 16
    while num_places < 2 * len(mention):
        num_places *= 2
    places, kinds = np.zeros(num_places, np.int64), np.empty(len(mention), np.int64)
    kind_of = np.full(len(mention), -1)
    number = 0
    for row in range(len(mention)):
        if patterns[row]:
            kind_of[row] = _row_of(patterns[row], True, places, 1, kinds, number)
            number += kind_of[row] == number
    largest = np.zeros((number, name_of.max() + 1), np.float32)
    for row in range(len(mention)):
        if patterns[row]:
            kind, name = kind_of[row], name_of[mention[row]]
            largest[kind, name] = max(largest[kind, name], shares[row])
    for row in range(len(mention)):
        if patterns[row]:
            total = np.float32(0)
            for name in range(largest.shape[1]):
                if name != name_of[mention[row]]:
                    total += largest[kind_of[row], name]
            siblings[row] = np.log1p(total)


@compiled
def shared_letters(near, listed, starts, ends, lengths, mention, letters) -> None:  # type: ignore[no-untyped-def]
    """Adds the length of each mention's word to the entities of `near` that are in the word's list.

    letters is [mentions, near]; both lists of entities rise. The shorter one is looked up in the other.
    """
    for word in range(len(starts)):
        entities, row = listed[starts[word] : ends[word]], letters[mention[word]]
        if len(entities) < len(near):
            for k in range(len(entities)):
                place = place_of(entities[k], near)
                if place < len(near) and near[place] == entities[k]:
                    row[place] += lengths[word]
        else:
            for k in range(len(near)):
                if is_in(near[k], entities):
                    row[k] += lengths[word]


@compiled
def choose(mention, entity, evidence, scores, weights, by_prior, by_score, kept):  # type: ignore[no-untyped-def]
    """Scores all rows, then `keep_best`."""
    prior = np.empty(len(mention), np.float32)
    for row in range(len(mention)):
        prior[row] = evidence[row, 0]
        scores[row] = _score(evidence[row], weights, prior[row])
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
        count = _keep_best(start, end, prior, scores, entity, by_prior, by_score, best, is_best)
        kept[num_kept : num_kept + count] = best[:count]
        num_kept, start = num_kept + count, end
    return num_kept


@compiled
def _keep_best(start, end, prior, scores, entity, by_prior, by_score, best, is_best):  # type: ignore[no-untyped-def]
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


@compiled
def place_of(value, ordered):  # type: ignore[no-untyped-def]
    """Binary search: where the value stands, or would stand."""
    low, high = 0, len(ordered)
    while low < high:
        middle = (low + high) // 2
        if ordered[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def is_in(value, ordered):  # type: ignore[no-untyped-def]
    place = place_of(value, ordered)
    return place < len(ordered) and ordered[place] == value
