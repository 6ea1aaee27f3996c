"""p(e|m): how often a surface string leads to an entity (section 6).

    mentions.hashes.npy, mentions.arrow     the distinct mentions, in hash order
    mentions.offsets.npy                    CSR rows: candidates of mention i are [offsets[i], offsets[i+1])
    mentions.entities.npy                   candidates by falling prior
    mentions.priors.npy, .counts.npy        p(e|m), and the counts behind it, of all sources together
    mentions.folded.npy, .folded_rows.npy   hashes of the lower-cased mentions, in order, and the row each stands for

A link counts 1. A title or redirect is a name of its entity too: it counts TITLE_COUNT, once, so that it makes entities
known that are never linked and hardly moves the others. Further sources (`prior_sources`) are merged by one of two rules:

    paper       each source that knows the mention has a p(e|m) of its own; the prior is their average
    deep-ed     counts are added and shared out; a uniform source (YAGO) then adds 1 / its number of candidates, up to 1
"""

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from deeped_ray.corpus.pages import Links, Lot
from deeped_ray.knowledge.csr import Csr, join_csr, write_csr
from deeped_ray.knowledge.parts import Part
from deeped_ray.knowledge.strings import StringIndex, hash64, hashes_of, join_strings, write_hashed_strings
from deeped_ray.storage.arrays import in_ranges, joining, read_array
from deeped_ray.text import bare_title, capitalize_words, normalize_mention

MergeRule = Literal["paper", "deep-ed"]
MAX_CANDIDATES = 100
ANCHORS = 0
"""Number of the source that every corpus has: its own links and titles. Further ones follow."""
# Differs from the paper, which knows no such counts: see above
TITLE_COUNT = 0.5
_SCHEMA = pa.schema(
    {"hash": pa.uint64(), "mention": pa.string(), "entity": pa.int64(), "source": pa.int8(), "count": pa.float64()}
)
_COLUMNS = ("entities", "priors", "counts")
_PUNCTUATION = " .,;:!?'\"()|-–—’‘“”"
MAX_SURFACE = 1000
"""Longer strings are no names. Titles have at most 255 bytes."""
REMEMBERED = 2**13
"""Look-ups whose answers are kept."""
_POSSESSIVE = re.compile(r"\s*['’]s?$")
_Floats = npt.NDArray[np.float64]
_Ints = npt.NDArray[np.int64]
_Ids = npt.NDArray[np.int32]


def links_of(lot: Lot, links: Links) -> Iterator[tuple[str, int]]:
    """(mention, entity) of every link that has a text."""
    for start, end, entity in zip(links.start.tolist(), links.end.tolist(), links.entity.tolist(), strict=True):
        if mention := normalize_mention(lot.text[start:end]):
            yield mention, entity


def rows(counts: Mapping[tuple[str, int], float], *, source: int = ANCHORS) -> pa.Table:
    """(mention, entity) -> count as rows for the reducers."""
    mentions = [mention for mention, _ in counts]
    columns = {
        "hash": hashes_of(mentions),
        "mention": mentions,
        "entity": [entity for _, entity in counts],
        "source": np.full(len(mentions), source, dtype=np.int8),
        "count": list(counts.values()),
    }
    return pa.table(columns, schema=_SCHEMA)


def title_rows(titles: Sequence[str], entities: Sequence[int]) -> pa.Table:
    """Titles and redirects as mentions, also without what tells them apart: `Apple (fruit)` and `Paris, Texas` as well."""
    counts: dict[tuple[str, int], float] = {}
    for title, entity in zip(titles, entities, strict=True):
        for name in {normalize_mention(title), bare_title(normalize_mention(title))} - {""}:
            counts[name, entity] = TITLE_COUNT
    return rows(counts)


