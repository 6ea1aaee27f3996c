"""Finds mentions in raw text with the names of the knowledge base. It needs no other model.

    find       all names of the mention table in the text; a headline in capitals is also read in usual case
    choose     keep names that are linked often enough where they occur, and seldom written in lower case
    resolve    where names overlap, keep the longest, then the one that is linked more often
    complete   drop a name that is part of a longer, unknown name; add the short names of persons and firms

    link probability = (linked pages + 0.2) / (pages + 2)

Pages are those whose text contains the string; linked pages are those where it is a link. The probability is low, since
authors rarely link well-known names (`U.S.` on 2% of its pages).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from deeped_ray.corpus.occurrences import MAX_UNITS, Occurrences, SequenceIndex, later_hashes
from deeped_ray.knowledge.parts import Part
from deeped_ray.linking.pace import Pause, no_pause
from deeped_ray.text import STOP_WORDS, Hashes, Spans, compose, hash_tokens, unit_spans
from deeped_ray.types import DeepEdError

Span = tuple[int, int]
PIECE_CHARACTERS = 10_000
"""Read at once: some ten milliseconds of work."""
# A string that never occurs in running text, such as some titles, counts as linked once in ten times.
_PSEUDO_PAGES, _PSEUDO_LINKED = 2.0, 0.2
_SENTENCE_ENDS = frozenset(".!?:\n\r\v\f\x85\u2028\u2029")
_BREAK = "\n"
_DATE = re.compile(
    r"(?i:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?|(?:mon|tues|wednes|thurs|fri|satur|sun)days?)"
)
_NO_NAMES = frozenset(("DATE", "TIME", "PERCENT", "MONEY", "QUANTITY", "ORDINAL", "CARDINAL"))
_Ints = npt.NDArray[np.int64]
_Floats = npt.NDArray[np.float64]
_Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class DetectionConfig:
    """How mentions are found in raw text."""

    detector: Annotated[
        Literal["kb", "spacy"],
        "who finds mentions: the knowledge base, or a spaCy pipeline (needs the extra `spacy`)",
    ] = "kb"
    min_link_probability: Annotated[float, "link probability that a name needs to be a mention"] = 0.015
    min_lower_probability: Annotated[
        float, "the same for a common word, or one that begins or ends with a lower-case word; 1: never"
    ] = 0.5
    min_name_share: Annotated[
        float, "share of pages with the string, in any case, that write it as a name: less is a common word"
    ] = 0.8
    short_names: Annotated[bool, "take the last word of a longer mention of the same text for a mention too"] = True
    spacy_model: Annotated[str, "spaCy pipeline to load"] = "en_core_web_sm"

    def __post_init__(self) -> None:
        for name in ("min_link_probability", "min_lower_probability", "min_name_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise DeepEdError(f"`{name}` must lie between 0 and 1, not be {getattr(self, name)}.")


class _Words(NamedTuple):
    """What the form of each unit of a text tells about it."""

    strings: list[str]
    is_spaced: _Bools
    is_word: _Bools
    is_capital: _Bools
    """Begins with a letter and is not lower-case. Words of scripts without case count as capitalised."""
    is_number: _Bools
    is_upper: _Bools
    is_common: _Bools
    """A stop word, or part of a date."""
    is_initial: _Bools
    """First word of a sentence or line."""
    num_letters: _Ints
    """Zero for numbers, dates and stop words: a mention needs more than these."""


class _Matches(NamedTuple):
    """Strings of the text that the mention table knows, as written or in other case."""

    first: _Ints
    length: _Ints
    probability: _Floats
    name_share: _Floats

    def where(self, is_kept: _Bools) -> "_Matches":
        return _Matches(self.first[is_kept], self.length[is_kept], self.probability[is_kept], self.name_share[is_kept])


class _Piece(NamedTuple):
    """A piece of a text, and the names in it."""

    units: Spans
    words: _Words
    is_ordinary: _Bools
    chosen: list[Span]
    """In units."""


class Detector:
    """Finds mentions by the mention table of a corpus part."""

    def __init__(self, corpus: Part, config: DetectionConfig) -> None:
        self.config = config
        self._sequences = SequenceIndex(corpus.path)
        self._pages = np.asarray(corpus.array("mentions.pages"))
        self._linked_pages = np.asarray(corpus.array("mentions.linked_pages"))

    def spans(self, text: str, pause: Pause = no_pause) -> list[Span]:
        """Start and end of every mention, in order. Mentions do not overlap."""
        read = []
        for start, end in pieces(text):
            units = unit_spans(text[start:end])
            if len(units.starts):
                read.append((start, self._read(text[start:end], units)))
            pause()
        last_words = set().union(*(_last_words(piece) for _, piece in read)) if self.config.short_names else set()
        found = []
        for start, piece in read:
            starts, ends = (piece.units.starts + start).tolist(), (piece.units.ends + start).tolist()
            chosen = piece.chosen + _short_names(piece, last_words)
            found += sorted((starts[first], ends[end - 1]) for first, end in chosen)
            pause()
        return found

    def _read(self, text: str, units: Spans) -> "_Piece":
        """All but the short names, whose long forms may stand anywhere in the text."""
        words = _words_of(text, units)
        matches = self._find(words)
        is_ordinary = _ordinary(matches, words, self.config.min_name_share)
        chosen = _resolve(matches.where(self._is_mention(matches, words)), len(words.is_word))
        return _Piece(units, words, is_ordinary, _without_parts(chosen, words, is_ordinary))

    def _find(self, words: _Words) -> _Matches:
        """All matches as written, and as a headline for capitals, with how often they are written in lower case."""
        own = hash_tokens(words.strings)
        headline, later_headline = (hash_tokens(form) for form in _headline(words))
        lower = hash_tokens([string.lower() for string in words.strings])
        as_own = self._match(words, own, own)
        as_headline = _changed(self._match(words, headline, later_headline), own, headline, later_headline)
        as_lower = _changed(self._match(words, lower, lower), own, lower, lower)
        keys, place = np.unique(np.append(_keys_of(as_own), _keys_of(as_headline)), return_inverse=True)
        rows = np.append(as_own.row, as_headline.row)
        pages = np.bincount(place, self._pages[rows], len(keys))
        linked_pages = np.bincount(place, self._linked_pages[rows], len(keys))
        is_known = np.isin(_keys_of(as_lower), keys)
        place = np.searchsorted(keys, _keys_of(as_lower)[is_known])
        lower_pages = np.bincount(place, self._pages[as_lower.row[is_known]], len(keys))
        probability = (linked_pages + _PSEUDO_LINKED) / (pages + _PSEUDO_PAGES)
        name_share = np.divide(pages, pages + lower_pages, out=np.ones(len(pages)), where=lower_pages > 0)
        return _Matches(*np.divmod(keys, MAX_UNITS + 1), probability, name_share)

    def _match(self, words: _Words, first: Hashes, later: Hashes) -> Occurrences:
        return self._sequences.find(first, later_hashes(later, words.is_spaced))

    def _is_mention(self, matches: _Matches, words: _Words) -> _Bools:
        first, last = matches.first, matches.first + matches.length - 1
        # a mention may end with a full stop or bracket: the word before it counts
        last_word = np.maximum.accumulate(np.where(words.is_word, np.arange(len(words.is_word)), -1))[last]
        is_edge = words.is_capital | words.is_number
        is_name = is_edge[first] & is_edge[last_word] & (matches.name_share >= self.config.min_name_share)
        num_letters = np.append(0, np.cumsum(words.num_letters))
        has_letters = num_letters[last + 1] - num_letters[first] > 1
        least = np.where(is_name, self.config.min_link_probability, self.config.min_lower_probability)
        is_likely = matches.probability >= least
        is_mention: _Bools = words.is_word[first] & has_letters & is_likely
        return is_mention


def _keys_of(found: Occurrences) -> _Ints:
    return found.first * (MAX_UNITS + 1) + found.length


def _changed(found: Occurrences, own: Hashes, first: Hashes, later: Hashes) -> Occurrences:
    """Matches whose form differs from the text. The others were already found as written."""
    num_changed = np.append(0, np.cumsum(later != own))
    is_changed = num_changed[found.first + found.length] > num_changed[found.first + 1]
    is_changed |= (first != own)[found.first]
    return Occurrences(found.first[is_changed], found.length[is_changed], found.row[is_changed])


def _words_of(text: str, units: Spans) -> _Words:
    strings = [text[start:end] for start, end in zip(units.starts.tolist(), units.ends.tolist(), strict=True)]
    strings = [compose(string) for string in strings]
    is_word = np.array([string[0].isalnum() for string in strings])
    is_common = np.array([string.lower() in STOP_WORDS or _DATE.fullmatch(string) is not None for string in strings])
    is_number = np.array([string[0].isdigit() for string in strings])
    places = np.arange(len(strings))
    word_before = np.append(-1, np.maximum.accumulate(np.where(is_word, places, -1))[:-1])
    end_before = np.maximum.accumulate(np.where([string in _SENTENCE_ENDS for string in strings], places, -1))
    lengths = np.array([len(string) for string in strings])
    return _Words(
        strings=strings,
        is_spaced=units.is_spaced,
        is_word=is_word,
        is_capital=is_word & ~is_number & ~np.array([string.islower() for string in strings]),
        is_number=is_number,
        is_upper=np.array([len(string) > 1 and string.isupper() for string in strings]),
        is_common=is_common,
        is_initial=is_word & (word_before <= end_before),
        num_letters=np.where(is_word & ~is_number & ~is_common, lengths, 0),
    )


def _headline(words: _Words) -> tuple[list[str], list[str]]:
    """BANK OF ENGLAND -> Bank of England: each word as the first of a name, and as a later one. Usual case ends a name."""
    first, later = [], []
    for place, string in enumerate(words.strings):
        # the S of QUEEN'S is not a word
        is_tail = place > 0 and not words.is_spaced[place] and words.strings[place - 1] in "'’"
        lowered = string.lower()
        first.append(string.capitalize() if string.isupper() else _BREAK)
        if string.isupper():
            later.append(lowered if is_tail or lowered in STOP_WORDS else string.capitalize())
        else:
            later.append(_BREAK if string != lowered or string.islower() else string)
    return first, later


def _ordinary(matches: _Matches, words: _Words, min_name_share: float) -> _Bools:
    """Words that do not belong to a name beside them: common words, and words capitalised only by their position."""
    is_ordinary = words.is_common | ~words.is_capital
    single = matches.where(matches.length == 1)
    is_ordinary[single.first] |= (single.name_share < min_name_share) | words.is_initial[single.first]
    return is_ordinary


def _resolve(matches: _Matches, num_units: int) -> list[Span]:
    """Matches that do not overlap: longest first, then most probable."""
    is_taken = np.zeros(num_units, dtype=bool)
    chosen = []
    for place in np.lexsort((matches.first, -matches.probability, -matches.length)).tolist():
        first = int(matches.first[place])
        end = first + int(matches.length[place])
        if not is_taken[first:end].any():
            is_taken[first:end] = True
            chosen.append((first, end))
    return chosen


def _taken(chosen: list[Span], num_units: int) -> _Bools:
    is_taken = np.zeros(num_units, dtype=bool)
    for first, end in chosen:
        is_taken[first:end] = True
    return is_taken


def _without_parts(chosen: list[Span], words: _Words, is_ordinary: _Bools) -> list[Span]:
    """Leave out a match next to an unknown name: the `Huber` of `Anke Huber` is none of the known Hubers.

    In a headline every word looks like a name, so a space separates names there. A hyphen always joins.
    """
    is_foreign = ~is_ordinary & ~_taken(chosen, len(is_ordinary))
    num_units = len(is_foreign)

    def is_part(edge: int, step: int) -> bool:
        """Whether the name continues before the first (step -1) or after the last (step 1) unit of a match."""
        beside, beyond = edge + step, edge + 2 * step
        if not 0 <= beside < num_units:
            return False
        if words.is_spaced[max(edge, beside)]:
            return bool(is_foreign[beside] and not (words.is_upper[edge] and words.is_upper[beside]))
        is_joined = words.strings[beside] == "-" and 0 <= beyond < num_units and words.is_word[beyond]
        return bool(is_joined and not words.is_spaced[max(beside, beyond)])

    return [(first, end) for first, end in chosen if not is_part(first, -1) and not is_part(end - 1, 1)]


def _last_words(piece: _Piece) -> set[str]:
    """The last words of names of several words."""
    words = piece.words
    found = {words.strings[end - 1] for first, end in piece.chosen if words.is_capital[first : end - 1].any()}
    return {word for word in found if word.istitle()}


def _short_names(piece: _Piece, last_words: set[str]) -> list[Span]:
    """`Arafat`, if `Yasser Arafat` is a mention: the linker gives the short name the candidates of the long one."""
    words, strings = piece.words, piece.words.strings
    is_taken = _taken(piece.chosen, len(strings))
    is_rival = words.is_capital & ~is_taken & ~words.is_initial & ~piece.is_ordinary
    found = []
    for place, string in enumerate(strings):
        if string not in last_words or is_taken[place]:
            continue
        beside = [side for side in (place - 1, place + 1) if 0 <= side < len(strings)]
        if not any(is_rival[side] for side in beside):
            found.append((place, place + 1))
    return found


def pieces(text: str) -> Iterator[Span]:
    """Cut a long text into pieces, at line ends if there are some, else between words. No name spans two lines."""
    start, size = 0, PIECE_CHARACTERS
    while len(text) - start > size:
        cuts = (text.rfind(mark, start, start + size) + 1 for mark in ("\n", ". ", " "))
        end = next((cut for cut in cuts if cut > start), start + size)
        yield start, end
        start = end
    if start < len(text):
        yield start, len(text)


class SpacyDetector:
    """Uses the named entities of a spaCy pipeline as mentions."""

    def __init__(self, config: DetectionConfig) -> None:
        self.config = config
        self._pipeline = _load_pipeline(config.spacy_model)

    def spans(self, text: str, _: Pause = no_pause) -> list[Span]:
        return [
            (entity.start_char, entity.end_char)
            for entity in self._pipeline(text).ents
            if entity.label_ not in _NO_NAMES
        ]


def _load_pipeline(model: str) -> Any:
    try:
        import spacy
    except ImportError as error:
        raise DeepEdError(
            "`detector` spacy needs spaCy, which is not installed. Run pip install 'deeped-ray[spacy]'."
        ) from error
    try:
        return spacy.load(model)
    except OSError as error:
        raise DeepEdError(f"spaCy has no pipeline {model!r}. Run python -m spacy download {model}.") from error


def open_detector(corpus: Part, config: DetectionConfig) -> Detector | SpacyDetector:
    return SpacyDetector(config) if config.detector == "spacy" else Detector(corpus, config)
