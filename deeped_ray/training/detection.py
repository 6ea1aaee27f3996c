"""Fits the model that finds mentions (`linking.detection`): which spans of a text are mentions.

    names   annotated documents: their mentions, also those outside Wikipedia, and nothing else. From the dump's own articles:
            links that are written as names; but an unlinked name is no evidence, since Wikipedia links few of them
    all     the dump's own articles: links and the same strings elsewhere, and nothing else

The fit begins with the weights that come with the package and is drawn to them as by a few documents, so that a small wiki
or a few annotations only adjust them. Some documents are also read in lower case, in capitals, and as if their script had
neither capitals nor spaces. The threshold is the one with the best F1 on documents that are not fitted to.

`python -m deeped_ray.training.detection --kb KB` makes the packaged weights from the links of a knowledge base.
"""

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from safetensors.numpy import save_file

from deeped_ray.corpus import teaching
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.knowledge.strings import hash64
from deeped_ray.linking.detection import PACKAGED, Weights, choose, load_weights, open_columns
from deeped_ray.linking.span_columns import Columns, Floats, tell
from deeped_ray.linking.spans import Read
from deeped_ray.linking.units import Runs
from deeped_ray.text import Bools
from deeped_ray.training.documents import TrainingDocuments
from deeped_ray.types import Document, Mentions

KEPT_ASIDE_ONE_IN = 10
"""Of the annotated documents: the threshold is chosen on these."""
MAX_DOCUMENTS = 1500
"""Articles that are fitted to, at most, and a fifth of it for validation."""
HIDDEN = 32
EPOCHS = 8
BATCH = 1024
LEARNING_RATE = 0.01
WEIGHT_OF_LINKS = 0.3
"""Of the dump's own articles in the fit of names, if there are annotated documents."""
PULL = 3.0
"""Towards the packaged weights: as much as by so many spans."""
OTHER_CASE_ONE_IN = 8
"""Documents that are also read in lower case, and as many in capitals."""
FREQUENT, RARELY_LINKED = 30, 0.005
"""A string on more pages than this, of which a smaller share links it, is no name."""
_THRESHOLDS = np.linspace(-3, 3, 25)


class Example(NamedTuple):
    """A document's spans: where they are, what speaks for them, whether they are mentions, and how much that counts."""

    places: npt.NDArray[np.int64]
    columns: Floats
    is_mention: Bools
    weight: Floats
    num_missed: int
    """Mentions that are not among the spans."""


class Fitted(NamedTuple):
    weights: dict[str, npt.NDArray[Any]]
    f1: dict[str, float]


def fit_detection(kb: KnowledgeBase, documents: TrainingDocuments, *, seed: int = 0) -> Fitted:
    """The weights for a linker part, and the F1 of each kind on documents kept aside."""
    is_aside = [hash64(f"detection\t{each.name}") % KEPT_ASIDE_ONE_IN == 0 for each in documents.annotated]
    kept_aside, annotated = (
        [each for each, is_out in zip(documents.annotated, is_aside, strict=True) if is_out == wanted]
        for wanted in (True, False)
    )
    start = load_weights(PACKAGED) if PACKAGED.exists() else {}
    return _fit(kb, annotated, kept_aside, start=start, seed=seed)