def link_rows(hashes: npt.NDArray[np.uint64], mentions: pa.Array, entities: _Ids, counts: _Ids) -> pa.Table:
    """Links that were counted before, as rows for the reducers."""
    source = np.full(len(hashes), ANCHORS, dtype=np.int8)
    columns = [hashes, mentions.cast(pa.string()), entities.astype(np.int64), source, counts.astype(np.float64)]
    return pa.table(columns, schema=_SCHEMA)


def write_anchors(prefix: Path, table: pa.Table, mentions: Sequence[str]) -> None:
    """The rows of `add_up` by mention, of all mentions of a piece."""
    place = pc.index_in(table["mention"], value_set=pa.array(mentions, pa.string())).to_numpy()
    entities, counts = (table[name].to_numpy().astype(np.int32) for name in ("entity", "count"))
    write_csr(prefix, np.bincount(place, minlength=len(mentions)), entities=entities, counts=counts)


def add_up(table: pa.Table) -> pa.Table:
    """Rows of links, one for each mention and entity. Where pages are gone, nothing may be left of a pair."""
    table = table.group_by(["hash", "mention", "entity", "source"], use_threads=False).aggregate([("count", "sum")])
    table = table.rename_columns({"count_sum": "count"}).select(_SCHEMA.names)
    table = table.filter(pc.greater(table["count"], 0))
    return table.sort_by([(name, "ascending") for name in ("hash", "mention", "entity")]).combine_chunks()


# -- merging


class SourceCounts(NamedTuple):
    """One row per (mention, entity, source), in this order; mentions are numbered 0, 1, ..."""

    mention: _Ints
    entity: _Ints
    source: _Ints
    support: _Floats


class Priors(NamedTuple):
    """One row per (mention, entity), by falling prior within a mention."""

    mention: _Ints
    entity: _Ints
    prior: _Floats
    support: _Floats


def merge_sources(rows: SourceCounts, *, rule: MergeRule, uniform_sources: Sequence[int] = ()) -> Priors:
    """The priors of all mentions; `uniform_sources` know which entities a mention can mean, but not how often."""
    is_first = _is_new(rows.mention, rows.entity)
    pair = np.cumsum(is_first) - 1
    mention, entity = rows.mention[is_first], rows.entity[is_first]
    support = _sum_by(pair, rows.support, len(mention))
    if rule == "paper":
        num_sources = int(rows.source.max(initial=0)) + 1
        key = rows.mention * num_sources + rows.source
        knowing = np.bincount(np.unique(key) // num_sources)  # [mentions]
        share = rows.support / np.bincount(key, rows.support)[key]
        prior = np.bincount(pair, share, len(mention)) / knowing[mention]
    else:
        is_uniform = np.isin(rows.source, uniform_sources).astype(np.float64)
        counted = _sum_by(pair, rows.support * (1 - is_uniform), len(mention))
        counted *= _rank(mention, entity, counted) < MAX_CANDIDATES
        uniform_prior = is_uniform / np.maximum(np.bincount(rows.mention, is_uniform), 1)[rows.mention]
        total = np.bincount(mention, counted)[mention]
        prior = np.divide(counted, total, out=np.zeros(len(mention)), where=total > 0)
        prior = np.minimum(prior + np.bincount(pair, uniform_prior, len(mention)), 1)
    order = np.lexsort((entity, -prior, mention))
    order = order[(_rank(mention, entity, prior)[order] < MAX_CANDIDATES) & (prior[order] > 0)]
    return Priors(mention[order], entity[order], prior[order], support[order])


def _is_new(*columns: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Where a row differs from the one before it."""
    is_new = np.ones(len(columns[0]), dtype=bool)
    is_new[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    return is_new


def _sum_by(group: _Ints, values: _Floats, num_groups: int) -> _Floats:
    return np.bincount(group, values, num_groups).astype(np.float64)


def _rank(mention: _Ints, entity: _Ints, score: _Floats) -> _Ints:
    """Place of every row among its mention's, best score first."""
    order = np.lexsort((entity, -score, mention))
    starts = np.searchsorted(mention[order], mention[order])
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order)) - starts
    return rank


