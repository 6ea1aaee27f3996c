"""Training mentions per second: batches, shared gathers and fused kernels against one document at a time in plain torch.

The baseline is the form of the authors' code and its descendants: a step is one document, every mention gathers its own
7 entity and 100 word vectors, messages are torch operators, autograd does the rest. Same model, loss and documents. Without --train: random documents with AIDA-train's distribution of sizes, d = 300.

python benchmarks/train_linker.py [--kb KB --train aida:train.tsv.gz --train-candidates ppr:train.tsv.gz]
"""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from _harness import alternate, finish, parser_of, speeds

from deeped_ray.evaluation.datasets import read_dataset
from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.linking import lbp
from deeped_ray.linking.batching import Batch, collate
from deeped_ray.linking.candidate_lists import CandidateLists
from deeped_ray.linking.candidates import CandidateConfig
from deeped_ray.linking.config import ModelConfig
from deeped_ray.linking.encoding import EncodedDocument, encode_document
from deeped_ray.linking.inputs import LinkerInputs
from deeped_ray.linking.model import LinkerModel
from deeped_ray.training.checkpoint import FitName, Run
from deeped_ray.training.config import TrainingConfig
from deeped_ray.training.documents import TrainingDocuments
from deeped_ray.training.fitting import Examples, Fit

AIDA_MENTIONS = 18_448


def random_examples(
    count: int, *, dimension: int = 300, num_words: int = 50_000, num_entities: int = 100_000
) -> Examples:
    """Mentions of a document share most of their words and some of their candidates, as in a news story."""
    rng = np.random.default_rng(0)
    word_vectors, entity_vectors = (
        (rows := rng.standard_normal((number, dimension), dtype=np.float32))
        / np.linalg.norm(rows, axis=1, keepdims=True)
        for number in (num_words, num_entities)
    )
    rng = np.random.default_rng(1)
    made = []
    # AIDA-train: median 13 mentions, mean 19.6, ninth decile 41
    for n in np.clip(rng.lognormal(2.6, 0.87, count).astype(int), 1, 100):
        text = rng.integers(0, num_words, 12 * n + 60)
        starts = np.sort(rng.integers(0, len(text), n))
        contexts = [text[max(0, start - 50) : start + 50] for start in starts]
        pool = rng.integers(0, num_entities, max(7, 5 * n))
        candidates = [rng.choice(pool, 7, replace=False).tolist() for _ in range(n)]
        priors = [rng.dirichlet(np.ones(7)).tolist() for _ in range(n)]
        made.append(encode_document(contexts, candidates, priors, [0] * n))
    return Examples(train=made, dev=[], num_dev_mentions=0, word_vectors=word_vectors, entity_vectors=entity_vectors)


class PlainDocument(NamedTuple):
    """A document as those codes hold it: rows of the vector tables, padded to 7 candidates and 100 words."""

    words: torch.Tensor
    entities: torch.Tensor
    is_word: torch.Tensor
    is_candidate: torch.Tensor
    log_prior: torch.Tensor
    gold: torch.Tensor


def plain_document(document: EncodedDocument, batch: Batch) -> PlainDocument:
    def padded(tensor: torch.Tensor, width: int) -> torch.Tensor:
        return torch.nn.functional.pad(tensor, (0, max(0, width - tensor.shape[-1])))

    return PlainDocument(
        words=padded(torch.from_numpy(document.words[document.context]), 100),
        entities=padded(torch.from_numpy(document.entities[document.candidates]), 7),
        is_word=padded(batch.padded.is_word[0], 100),
        is_candidate=padded(batch.is_candidate[0], 7),
        log_prior=padded(batch.log_prior[0], 7),
        gold=batch.gold[0],
    )


