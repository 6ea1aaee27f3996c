"""Fits how sure a model may be (`linking.certainty`).

"None of these" is learned from mentions whose entity the knowledge base lacks: those that documents have anyway, and some
made by taking entities out. A rare entity is taken out more often than a well-known one, as it is with real ones.

Users also send single sentences, of which neither articles nor news have any. So short passages of all documents are
calibrated on as well.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from deeped_ray.knowledge.strings import hash64
from deeped_ray.linking.certainty import LIMIT, Judged, features
from deeped_ray.linking.encoding import EncodedDocument, Floats, Ints
from deeped_ray.linking.inputs import LinkerInputs
from deeped_ray.linking.scoring import LOWEST, Bools, FittedModel
from deeped_ray.types import Document

NETWORKS = 3
HIDDEN = 16
EPOCHS = 30
BATCH = 512
LEAST_STEPS = 100
LEARNING_RATE = 3e-3
WEIGHT_DECAY = 0.1
PASSAGES = 2
"""Of every document."""
PASSAGE_CHARACTERS = (30, 80, 200)
"""On each side of a mention."""
TAKEN_OUT_WEIGHT = 0.6
TAKEN_OUT_SHARES = ((3, 0.5), (20, 0.25), (np.inf, 0.1))
"""Links to an entity, at most, and the share of such entities that are taken out."""


class Seen(NamedTuple):
    """A window of a calibration document."""

    surfaces: list[str]
    document: EncodedDocument
    is_asked: Sequence[bool]
    """Whether the mention counts: another window may have the better view."""
    weight: float


class Answers(NamedTuple):
    """A row for every mention that has candidates."""

    x: Floats
    rho: Floats
    """[N, S], padded with the lowest number."""
    gold: Ints
    """Place of the right candidate; S if none is right."""
    weight: Floats


def fit_certainty(
    model: FittedModel | None, documents: Sequence[Document], inputs: LinkerInputs
) -> dict[str, Floats] | None:
    """The weights of a `Certainty` for a model, or for the prior; None if no mention of the documents has candidates."""
    documents = [*documents, *(passage for document in documents for passage in passages_of(document))]
    answers = by_prior(documents, inputs) if model is None else by_model(model, windows(documents, inputs), inputs)
    return fit(answers) if len(answers.gold) else None


# -- documents


def passages_of(document: Document) -> list[Document]:
    """Some sentences around a mention, cut between words, with the mentions that are whole in it; each by a hash."""
    found = []
    for number in range(min(PASSAGES, len(document.mentions))):
        key = hash64(f"passage {number}\t{document.name}")
        middle = document.mentions[key % len(document.mentions)]
        around = PASSAGE_CHARACTERS[key // 2**32 % len(PASSAGE_CHARACTERS)]
        start = document.text.rfind(" ", 0, max(middle.start - around, 0)) + 1
        end = document.text.find(" ", middle.end + around)
        end = len(document.text) if end < 0 else end
        inside = [each for each in document.mentions if start <= each.start and each.end <= end]
        moved = (replace(each, start=each.start - start, end=each.end - start) for each in inside)
        found.append(Document(f"{document.name}, passage {number}", document.text[start:end], tuple(moved)))
    return found


def windows(documents: Iterable[Document], inputs: LinkerInputs) -> list[Seen]:
    """All windows, and those again in which entities are missing."""
    seen = []
    for document in documents:
        for window, encoded in inputs.encode(document):
            surfaces = [document.surface(document.mentions[place]) for place in window.mentions]
            seen.append(Seen(surfaces, encoded, window.is_answered, 1.0))
            missing = _are_taken_out(encoded, inputs.catalogue.num_links)
            if missing.any():
                seen.append(Seen(surfaces, without_gold(encoded, missing), missing.tolist(), TAKEN_OUT_WEIGHT))
    return seen


def _are_taken_out(document: EncodedDocument, num_links: Ints) -> Bools:
    """By a hash, so that an entity is missing wherever a document mentions it."""
    entities = document.entities[document.candidates[np.arange(len(document)), np.maximum(document.gold, 0)]].tolist()
    return np.array([is_taken_out(entity, num_links) for entity in entities], bool) & (document.gold >= 0)


def is_taken_out(entity: int, num_links: Ints) -> bool:
    share = next(share for most, share in TAKEN_OUT_SHARES if num_links[entity] <= most)
    return hash64(f"taken out\t{entity}") < share * 2**64


def without_gold(document: EncodedDocument, missing: Bools) -> EncodedDocument:
    """The document as it would be if the right entities of some mentions were not known."""
    num_candidates = document.num_candidates - missing
    order = np.tile(np.arange(document.candidates.shape[1]), (len(document), 1))
    for row in np.flatnonzero(missing):
        order[row, document.gold[row] : -1] += 1  # what comes after moves up
    rows = np.arange(len(document))[:, None]
    moved = {name: getattr(document, name)[rows, order] for name in ("candidates", "prior", "evidence", "sources")}
    return replace(document, num_candidates=num_candidates, gold=np.where(missing, -1, document.gold), **moved)


# -- answers


def by_model(model: FittedModel, seen: Sequence[Seen], inputs: LinkerInputs) -> Answers:
    """What a model says."""
    parts, folding = [], model.fold(inputs.entity_vectors, inputs.words.vectors)
    for surfaces, document, is_asked, weight in seen:
        scored = model.score(document, folding, explain=False)
        judged = Judged.by_model(surfaces, document, scored)
        parts.append(answers(judged, document.gold, is_asked, weight))
    return joined(parts)


def by_prior(documents: Sequence[Document], inputs: LinkerInputs) -> Answers:
    """What the prior says."""
    parts = []
    for document in documents:
        surfaces = [document.surface(mention) for mention in document.mentions]
        golds = [inputs.catalogue.find_gold(mention) for mention in document.mentions]
        firsts = inputs.first_candidates(document)
        is_missing = [gold is not None and is_taken_out(gold, inputs.catalogue.num_links) for gold in golds]
        taken = [
            [each for each in first if not (is_out and each.entity_id == gold)]
            for first, gold, is_out in zip(firsts, golds, is_missing, strict=True)
        ]
        for known, is_asked, weight in ((firsts, [True] * len(golds), 1.0), (taken, is_missing, TAKEN_OUT_WEIGHT)):
            places = [
                next((place for place, each in enumerate(first) if each.entity_id == gold), -1)
                for first, gold in zip(known, golds, strict=True)
            ]
            parts.append(answers(Judged.by_prior(surfaces, known), np.array(places, np.int64), is_asked, weight))
    return joined(parts)


def answers(judged: Judged, gold: Ints, is_asked: Sequence[bool], weight: float) -> Answers:
    """The rows of one window; -1 for a gold entity that is not among the candidates."""
    is_row = (judged.num_candidates > 0) & np.array(is_asked, bool)
    is_candidate = np.arange(judged.rho.shape[1]) < judged.num_candidates[:, None]
    rho = np.where(is_candidate, judged.rho, LOWEST)
    x = features(judged) if len(rho) else np.zeros((0, 0), np.float32)
    return Answers(x[is_row], rho[is_row], gold[is_row], np.full(int(is_row.sum()), weight, dtype=np.float32))


def joined(parts: Sequence[Answers]) -> Answers:
    """All rows, with as many candidates as the longest has."""
    parts = [part for part in parts if len(part.gold)]
    if not parts:
        return Answers(
            np.zeros((0, 1), np.float32), np.zeros((0, 1), np.float32), np.zeros(0, np.int64), np.zeros(0, np.float32)
        )
    width = max(part.rho.shape[1] for part in parts)
    rho = [np.pad(part.rho, ((0, 0), (0, width - part.rho.shape[1])), constant_values=LOWEST) for part in parts]
    gold = np.concatenate([part.gold for part in parts])
    return Answers(
        np.concatenate([part.x for part in parts]),
        np.concatenate(rho),
        np.where(gold < 0, width, gold),
        np.concatenate([part.weight for part in parts]),
    )


# -- fitting


class _Networks(nn.Module):
    """Several networks side by side, whose outputs are averaged. They begin with what is known without features."""

    def __init__(self, num_features: int, *, share_of_none: float) -> None:
        super().__init__()
        widths = (num_features, HIDDEN, HIDDEN, 2)
        self.weights = nn.ParameterList(
            (2 * torch.rand(NETWORKS, after, before) - 1) / before**0.5 for before, after in itertools.pairwise(widths)
        )
        self.biases = nn.ParameterList(torch.zeros(NETWORKS, after) for after in widths[1:])
        nn.init.zeros_(self.weights[-1])
        nn.init.constant_(self.biases[-1][:, 0], math.log(share_of_none / (1 - share_of_none)))

    def forward(self, x: torch.Tensor, rho: torch.Tensor) -> torch.Tensor:
        """Logarithms of the probabilities of all candidates, and of none; of every network."""
        values = x.expand(NETWORKS, *x.shape)
        for place, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            values = torch.einsum("knd,khd->knh", values.relu() if place else values, weight) + bias[:, None]
        none, scale = values[..., 0], nn.functional.softplus(values[..., 1] + float(np.log(np.expm1(1.0))))
        choice = (scale[..., None] * rho.clamp(min=-1e4)).masked_fill(rho <= -1e29, -1e30).log_softmax(dim=-1)
        return torch.cat(
            [choice + nn.functional.logsigmoid(-none)[..., None], nn.functional.logsigmoid(none)[..., None]], -1
        )


def fit(answers: Answers, *, seed: int = 0) -> dict[str, Floats]:
    """The weights of a `Certainty`: those with the smallest cross-entropy, held back by weight decay."""
    mean, deviation = answers.x.mean(axis=0), answers.x.std(axis=0) + np.float32(1e-3)
    x = torch.from_numpy(np.clip((answers.x - mean) / deviation, -LIMIT, LIMIT).astype(np.float32))
    rho, gold, weight = (torch.from_numpy(each) for each in (answers.rho, answers.gold, answers.weight))
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        is_none = (answers.gold == answers.rho.shape[1]) * answers.weight
        networks = _Networks(x.shape[1], share_of_none=float((is_none.sum() + 1) / (answers.weight.sum() + 2)))
    optimizer = torch.optim.AdamW(networks.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    per_epoch = -(-len(gold) // BATCH)
    epochs = max(EPOCHS, -(-LEAST_STEPS // per_epoch))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=epochs * per_epoch + 1)
    for _ in range(epochs):
        for rows in torch.randperm(len(gold), generator=generator).split(BATCH):
            log_probability = networks(x[rows], rho[rows]).gather(2, gold[rows].expand(NETWORKS, -1)[..., None])
            loss = -(log_probability[..., 0] * weight[rows]).sum(dim=1).mean() / len(rows)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    layers = zip(networks.weights, networks.biases, strict=True)
    named = {
        f"{place}.{kind}": t.detach().numpy()
        for place, layer in enumerate(layers)
        for kind, t in zip(("weight", "bias"), layer, strict=True)
    }
    return {"mean": mean, "deviation": deviation, **named}