def reduce(
    table: pa.Table, target: Path, *, rule: MergeRule = "paper", uniform_sources: Sequence[int] = ()
) -> list[str]:
    """Add up the counts of mentions and write a piece of the table, with prefix `target`; returns the mentions."""
    table = table.sort_by([(column, "ascending") for column in ("hash", "mention", "entity", "source", "count")])
    encoded = table["mention"].combine_chunks().dictionary_encode()
    mention, mentions = encoded.indices.to_numpy().astype(np.int64), encoded.dictionary
    priors = merge_sources(_cells(table, mention, uniform_sources), rule=rule, uniform_sources=uniform_sources)
    hashes = table["hash"].to_numpy()[_is_new(mention)]
    write_hashed_strings(target.parent, target.name, hashes, mentions)
    write_csr(
        target,
        np.bincount(priors.mention, minlength=len(mentions)),
        entities=priors.entity.astype(np.int32),
        priors=priors.prior.astype(np.float32),
        counts=priors.support.astype(np.float32),
    )
    found: list[str] = mentions.to_pylist()
    np.save(f"{target}.folded.npy", hashes_of([mention.lower() for mention in found]))
    np.save(f"{target}.totals.npy", np.bincount(priors.mention, priors.support, len(mentions)).astype(np.float32))
    return found


def _cells(table: pa.Table, mention: _Ints, uniform_sources: Sequence[int]) -> SourceCounts:
    """Sorted rows added up."""
    entity, source, count = (table[column].to_numpy() for column in ("entity", "source", "count"))
    cells = np.flatnonzero(_is_new(mention, entity, source))
    counts = np.add.reduceat(count, cells) if len(cells) else np.zeros(0)
    # a source without counts says of a candidate only that it is one, however often it says so
    counts[np.isin(source[cells], uniform_sources)] = 1
    return SourceCounts(mention[cells], entity[cells], source[cells].astype(np.int64), counts)


def join(pieces: Sequence[Path], folder: Path) -> None:
    """The mention table from its pieces, which follow each other in hash order."""
    join_csr(pieces, folder / "mentions", _COLUMNS)
    join_strings(pieces, folder, "mentions")
    _join_folded(pieces, folder)


def _join_folded(pieces: Sequence[Path], folder: Path) -> None:
    """The index of lower-cased mentions. Where several differ only in case, the most frequent stands for them."""
    firsts = np.cumsum([0, *(len(read_array(f"{piece}.folded.npy")) for piece in pieces)])
    with joining(folder, "mentions.folded", "mentions.folded_rows") as add:
        for piece, place, hashes, totals in in_ranges(pieces, "folded", "totals"):
            order = np.lexsort((-totals, hashes))  # stable: of equals, the first row
            chosen = order[_is_new(hashes[order])]
            add(hashes[chosen], (firsts[piece] + place)[chosen].astype(np.int32))


# -- looking up


class PriorCandidate(NamedTuple):
    entity_id: int
    prior: float
    support: float
    """What is behind the prior: links, titles and the counts of further sources."""