def _fit(
    kb: KnowledgeBase,
    annotated: Sequence[Document],
    kept_aside: Sequence[Document],
    *,
    start: dict[Mentions, Weights],
    seed: int,
) -> Fitted:
    reader = _Reader(open_columns(kb))
    rng = np.random.default_rng(seed)
    corpus = kb.open("corpus")
    links = reader.read_varied(_some(teaching.read(corpus, "train"), MAX_DOCUMENTS, rng))
    dev_links = reader.read_all(_some(teaching.read(corpus, "dev"), MAX_DOCUMENTS // 5, rng))
    names = [reader.annotated(each) for each in reader.read_varied(annotated)]
    dev_names = [reader.annotated(each) for each in reader.read_all(kept_aside)]
    share = WEIGHT_OF_LINKS if names else 1.0
    train = {
        "names": [*names, *(_times(reader.names_of_links(each), share) for each in links)],
        "all": [reader.links(each) for each in links],
    }
    dev = {
        "names": dev_names or [reader.names_of_links(each) for each in dev_links],
        "all": [reader.links(each) for each in dev_links],
    }
    found, summary = dict[str, npt.NDArray[Any]](), dict[str, float]()
    for kind in ("names", "all"):
        weights = fit(train[kind], start=start.get(kind), seed=seed) if train[kind] else start[kind]
        if dev[kind]:
            weights, summary[f"{kind}_f1"] = with_threshold(weights, dev[kind])
        found.update({f"{kind}.{name}": each for name, each in weights._asdict().items()})
    return Fitted(found, summary)


def _some(documents: Sequence[Document], count: int, rng: np.random.Generator) -> list[Document]:
    return [documents[number] for number in np.sort(rng.permutation(len(documents))[:count])]


def _times(example: Example, share: float) -> Example:
    return example._replace(weight=example.weight * np.float32(share))


# -- reading


def without_case(read: Read, *, is_spaced: bool) -> Read:
    """As if the script had no capitals, or neither capitals nor spaces: what the mention table knows as written remains."""
    units, found = read.units, read.found
    none = np.zeros(len(units.starts), bool)
    spaces = units.is_spaced if is_spaced else none
    nothing = np.full(len(none), -1)
    # words of two scripts, as kanji and hiragana are
    scripts = np.where(units.script > 0, 1 + (units.own & np.uint64(1)), 0).astype(np.uint8)
    found = found._replace(headline=np.full(len(found.own), -1), lower=np.full(len(found.own), -1))
    return read._replace(
        units=units._replace(
            is_capital=none, is_lower=none, is_upper=none, is_flat=none, is_spaced=spaces, script=scripts
        ),
        runs=Runs(nothing, np.zeros(len(none), np.int64), np.zeros(len(none), np.int64)),
        found=found.where(found.own >= 0),
        counts=(read.counts[0], read.counts[0], read.counts[0]),
    )


# -- labels


@dataclass(frozen=True)
class _ReadDocument:
    document: Document
    read: Read
    columns: Floats

    @property
    def gold(self) -> set[tuple[int, int]]:
        return {(mention.start, mention.end) for mention in self.document.mentions}

    @property
    def surfaces(self) -> list[str]:
        return [self.document.text[start:end] for start, end in self.read.places.tolist()]


class _Reader:
    """Reads documents and says which of their spans are mentions."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns

    def read_all(self, documents: Iterable[Document]) -> list[_ReadDocument]:
        """The documents as they are. One without spans teaches nothing."""
        return [read for document in documents for read in self._read(document, lambda own: own)]

    def read_varied(self, documents: Iterable[Document]) -> list[_ReadDocument]:
        """Some of them also in other case, or as if there were none."""
        read = list[_ReadDocument]()
        for number, document in enumerate(documents):
            cases: list[Callable[[str], str]] = [str]
            if number % OTHER_CASE_ONE_IN == 0:
                cases.append(str.lower if number // OTHER_CASE_ONE_IN % 2 else str.upper)
            for case in cases:
                text = case(document.text)
                if len(text) == len(document.text):  # some letters become two
                    read += self._read(Document(document.name, text, document.mentions), lambda own: own)
            if number % OTHER_CASE_ONE_IN == 1:
                read += self._read(document, partial(without_case, is_spaced=number // OTHER_CASE_ONE_IN % 2 == 0))
        return read

    def _read(self, document: Document, seen: Callable[[Read], Read]) -> list[_ReadDocument]:
        """Labels come from the document as it is, columns from how it is seen."""
        read = self._columns.finder.read(document.text)
        shown = seen(read)
        read = read._replace(found=shown.found)
        if not len(read.found.first):
            return []
        return [_ReadDocument(document, read, self._columns.of(shown, tell([shown])[0]))]

    def annotated(self, each: _ReadDocument) -> Example:
        """Every name is annotated, so all other spans are none."""
        is_gold = _is_gold(each)
        return _example(each, is_gold, np.ones(len(is_gold), bool))

    def links(self, each: _ReadDocument) -> Example:
        """Links, and the same strings elsewhere. An article does not link itself, so its own name says nothing."""
        is_gold = _is_gold(each)
        is_own = _is_title(each) & ~is_gold
        return _example(each, is_gold | _is_repeated(each, is_gold), ~is_own)

    def names_of_links(self, each: _ReadDocument) -> Example:
        """Links written as names are; parts of links, words in lower case and what is hardly ever linked are not."""
        is_gold = _is_gold(each)
        units, found = each.read.units, each.read.found
        first, last = found.first, found.first + found.length - 1
        own, lower, title = each.read.counts
        is_lower = (units.is_lower & ~units.is_flat)[first] | (units.is_lower & ~units.is_flat)[last]
        is_common = (found.length == 1) & (lower[first] > 2 * title[first])
        is_doubtful = is_common | (units.is_initial[first] & (found.length == 1) & (lower[first] > title[first]))
        is_doubtful |= np.array([any(sign.isdigit() for sign in surface) for surface in each.surfaces], bool)
        pages, linked = (
            counts[found.own] * (found.own >= 0)
            for counts in (self._columns.finder.pages, self._columns.finder.linked_pages)
        )
        # Apple links to another entity than apple does: a name, also where a sentence begins with it
        is_other = (
            (found.lower >= 0) & (found.own >= 0) & (self._columns.best(found.own) != self._columns.best(found.lower))
        )
        is_name = (is_gold | _is_repeated(each, is_gold)) & ~is_lower
        is_rare = (pages > FREQUENT) & (linked < RARELY_LINKED * pages)
        # German nouns: frequent, capitalised, and neither a title nor ever a link
        is_rare |= (found.own < 0) & (found.headline < 0) & (found.length == 1) & (own[first] > FREQUENT)
        is_none = is_lower | _overlaps(each, is_gold) | is_doubtful | is_rare
        counts_at_all = np.where(is_name, ~is_doubtful | is_other, is_none & ~_is_title(each))
        return _example(each, is_name, counts_at_all)


def _example(each: _ReadDocument, is_mention: Bools, counts: Bools) -> Example:
    places = each.read.places
    missed = each.gold - {(start, end) for start, end in places.tolist()}
    return Example(places, each.columns, is_mention, counts.astype(np.float32), len(missed))


def _is_gold(each: _ReadDocument) -> Bools:
    gold = each.gold
    return np.array([(start, end) in gold for start, end in each.read.places.tolist()], bool)


def _overlaps(each: _ReadDocument, is_gold: Bools) -> Bools:
    """Spans that share characters with a mention and are none."""
    covered = np.zeros(len(each.document.text) + 1, np.int64)
    for start, end in each.gold:
        covered[start:end] = 1
    running = np.append(0, np.cumsum(covered))
    starts, ends = each.read.places.T
    overlaps: Bools = (running[ends] > running[starts]) & ~is_gold
    return overlaps


def _is_repeated(each: _ReadDocument, is_gold: Bools) -> Bools:
    known = {each.document.text[start:end] for start, end in each.gold}
    return np.array([surface in known for surface in each.surfaces], bool) & ~_overlaps(each, is_gold)


def _is_title(each: _ReadDocument) -> Bools:
    """The title of the article, or a word of it."""
    title = each.document.name.rpartition(", ")[0]
    own = {title, *title.split()}
    return np.array([surface in own for surface in each.surfaces], bool)


# -- fitting


def fit(examples: Sequence[Example], *, start: Weights | None, seed: int) -> Weights:
    """Logistic loss, Adam. Without `start`, weights begin at random."""
    torch.manual_seed(seed)
    torch.set_num_threads(1)  # steps are tiny: more threads wait for each other
    columns = np.concatenate([each.columns for each in examples])
    weight = np.concatenate([each.weight for each in examples])
    is_used = weight > 0
    columns, share = columns[is_used], torch.from_numpy(weight[is_used])
    target = torch.from_numpy(np.concatenate([each.is_mention for each in examples])[is_used].astype(np.float32))
    weights = start or _random(columns, seed=seed)
    standard = torch.from_numpy(weights.standard(columns))
    fitted = [torch.tensor(each, requires_grad=True) for each in weights[2:6]]
    begun = [torch.tensor(each) for each in weights[2:6]]
    pull = PULL / max(float(share.sum()), 1.0)
    optimizer = torch.optim.Adam(fitted, lr=LEARNING_RATE)
    num_steps = EPOCHS * -(-len(target) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=max(num_steps, 10))
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(target)).split(BATCH):
            hidden, hidden_bias, output, output_bias = fitted
            scores = torch.relu(standard[rows] @ hidden.T + hidden_bias) @ output + output_bias
            loss = torch.nn.functional.binary_cross_entropy_with_logits(scores, target[rows], share[rows])
            distance = sum(((now - then) ** 2).sum() for now, then in zip(fitted, begun, strict=True))
            optimizer.zero_grad()
            (loss + pull * distance).backward()
            optimizer.step()
            schedule.step()
    return weights._replace(
        **{name: each.detach().numpy() for name, each in zip(Weights._fields[2:6], fitted, strict=True)}
    )


def _random(columns: Floats, *, seed: int) -> Weights:
    rng = np.random.default_rng(seed)
    with np.errstate(all="ignore"):
        mean, spread = np.nan_to_num(np.nanmean(columns, axis=0)), np.nan_to_num(np.nanstd(columns, axis=0))
    num_columns = columns.shape[1]
    hidden = rng.normal(size=(HIDDEN, num_columns)) / np.sqrt(num_columns)
    output = rng.normal(size=HIDDEN) / np.sqrt(HIDDEN)
    zeros = np.zeros(1, np.float32)
    # a column that hardly varies in one wiki must not be blown up in another
    arrays = (mean, np.maximum(spread, 0.05), hidden, np.zeros(HIDDEN), output, zeros, zeros)
    return Weights(*(np.asarray(each, np.float32) for each in arrays))


def with_threshold(weights: Weights, examples: Sequence[Example]) -> tuple[Weights, float]:
    """The threshold with the best F1 on these documents, and that F1. Spans without weight count neither way."""
    scored = [(each, weights.scores(each.columns)) for each in examples]
    f1, threshold = max((_f1(scored, float(threshold)), float(threshold)) for threshold in _THRESHOLDS)
    return weights._replace(threshold=np.array([threshold], np.float32)), round(f1, 4)


def _f1(scored: Sequence[tuple[Example, Floats]], threshold: float) -> float:
    num_right = num_found = num_gold = 0.0
    for each, scores in scored:
        chosen = set(choose(each.places, scores - threshold))
        is_chosen = np.array([(start, end) in chosen for start, end in each.places.tolist()], bool)
        num_right += each.weight[is_chosen & each.is_mention].sum()
        num_found += each.weight[is_chosen].sum()
        num_gold += each.weight[each.is_mention].sum() + each.num_missed * each.weight.max(initial=0)
    return float(2 * num_right / max(num_found + num_gold, 1e-9))


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the packaged weights from the links of a knowledge base.")
    parser.add_argument("--kb", required=True)
    fitted = _fit(KnowledgeBase(parser.parse_args().kb), [], [], start={}, seed=0)
    save_file(fitted.weights, PACKAGED)
    print(fitted.f1)


if __name__ == "__main__":
    main()
