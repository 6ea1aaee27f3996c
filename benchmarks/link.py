"""Documents linked per second in one process: text and spans in, answers with their reasons out.

Documents are runs of 19 mentions, AIDA's mean, cut from a data set. The baseline links the same documents one by one with
torch's operators, equation by equation.

python benchmarks/link.py --kb KB --dataset aida:testa.tsv.gz
"""

import resource
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from _harness import best_seconds, finish, parser_of
from safetensors.numpy import load_file

from deeped_ray.evaluation.datasets import SPECS, read_dataset
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.linking import differentiable
from deeped_ray.linking.batching import collate
from deeped_ray.linking.encoding import EncodedDocument, Floats
from deeped_ray.linking.linker import Linker, weights_path
from deeped_ray.linking.model import LinkerModel
from deeped_ray.linking.pace import num_threads
from deeped_ray.linking.scoring import FittedModel, Scored
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
    def of(cls, path: Path, model: FittedModel, *, dimension: int) -> "InTorch":
        found = cls(model.kind, model.config, load_file(path))
        found.torch_model = LinkerModel(model.kind, model.config, dimension=dimension)
        found.torch_model.load_state_dict({name: torch.from_numpy(weight) for name, weight in load_file(path).items()})
        return found

    torch_model: LinkerModel

    @torch.inference_mode()
    def score(self, document: EncodedDocument, entities: Floats, words: Floats, *, explain: bool = True) -> Scored:
        here = replace(document, entities=np.arange(len(entities)), words=np.arange(len(words)))
        batch = collate([here], words, entities)
        is_candidate = batch.is_candidate[0].numpy()
        found = self.torch_model(batch)
        rho, psi, beta = (each[0].numpy() for each in (found.rho, found.psi, found.beta))
        belief = None if found.belief is None else found.belief[0].numpy()
        support = self._support(rho, document, entities, is_candidate, self._pairwise_scale(is_candidate))
        return Scored(rho, psi, belief, beta, support, explain)


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
    args = parser.parse_args()
    if not (args.kb / "manifest.json").exists():
        parser.error(f"no knowledge base at {args.kb}: run `make demo ONCE=1` first, or give --kb")
    linker = Linker.open(args.kb)
    documents = of_equal_size(read_dataset(args.dataset), count=args.documents)
    linker.link_batch(documents[:50])  # compile, and read what the maps point to
    seconds = best_seconds(lambda: linker.link_batch(documents), repeats=5)
    single = best_seconds(lambda: [linker.link_batch([document]) for document in documents[:100]]) / 100
    some = documents[:50]
    d = linker.inputs.words.vectors.shape[1]
    weights = weights_path(KnowledgeBase(args.kb).open("linker").path, "global")
    assert linker.model is not None
    plain = Linker(linker.inputs, InTorch.of(weights, linker.model, dimension=d), unit=linker.unit)
    plain_seconds = best_seconds(lambda: one_by_one(plain, some))
    ours, baseline = len(documents) / seconds, len(some) / plain_seconds
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{ours:.0f} documents/s in a batch, {1000 * single:.1f} ms for one alone, {memory:.2f} GiB at peak")
    print(f"ReFinED, as reported, not measured here: {REFINED} documents/s on a processor")
    finish(
        args,
        claim=f"linking {len(documents)} documents of {MENTIONS} mentions, global model, d = {d}, {num_threads()} threads",
        unit="documents",
        ours=ours,
        baseline=baseline,
        baseline_name="one by one in torch",
        milliseconds_alone=1000 * single,
        peak_gib=memory,
    )


if __name__ == "__main__":
    main()