class Senses(Sequence[PriorCandidate]):
    """What a mention can mean, most probable first, in columns. A candidate is made of them when it is asked for."""

    def __init__(self, entity: npt.NDArray[Any], prior: npt.NDArray[Any], support: npt.NDArray[Any]) -> None:
        self.entity, self.prior, self.support = entity, prior, support
        self._first: Senses | None = None

    @functools.cached_property
    def best(self) -> PriorCandidate:
        """The most probable one; of equals, that with the lowest number."""
        return min(self, key=lambda each: (-each.prior, each.entity_id))

    @functools.cached_property
    def packed(self) -> tuple[bytes, bytes, bytes]:
        """The columns as int64, float32 and float64: the same come again and again, and bytes are joined in no time."""
        kinds = zip((self.entity, self.prior, self.support), (np.int64, np.float32, np.float64), strict=True)
        entity, prior, support = (column.astype(kind).tobytes() for column, kind in kinds)
        return entity, prior, support

    def first(self, most: int) -> "Senses":
        """The most probable ones, the same object every time."""
        if len(self.entity) <= most:
            return self
        if self._first is None or len(self._first.entity) != most:
            self._first = self[:most]
        return self._first

    @functools.cached_property
    def ordered(self) -> "Senses":
        """By falling prior; of equals, that with the lowest number first."""
        return _average([self])

    @classmethod
    def of(cls, candidates: Sequence[PriorCandidate]) -> "Senses":
        entities, priors, supports = zip(*candidates, strict=True) if candidates else ((), (), ())
        return cls(np.array(entities, np.int64), np.array(priors, np.float64), np.array(supports, np.float64))

    def __len__(self) -> int:
        return len(self.entity)

    @overload
    def __getitem__(self, place: int) -> PriorCandidate: ...
    @overload
    def __getitem__(self, place: slice) -> "Senses": ...
    def __getitem__(self, place: int | slice) -> "PriorCandidate | Senses":
        if isinstance(place, slice):
            return Senses(self.entity[place], self.prior[place], self.support[place])
        return PriorCandidate(int(self.entity[place]), float(self.prior[place]), float(self.support[place]))

    def __iter__(self) -> Iterator[PriorCandidate]:
        return map(PriorCandidate, self.entity.tolist(), self.prior.tolist(), self.support.tolist())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and [*self] == [*other]

    __hash__ = None  # type: ignore[assignment]

    def joined(self, other: "Senses") -> "Senses":
        """The senses of two sources, each with the weight of its counts."""
        total = float(self.support.sum() + other.support.sum())
        shares = [float(each.support.sum()) / total for each in (self, other)]
        entity, place = np.unique(np.concatenate([self.entity, other.entity]), return_inverse=True)
        priors = np.concatenate([share * each.prior for share, each in zip(shares, (self, other), strict=True)])
        prior = np.bincount(place, priors, len(entity))
        support = np.bincount(place, np.concatenate([self.support, other.support]), len(entity))
        order = np.lexsort((entity, -prior))[:MAX_CANDIDATES]
        return Senses(entity[order], prior[order], support[order])


def average(senses: Sequence[Senses]) -> Senses:
    """The average of several mentions' priors. An entity that a mention lacks counts 0 there."""
    if len(senses) == 1:
        return senses[0].ordered
    return _average(senses)


def _average(senses: Sequence[Senses]) -> Senses:
    columns = zip(*((each.entity, each.prior, each.support) for each in senses), strict=True)
    entities, priors, supports = (np.concatenate(column) for column in columns)
    entity, place = np.unique(entities, return_inverse=True)
    prior = np.bincount(place, priors, len(entity)) / len(senses)
    order = np.lexsort((entity, -prior))[:MAX_CANDIDATES]
    return Senses(entity[order].astype(np.int64), prior[order], np.bincount(place, supports, len(entity))[order])


NO_SENSES = Senses(*(np.zeros(0, kind) for kind in (np.int32, np.float32, np.float32)))


class Match(NamedTuple):
    """How a surface was found, and what it can mean."""

    mention: str
    """The mention as the table has it; empty for a surface that it does not know."""
    rule: Literal["exact", "capitalised", "lower-cased", "without punctuation", "unknown"]
    candidates: Senses


class MentionEntities(NamedTuple):
    """One row per entity of some mentions."""

    place: _Ints
    """Of the mention among those asked for."""
    entity: _Ints
    prior: npt.NDArray[np.float32]


