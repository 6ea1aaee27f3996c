"""Documents linked per second in one process: text and spans in, answers with their reasons out.

Documents are runs of 19 mentions, AIDA's mean, cut from a data set. The baseline links the same documents one by one with
torch's operators, equation by equation.

python benchmarks/link.py --kb KB --dataset aida:testa.tsv.gz
"""

import resource
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import torch
from _harness import best_seconds, finish, parser_of

from deeped_ray.evaluation.datasets import SPECS, read_dataset
from deeped_ray.linking import kernels
from deeped_ray.linking.linker import Linker
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


def one_by_one(linker: Linker, documents: Sequence[Document]) -> None:
    with (
        mock.patch.object(kernels, "can_attend", return_value=False),
        mock.patch.object(kernels, "can_propagate", return_value=False),
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
    plain_seconds = best_seconds(lambda: one_by_one(linker, some))
    ours, baseline = len(documents) / seconds, len(some) / plain_seconds
    d = linker.inputs.words.vectors.shape[1]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{ours:.0f} documents/s in a batch, {1000 * single:.1f} ms for one alone, {memory:.2f} GiB at peak")
    print(f"ReFinED, as reported, not measured here: {REFINED} documents/s on a processor")
    finish(
        args,
        claim=f"linking {len(documents)} documents of {MENTIONS} mentions, global model, d = {d}, {torch.get_num_threads()} threads",
        unit="documents",
        ours=ours,
        baseline=baseline,
        baseline_name="one by one in torch",
        milliseconds_alone=1000 * single,
        peak_gib=memory,
    )


if __name__ == "__main__":
    main()
