"""What speaks for a span: the columns that the detector's model reads, one row per span.

    edges        of the first and last unit, and of the units beside them: case, place in the sentence, how the dump and the
                 rest of the text write it
    counted      how often the dump has the string and links it, as written and in other case
    form         its length, and whether it goes on beyond its ends
    meant        what its candidates are, and how well the likeliest fit the words around it

Columns are numbers of any size: the model knows the mean and spread of each.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from deeped_ray.knowledge.csr import Csr
from deeped_ray.knowledge.parts import Part
from deeped_ray.knowledge.strings import numbers_of, read_mapped
from deeped_ray.linking import column_kernels as kernels
from deeped_ray.linking.kernels import context_fits
from deeped_ray.linking.pace import Pause, no_pause
from deeped_ray.linking.spans import Read, SpanFinder
from deeped_ray.text import Bools, Ints

Floats = npt.NDArray[np.float32]
NUM_FITTING = 3
"""Candidates by prior that are compared with the context."""
NEAR, FAR = 5, 25
"""Words on each side of a span that are its context."""
_ENDS = np.cumsum([kernels.NUM_EDGES, kernels.NUM_COUNTED, kernels.NUM_FORM, kernels.NUM_MEANT]).tolist()
_SAID = 4
"""Columns of `meant` before those of vectors."""


def tell(reads: Sequence[Read], pause: Pause = no_pause) -> list[Ints]:
    """What the whole text tells about the units of each piece, by their lower-case form: how often it has each of `marks_of`."""
    num_units = sum(len(read.words) for read in reads)
    places, owners = np.zeros(2 ** (2 * num_units).bit_length(), np.int64), np.empty(num_units, np.int64)
    totals, number = np.empty((num_units, kernels.NUM_MARKS), np.int64), 0
    for read in reads:
        number = kernels.count_marks(read.units.lower.view(np.int64), marks_of(read), number, places, owners, totals)
        pause()
    told = list[Ints]()
    for read in reads:
        told.append(np.empty((kernels.NUM_MARKS, len(read.words)), np.int64))
        kernels.read_marks(read.units.lower.view(np.int64), places, owners, totals, told[-1])
        pause()
    return told


def marks_of(read: Read) -> Bools:
    """Of every unit, whether it stands here as one of the marks that tell names from other words.

    They are: capitalised inside a sentence that has lower-case words too, in lower case, and as the last and as the first of
    several capitalised words.
    """
    units, runs = read.units, read.runs
    marks = np.empty((kernels.NUM_MARKS, len(read.words)), np.bool_)
    case = units.is_capital, units.is_initial, units.is_upper, units.is_lower, units.is_flat
    kernels.mark(*case, runs.place, runs.size, marks)
    return marks


class Vectors:
    """Word and entity vectors."""

    def __init__(self, words: Part, vectors: Part, *, num_corpus_words: int) -> None:
        self.words: Floats = np.asarray(words.array("vectors"))
        self.entities: Floats = np.asarray(vectors.array("vectors"))
        ids = np.asarray(words.array("corpus_ids"))
        self.word_rows = np.full(num_corpus_words + 1, -1, np.int64)
        """Of words of the corpus; the last row is for all others."""
        self.word_rows[ids] = np.arange(len(ids))


class Columns:
    """Looks up and computes the columns."""

    def __init__(self, corpus: Part, finder: SpanFinder, vectors: Vectors | None = None) -> None:
        self.finder, self._vectors = finder, vectors
        self._table = Csr(corpus, "mentions", ("entities", "priors"))
        entities = read_mapped(corpus.path / "entities.arrow")
        self._num_links, self._is_person = (numbers_of(entities[name]) for name in ("num_links", "is_person"))

    def of(self, read: Read, told: Ints, pause: Pause = no_pause) -> Floats:
        """One row per span."""
        units, found = read.units, read.found
        table = np.empty((len(read.words) + 1, kernels.NUM_UNIT), np.float32)
        flags = (
            *(units.is_word, units.is_number, units.is_capital, units.is_lower, units.is_upper, units.is_stop),
            *(units.is_initial, units.is_line_start, units.is_flat),
        )
        given = (flags, units.sign, units.num_characters, units.sentence, tuple(read.counts), tuple(read.runs))
        kernels.unit_columns(*given, marks_of(read), told, table)
        pause()
        columns = np.empty((len(found.first), _ENDS[-1]), np.float32)
        edges, counted, form, meant = np.split(columns, _ENDS[:-1], axis=1)
        kernels.edges(found.first, found.length, units.sentence, table, edges)
        rows = np.stack(found[3:])
        kernels.counted(rows, self.finder.pages, self.finder.linked_pages, counted)
        kernels.form(
            tuple(found[:5]), units.starts, units.ends, units.is_word, units.is_spaced, units.script, units.sign, form
        )
        pause()
        self._tell_meaning(read, rows, meant)
        pause()
        return columns

    def best(self, rows: Ints) -> Ints:
        """The likeliest entity of rows of the mention table."""
        entities: Ints = self._table.columns[0][self._table.offsets[np.maximum(rows, 0)]].astype(np.int64)
        return entities

    def _tell_meaning(self, read: Read, rows: Ints, columns: Floats) -> None:
        """What the table's candidates are, and how well the likeliest fit the words around the span."""
        candidates = np.empty((rows.shape[1], NUM_FITTING), np.int64)
        shares = np.empty(candidates.shape, np.float32)
        table = (self._table.offsets, *self._table.columns, self._num_links, self._is_person)
        kernels.meant(rows, *table, NUM_FITTING, candidates, shares, columns)
        if self._vectors is None:
            columns[:, _SAID:] = np.nan
            return
        words, found = self._vectors.word_rows[read.words], read.found
        places = np.flatnonzero(words >= 0)
        running = np.zeros((len(places) + 1, self._vectors.words.shape[1]), np.float32)
        kernels.add_up(self._vectors.words, words[places], running)
        left, right = places.searchsorted(found.first), places.searchsorted(found.first + found.length)
        sizes = np.array([NEAR, FAR, len(places)])
        fits = np.zeros((len(sizes), *candidates.shape), np.float32)
        context_fits(running, left, right, sizes, self._vectors.entities, candidates, fits)
        kernels.fitting(fits, shares, columns[:, _SAID:])
