"""Documents linked per second in one process: text and spans in, answers with their reasons out.

Documents are runs of 19 mentions, AIDA's mean, cut from a data set. The baseline links the same documents one by one with
torch's operators, equation by equation. Rounds alternate, and the median counts; the documents repeat, so that what is
remembered of names, words and titles is warm. "Seen for the first time" is the data set itself, once, with nothing
remembered.

python benchmarks/link.py --kb KB --dataset aida:testa.tsv.gz

On a busy machine, `--processor-time` counts seconds of processor time instead of the wall's: documents per second of one core.
"""

import resource
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from _harness import alternate, finish, parser_of, speeds, spread
from safetensors.numpy import load_file

from deeped_ray.evaluation.datasets import SPECS, read_dataset
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.linking import answer_kernels, differentiable, score_kernels
from deeped_ray.linking.answer_json import json_pieces
from deeped_ray.linking.batching import collate
from deeped_ray.linking.encoding import EncodedDocument, EncodedGroup
from deeped_ray.linking.folded import Folding
from deeped_ray.linking.linker import Linker, weights_path
from deeped_ray.linking.model import LinkerModel
from deeped_ray.linking.pace import num_threads
from deeped_ray.linking.scoring import AllScored, FittedModel
from deeped_ray.running.console import table
from deeped_ray.types import Document, Mention

MENTIONS = 19
# what its authors report for AIDA-B on a processor: 231 documents in 29.7 s
REFINED = 7.8