class MentionTable:
    """Reads the mention table of a corpus part. Nothing is copied out of the files until it is asked for."""

    def __init__(self, part: Part, *, added: Mapping[str, Senses] | None = None) -> None:
        """`added` are further names, and what they mean beside what the table says. They may change at any time."""
        self.added: Mapping[str, Senses] = {} if added is None else added
        self._remembered = functools.lru_cache(maxsize=REMEMBERED)(self._match)  # the same names come again and again
        self._mentions = StringIndex(part.path, "mentions")
        self._rows = Csr(part, "mentions", _COLUMNS)
        self._folded: npt.NDArray[np.uint64] = np.asarray(part.array("mentions.folded"))
        self._folded_rows: npt.NDArray[np.int32] = np.asarray(part.array("mentions.folded_rows"))

    def __len__(self) -> int:
        return len(self._mentions)

    def take(self, rows: _Ints) -> list[str]:
        """The mentions of some rows."""
        return self._mentions.take(rows)

    def entities_of(self, rows: _Ints, *, min_share: float) -> "MentionEntities":
        """The entities of some rows that have at least this prior."""
        starts, ends = self._rows.offsets[rows], self._rows.offsets[rows + 1]
        place = np.repeat(np.arange(len(rows)), ends - starts)
        cells = np.arange(len(place)) + np.repeat(starts - np.append(0, np.cumsum(ends - starts))[:-1], ends - starts)
        entities, priors, _ = (column[cells] for column in self._rows.columns)
        is_kept = priors >= min_share
        return MentionEntities(place[is_kept], entities[is_kept].astype(np.int64), priors[is_kept])

    def names_of(self, entity: int, *, count: int) -> list[tuple[str, float, float]]:
        """The names that can mean an entity, with p(e|m) and counts; most frequent first. Looks at the whole table."""
        entities, priors, supports = self._rows.columns
        cells = np.flatnonzero(entities == entity)
        cells = cells[np.argsort(-supports[cells], kind="stable")[:count]]
        rows = np.searchsorted(self._rows.offsets, cells, side="right") - 1
        return [*zip(self.take(rows), priors[cells].tolist(), supports[cells].tolist(), strict=True)]

    def candidates(self, surface: str) -> Senses:
        """Candidates with p(e|m), most probable first; empty for a string that is never a link or title."""
        return self.match(surface).candidates

    def match(self, surface: str) -> Match:
        """Look a surface up as it stands, then as the authors' code does for other case, then without punctuation.

        NEW YORK is taken for New York unless it is itself the more frequent mention, as U.S. is.
        """
        if len(surface) > MAX_SURFACE:
            return Match("", "unknown", NO_SENSES)
        found = self._remembered(surface)
        if self.added and (added := self.added.get(mention := normalize_mention(surface))):
            if not len(found.candidates):
                return Match(mention, "exact", added)
            return found._replace(candidates=found.candidates.joined(added))
        return found

    def _match(self, surface: str) -> Match:
        mention = normalize_mention(surface)
        row = self._mentions.find(mention)
        if mention.isupper() and (capitalized := capitalize_words(mention)) != mention:
            other = self._mentions.find(capitalized)
            if other is not None and (row is None or self._total(row) <= self._total(other)):
                return Match(capitalized, "capitalised", self._candidates(other))
        if row is not None:
            return Match(mention, "exact", self._candidates(row))
        row = self._find_folded(mention)
        if row is not None:
            return Match(self._mentions[row], "lower-cased", self._candidates(row))
        for bare in (mention.strip(_PUNCTUATION), _POSSESSIVE.sub("", mention)):
            if bare in (mention, ""):
                continue
            row = self._mentions.find(bare)
            row = self._find_folded(bare) if row is None else row
            if row is not None:
                return Match(self._mentions[row], "without punctuation", self._candidates(row))
        return Match("", "unknown", NO_SENSES)

    def _candidates(self, row: int) -> Senses:
        return Senses(*self._rows.row(row))

    def _total(self, row: int) -> float:
        _, _, counts = self._rows.row(row)
        return float(counts.sum())

    def _find_folded(self, mention: str) -> int | None:
        lowered = mention.lower()
        key = np.uint64(hash64(lowered))
        place = int(self._folded.searchsorted(key))
        if place == len(self._folded) or self._folded[place] != key:
            return None
        row = int(self._folded_rows[place])
        return row if self._mentions[row].lower() == lowered else None
