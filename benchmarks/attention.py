"""Mentions scored per second by the local model: one product per document against vectors gathered per mention.

Documents of AIDA's size with random vectors: 19 mentions, 7 candidates, 100 context words each, d = 300, 250 distinct
words and 90 distinct entities a document. The baseline gathers 107 vectors for every mention, as in the paper's own
code. Same weights, same tensors, forward passes only.
"""

import torch
from _harness import best_seconds, finish, parse

from deeped_ray.linking import attention
from deeped_ray.linking.batching import Batch
from deeped_ray.linking.model import LinkerModel, ModelConfig

B, N, S, K, D, WORDS, ENTITIES = 16, 19, 7, 100, 300, 250, 90


def random_documents() -> Batch:
    torch.manual_seed(0)
    return Batch(
        entity_vectors=torch.nn.functional.normalize(torch.randn(B, ENTITIES, D), dim=-1),
        word_vectors=torch.nn.functional.normalize(torch.randn(B, WORDS, D), dim=-1),
        candidates=torch.randint(ENTITIES, (B, N, S)),
        context=torch.rand(B, N, WORDS).argsort(dim=-1)[..., :K],
        is_candidate=torch.ones(B, N, S, dtype=torch.bool),
        is_word=torch.ones(B, N, K, dtype=torch.bool),
        log_prior=torch.rand(B, N, S).log(),
        gold=torch.zeros(B, N, dtype=torch.int64),
    )


def score_by_gathering(model: LinkerModel, batch: Batch) -> torch.Tensor:
    documents = torch.arange(B)[:, None, None]
    entities = batch.entity_vectors[documents, batch.candidates]  # [B, n, S, d]
    words = batch.word_vectors[documents, batch.context]  # [B, n, K, d]
    u = attention.support((entities * model.A) @ words.transpose(-1, -2), batch.is_candidate)
    beta = attention.attention(u, attention.keep_best_words(u, batch.is_word, R=model.config.local_kept_words))
    attended = torch.einsum("bnk,bnkd->bnd", beta, words)
    psi = torch.einsum("bnsd,bnd->bns", entities * model.B, attended)
    rho: torch.Tensor = model.f(torch.stack([psi, batch.log_prior], dim=-1)).squeeze(-1)
    return rho


@torch.inference_mode()
def main() -> None:
    args = parse(__doc__, needs_kb=False)
    batch, model = random_documents(), LinkerModel("local", ModelConfig(), dimension=D)
    torch.testing.assert_close(score_by_gathering(model, batch), model(batch).rho, atol=1e-4, rtol=0)
    ours = best_seconds(lambda: model(batch), repeats=20)
    baseline = best_seconds(lambda: score_by_gathering(model, batch), repeats=20)
    finish(
        args,
        claim=f"local scores of {B} documents of AIDA's size, d = {D}",
        unit="mentions",
        ours=B * N / ours,
        baseline=B * N / baseline,
        baseline_name="vectors gathered per mention",
    )


if __name__ == "__main__":
    main()