def plain_rho(model: LinkerModel, document: PlainDocument, tables: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Scores [n, S] of one document: every mention gathers its vectors, messages are torch operators."""
    words, entities = tables[0][document.words], tables[1][document.entities]  # [n, K, d], [n, S, d]
    config, mask = model.config, document.is_candidate
    u = (times(entities, model.A) @ words.transpose(1, 2)).masked_fill(~mask[..., None], -1e30).amax(dim=1)
    u = u.masked_fill(~document.is_word, -1e30)
    best = u.topk(config.kept_words(model.kind), dim=-1)
    beta = best.values.softmax(dim=-1) * document.is_word.gather(1, best.indices)
    kept = words.gather(1, best.indices[..., None].expand(-1, -1, words.shape[-1]))
    psi = config.psi_scale * (times(entities, model.B) @ (beta[:, None] @ kept).transpose(1, 2)).squeeze(-1)
    if model.kind == "local":
        evidence = psi
    else:
        scores = torch.einsum("isd,jrd->isjr", times(entities, model.C), entities)[None]
        scale = config.psi_scale * lbp.pairwise_scale(mask.any(dim=-1)[None], counts_itself=bool(config.counts_itself))
        mu = lbp.propagate(
            psi[None],
            lbp.pairwise(scores, scale),
            mask[None],
            delta=config.damping,
            T=config.rounds,
            excludes_receiver=bool(config.excludes_receiver),
        )
        evidence = (lbp.marginal if config.belief == "probability" else lbp.log_marginal)(mu, mask[None])[0]
    rho: torch.Tensor = model.f(torch.stack([evidence, document.log_prior], dim=-1)).squeeze(-1)
    return rho.masked_fill(~mask, -1e30)


def times(vectors: torch.Tensor, form: torch.Tensor) -> torch.Tensor:
    return vectors * form if form.dim() == 1 else vectors @ form


def plain_epoch(
    model: LinkerModel, documents: Sequence[PlainDocument], tables: tuple[torch.Tensor, torch.Tensor]
) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    for document in documents:
        has_gold = document.gold >= 0
        if not has_gold.any():
            continue
        optimizer.zero_grad()
        rho = plain_rho(model, document, tables)
        torch.nn.functional.cross_entropy(rho[has_gold], document.gold[has_gold]).backward()
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
    parser.add_argument("--rounds", type=int, default=10, metavar="T", help="of both (default: the paper's 10)")
    parser.add_argument("--forms", choices=["diagonal", "full"], default="diagonal", help="(default: as in the paper)")
    parser.add_argument("--model", choices=["local", "global"], default="global")
    args = parser.parse_args()
    if args.train:
        lists = CandidateLists([args.train_candidates] if args.train_candidates else [])
        paper = CandidateConfig(sources="prior", evidence="prior")  # the plain form below knows no other evidence
        inputs = LinkerInputs(KnowledgeBase(args.kb), paper, lists=lists)
        examples = Examples.of(TrainingDocuments.of(read_dataset(args.train), []), inputs)
    else:
        examples = random_examples(args.documents)
    documents, vectors = examples.train, (examples.word_vectors, examples.entity_vectors)
    tables = torch.from_numpy(np.array(vectors[0])), torch.from_numpy(np.array(vectors[1]))
    dimension = tables[0].shape[1]
    config = ModelConfig(rounds=args.rounds, forms=args.forms)
    fit = Fit(FitName(args.model, 0), examples, TrainingConfig(), config, Run())
    model = fit.model
    batches = [collate([document], *vectors) for document in documents]
    plain = [plain_document(document, batch) for document, batch in zip(documents, batches, strict=True)]
    for alone, batch in zip(plain[:20], batches[:20], strict=True):
        ours_rho = torch.nn.functional.pad(model(batch).rho[0], (0, 7 - batch.candidates.shape[2]), value=-1e30)
        torch.testing.assert_close(plain_rho(model, alone, tables), ours_rho, atol=1e-3, rtol=1e-4)
    num_mentions = sum(map(len, documents))

    # a quarter of the documents is enough to know the pace of one at a time
    some = plain[::4]
    times, plain_times = alternate(lambda: fit.train_epoch(1, (1e-4, 1e-4)), lambda: plain_epoch(model, some, tables))
    plain_mentions = sum(len(document.gold) for document in some)
    ours, baseline = speeds(num_mentions, times), speeds(plain_mentions, plain_times)
    epoch_s, plain_s = (AIDA_MENTIONS / statistics.median(each) for each in (ours, baseline))
    print(
        f"{len(documents):,} documents, {num_mentions:,} mentions, T = {config.rounds}, {torch.get_num_threads()} threads"
    )
    print(f"an epoch over {AIDA_MENTIONS:,} mentions: {epoch_s:.2f} s, one at a time {plain_s:.1f} s")
    finish(
        args,
        claim=f"training the {args.model} model, forward and backward, d = {dimension}",
        unit="mentions",
        ours=ours,
        baseline=baseline,
        baseline_name="one document at a time",
        epoch_seconds=epoch_s,
    )


if __name__ == "__main__":
    main()