def of_equal_size(documents: Sequence[Document], *, count: int) -> list[Document]:
    """Stretches of text with 19 mentions each; documents that have fewer are joined first."""
    text, mentions = "", []
    for document in documents:
        mentions += [(len(text) + mention.start, len(text) + mention.end) for mention in document.mentions]
        text += document.text + "\n"
    mentions.sort()
    made = []
    for first in range(0, len(mentions) - MENTIONS, MENTIONS):
        run = mentions[first : first + MENTIONS]
        start, end = max(0, run[0][0] - 100), run[-1][1] + 100
        made.append(Document("", text[start:end], tuple(Mention(low - start, high - start) for low, high in run)))
    return (made * (count // max(len(made), 1) + 1))[:count]


class InTorch(FittedModel):
    """The same model, equation by equation in torch's operators."""

    @classmethod
    def of(cls, path: Path, model: FittedModel, *, dimension: int, num_evidence: int) -> "InTorch":
        found = cls(model.kind, model.config, load_file(path))
        found.torch_model = LinkerModel(model.kind, model.config, dimension=dimension, num_evidence=num_evidence)
        found.torch_model.load_state_dict({name: torch.from_numpy(weight) for name, weight in load_file(path).items()})
        return found

    torch_model: LinkerModel

    @torch.inference_mode()
    def score_all(self, group: EncodedGroup, folding: Folding, *, explain: bool = True) -> AllScored:
        found = [self._score(group.window(w), folding) for w in range(len(group))]
        return AllScored._make((*(np.concatenate(each, axis=None) for each in zip(*found, strict=True)), explain))

    def _score(self, document: EncodedDocument, folding: Folding) -> tuple[np.ndarray, ...]:
        entities, words = folding.entities[document.entities], folding.times_words.vectors[document.words]
        here = replace(document, entities=np.arange(len(entities)), words=np.arange(len(words)))
        batch = collate([here], words, entities)
        found = self.torch_model(batch)
        assert found.belief is not None, "a global model"
        rho, psi, belief, beta = (each[0].numpy() for each in (found.rho, found.psi, found.belief, found.beta))
        support = np.empty((len(rho), len(rho)), np.float32)
        scale = score_kernels.pairwise_scale(
            float(self.config.psi_scale), document.num_candidates, bool(self.config.counts_itself)
        )
        pairs = entities @ self._forms["C"] @ entities.T * scale
        answer_kernels.support(rho, document.candidates, document.num_candidates, pairs, support)
        return rho, psi, belief, beta, support


as_json = partial(json_pieces, top=None, explain=True, per_piece=100)


def one_by_one(linker: Linker, documents: Sequence[Document]) -> None:
    with (
        mock.patch.object(differentiable, "can_attend", return_value=False),
        mock.patch.object(differentiable, "can_propagate", return_value=False),
    ):
        for document in documents:
            linker.link_batch([document])


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument(
        "--kb", type=Path, default=Path("kb/mini"), help="knowledge base with a linker (default: kb/mini)"
    )
    parser.add_argument("--dataset", default="mini:test", help=f"{SPECS} (default: mini:test)")
    parser.add_argument("--documents", type=int, default=500, metavar="N", help="documents to link (default: 500)")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="alternating rounds (default: 5)")
    parser.add_argument("--processor-time", action="store_true", help="count processor time, for a busy machine")
    args = parser.parse_args()
    if not (args.kb / "manifest.json").exists():
        parser.error(f"no knowledge base at {args.kb}: run `make demo ONCE=1` first, or give --kb")
    linker = Linker.open(args.kb)
    documents = of_equal_size(read_dataset(args.dataset), count=args.documents)
    d = linker.inputs.words.vectors.shape[1]
    weights = weights_path(KnowledgeBase(args.kb).open("linker").path, "global")
    assert linker.model is not None
    plain = Linker(
        linker.inputs,
        InTorch.of(weights, linker.model, dimension=d, num_evidence=linker.inputs.num_evidence),
        unit=linker.unit,
    )
    some = documents[:50]
    clock = time.process_time if args.processor_time else time.perf_counter
    # without gold entities, whose look-up is no part of linking
    fresh = [
        replace(each, mentions=tuple(Mention(mention.start, mention.end) for mention in each.mentions))
        for each in read_dataset(args.dataset)
    ]
    linker.link_batch(fresh[:2])  # compile
    start = clock()
    linker.link_batch(fresh[2:])
    first_time = len(fresh[2:]) / (clock() - start)
    works = {
        "batches, with reasons": (lambda: linker.link_batch(documents), len(documents)),
        "the same, as JSON": (
            lambda: [b"".join(as_json(found)) for found in linker.link_batch(documents)],
            len(documents),
        ),
        "the same, as Python objects": (lambda: [[*found] for found in linker.link_batch(documents)], len(documents)),
        "batches, without reasons": (lambda: linker.link_batch(documents, explain=False), len(documents)),
        "one document alone": (lambda: [linker.link_batch([each]) for each in documents], len(documents)),
        "raw text, with detection": (
            lambda: linker.link_batch(linker.documents([each.text for each in documents])),
            len(documents),
        ),
        "one by one in torch": (lambda: one_by_one(plain, some), len(some)),
    }
    linker.link_batch(documents)  # read what the maps point to, and fill what is remembered
    taken = alternate(*(work for work, _ in works.values()), rounds=args.rounds, clock=clock)
    paces = {name: speeds(count, times) for (name, (_, count)), times in zip(works.items(), taken, strict=True)}
    *_, torch_name = works
    ratios = {
        name: [ours / theirs for ours, theirs in zip(own, paces[torch_name], strict=True)]
        for name, own in paces.items()
    }
    print(
        table(
            ["how", "documents/s (least to most)", "ms a document", "ratio (least to most)"],
            [
                (name, spread(own), f"{1000 / statistics.median(own):.2f}", spread(ratios[name]))
                for name, own in paces.items()
            ],
        )
    )
    print(f"\nseen for the first time: {first_time:,.1f} documents/s")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"\n{memory:.2f} GiB at peak")
    print(f"ReFinED, as reported, not measured here: {REFINED} documents/s on a processor")
    finish(
        args,
        claim=f"linking {len(documents)} documents of {MENTIONS} mentions, global model, d = {d}, {num_threads()} threads",
        unit="documents",
        ours=next(iter(paces.values())),
        baseline=paces[torch_name],
        baseline_name="one by one in torch",
        milliseconds_alone=1000 / statistics.median(paces["one document alone"]),
        speeds=paces,
        ratios_of_all=ratios,
        peak_gib=memory,
        first_time=first_time,
    )


if __name__ == "__main__":
    main()
