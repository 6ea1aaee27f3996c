"""Training mentions per second: batches, shared gathers and fused kernels against one document at a time in plain torch.

The baseline is the form of the authors' code and its descendants: a step is one document, every mention gathers its own
7 entity and 100 word vectors, messages are torch operators, autograd does the rest. Same model, loss and documents, T as
by default. Without --train: random documents with AIDA-train's distribution of sizes, d = 300.

python benchmarks/train_linker.py [--kb KB --train aida:train.tsv.gz --train-candidates ppr:train.tsv.gz]
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from _harness import best_seconds, finish, parser_of

from deeped_ray.artifacts import KnowledgeBase
from deeped_ray.evaluation.datasets import read_dataset
from deeped_ray.linking import attention, batching, lbp
from deeped_ray.linking.batching import Batch, EncodedDocument, encode_document
from deeped_ray.linking.candidates import CandidateConfig
from deeped_ray.linking.inputs import LinkerInputs
from deeped_ray.linking.model import LinkerModel, ModelConfig, cross_entropy
from deeped_ray.training.config import TrainingConfig
from deeped_ray.training.fitting import encode, train_epoch

AIDA_MENTIONS = 18_448
CPU = torch.device("cpu")


class RandomInputs:
    """Stands for a knowledge base: vectors, and documents that refer to them."""

    def __init__(self, *, dimension: int = 300, num_words: int = 50_000, num_entities: int = 100_000) -> None:
        rng = np.random.default_rng(0)
        self.word_vectors, self.entity_vectors = (
            (rows := rng.standard_normal((count, dimension), dtype=np.float32))
            / np.linalg.norm(rows, axis=1, keepdims=True)
            for count in (num_words, num_entities)
        )

    def documents(self, count: int) -> list[EncodedDocument]:
        """Mentions of a document share most of their words and some of their candidates, as in a news story."""
        rng = np.random.default_rng(1)
        made = []
        # AIDA-train: median 13 mentions, mean 19.6, ninth decile 41
        for n in np.clip(rng.lognormal(2.6, 0.87, count).astype(int), 1, 100):
            text = rng.integers(0, len(self.word_vectors), 12 * n + 60)
            starts = np.sort(rng.integers(0, len(text), n))
            contexts = [text[max(0, start - 50) : start + 50] for start in starts]
            pool = rng.integers(0, len(self.entity_vectors), max(7, 5 * n))
            candidates = [rng.choice(pool, 7, replace=False).tolist() for _ in range(n)]
            priors = [rng.dirichlet(np.ones(7)).tolist() for _ in range(n)]
            made.append(encode_document(contexts, candidates, priors, [0] * n))
        return made

    def collate(self, documents: Sequence[EncodedDocument]) -> Batch:
        return batching.collate(documents, self.word_vectors, self.entity_vectors)


def plain_rho(model: LinkerModel, document: Batch) -> torch.Tensor:
    """One document by vectors gathered per mention and torch operators."""
    entities = document.entity_vectors[0][document.candidates[0]]  # [n, S, d]
    words = document.word_vectors[0][document.context[0]]  # [n, K, d]
    config, mask = model.config, document.is_candidate
    u = attention.support(((entities * model.A) @ words.transpose(-1, -2))[None], mask)
    beta = attention.attention(u, attention.keep_best_words(u, document.is_word, R=config.kept_words(model.kind)))
    attended = torch.einsum("nk,nkd->nd", beta[0], words)
    psi = config.psi_scale * torch.einsum("nsd,nd->ns", entities * model.B, attended)[None]
    if model.kind == "local":
        evidence = psi
    else:
        scores = torch.einsum("isd,jrd->isjr", entities * model.C, entities)[None]
        scale = config.psi_scale * lbp.pairwise_scale(mask.any(dim=-1), counts_itself=bool(config.counts_itself))
        mu = lbp.propagate(
            psi,
            lbp.pairwise(scores, scale),
            mask,
            delta=config.damping,
            T=config.rounds,
            excludes_receiver=bool(config.excludes_receiver),
        )
        evidence = (lbp.marginal if config.belief == "probability" else lbp.log_marginal)(mu, mask)
    rho: torch.Tensor = model.f(torch.stack([evidence, document.log_prior], dim=-1)).squeeze(-1)
    return rho.masked_fill(~mask, -1e30)


def plain_epoch(model: LinkerModel, documents: Sequence[Batch]) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    for document in documents:
        optimizer.zero_grad()
        (cross_entropy(plain_rho(model, document), document) / (document.gold >= 0).sum().clamp(min=1)).backward()
        optimizer.step()
        model.project_()


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--kb", type=Path, help="knowledge base, with --train")
    parser.add_argument("--train", help="training documents, as aida:FILE (default: random documents of AIDA's sizes)")
    parser.add_argument("--train-candidates", help="their candidate lists, as ppr:FILE")
    parser.add_argument(
        "--documents", type=int, default=946, metavar="N", help="random documents (default: AIDA's 946)"
    )
    parser.add_argument("--model", choices=["local", "global"], default="global")
    args = parser.parse_args()
    if args.train:
        lists = [args.train_candidates] if args.train_candidates else []
        inputs = LinkerInputs(KnowledgeBase(args.kb), CandidateConfig(), lists=lists)
        documents, collate, dimension = (
            encode(read_dataset(args.train), inputs),
            inputs.collate,
            inputs.words.vectors.shape[1],
        )
    else:
        stand_in = RandomInputs()
        documents, collate, dimension = stand_in.documents(args.documents), stand_in.collate, 300
    config, training = ModelConfig(), TrainingConfig()
    torch.manual_seed(0)
    model = LinkerModel(args.model, config, dimension=dimension)
    alone = [collate([document]) for document in documents]
    for document in alone[:20]:
        torch.testing.assert_close(plain_rho(model, document), model(document).rho, atol=1e-3, rtol=1e-4)
    num_mentions = sum(map(len, documents))

    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    seconds = best_seconds(
        lambda: train_epoch(model, optimizer, documents, collate, training, (0, 1), (1e-4, 1e-4), CPU)
    )
    # a tenth of the documents is enough to know the pace of one at a time
    some = alone[:: max(1, len(alone) // 100)]
    plain_seconds = best_seconds(lambda: plain_epoch(model, some), repeats=2)
    plain_mentions = sum(document.gold.shape[1] for document in some)
    ours, baseline = num_mentions / seconds, plain_mentions / plain_seconds
    print(
        f"{len(documents):,} documents, {num_mentions:,} mentions, T = {config.rounds}, {torch.get_num_threads()} threads"
    )
    print(
        f"an epoch over {AIDA_MENTIONS:,} mentions: {AIDA_MENTIONS / ours:.1f} s, one at a time {AIDA_MENTIONS / baseline:.1f} s"
    )
    finish(
        args,
        claim=f"training the {args.model} model, forward and backward, d = {dimension}",
        unit="mentions",
        ours=ours,
        baseline=baseline,
        baseline_name="one document at a time",
        epoch_seconds=AIDA_MENTIONS / ours,
    )


if __name__ == "__main__":
    main()
