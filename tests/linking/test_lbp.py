"""Section 5 against enumeration, and its invariants."""

import itertools

import pytest
import torch

from deeped_ray.linking import lbp

F = torch.float64


def random_problem(n: int, S: int, *, seed: int = 0, B: int = 1) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Unary scores, symmetric pairwise scores [B, n, n, S, S], and a candidate mask."""
    generator = torch.Generator().manual_seed(seed)
    psi = torch.randn(B, n, S, dtype=F, generator=generator)
    flat = torch.randn(B, n * S, n * S, dtype=F, generator=generator)
    scores = (flat + flat.transpose(1, 2)).reshape(B, n, S, n, S)
    is_candidate = torch.rand(B, n, S, generator=generator) < 0.75
    is_candidate[..., 0] = True
    return psi, lbp.pairwise(scores, lbp.pairwise_scale(is_candidate.any(dim=-1))), is_candidate


def max_marginals(psi: torch.Tensor, phi: torch.Tensor, is_candidate: torch.Tensor) -> torch.Tensor:
    """max of g over all assignments that give mention i the candidate e, by enumeration."""
    n, S = psi.shape
    best = torch.full((n, S), -torch.inf, dtype=F)
    for assignment in itertools.product(range(S), repeat=n):
        if not all(is_candidate[i, e] for i, e in enumerate(assignment)):
            continue
        unary = sum(psi[i, e] for i, e in enumerate(assignment))
        value = unary + sum(phi[i, j, assignment[i], assignment[j]] for i in range(n) for j in range(i + 1, n))
        for i, e in enumerate(assignment):
            best[i, e] = torch.maximum(best[i, e], torch.as_tensor(value))
    return best


def differences(values: torch.Tensor, is_candidate: torch.Tensor) -> torch.Tensor:
    """Scores relative to each mention's first candidate: max-marginals are defined up to a constant."""
    return (values - values[..., :1])[is_candidate]


@pytest.mark.parametrize("seed", range(5))
def test_two_mentions_give_exact_max_marginals(seed: int) -> None:
    psi, phi, is_candidate = random_problem(2, 4, seed=seed)
    mu = lbp.propagate(psi, phi, is_candidate, delta=1.0, T=1)
    exact = max_marginals(psi[0], phi[0], is_candidate[0])
    torch.testing.assert_close(differences(mu[0], is_candidate[0]), differences(exact, is_candidate[0]))


@pytest.mark.parametrize("seed", range(5))
def test_sum_product_gives_exact_marginals_of_two_mentions(seed: int) -> None:
    psi, phi, is_candidate = random_problem(2, 4, seed=seed)
    mu = lbp.propagate(psi, phi, is_candidate, delta=1.0, T=1, product="sum")
    joint = (psi[0, 0, :, None] + psi[0, 1, None, :] + phi[0, 0, 1]).exp()
    joint = joint * is_candidate[0, 0, :, None] * is_candidate[0, 1, None, :]
    belief = lbp.marginal(mu, is_candidate)[0]
    torch.testing.assert_close(belief[0], joint.sum(dim=1) / joint.sum())
    torch.testing.assert_close(belief[1], joint.sum(dim=0) / joint.sum())


def test_without_exclusion_a_mention_hears_itself() -> None:
    psi, phi, is_candidate = random_problem(4, 3, seed=1)
    own, heard = (
        lbp.propagate(psi, phi, is_candidate, delta=0.5, T=5, excludes_receiver=flag) for flag in (True, False)
    )
    assert not torch.allclose(own, heard)
    # in the first round there is nothing to hear yet
    own, heard = (
        lbp.propagate(psi, phi, is_candidate, delta=0.5, T=1, excludes_receiver=flag) for flag in (True, False)
    )
    torch.testing.assert_close(own, heard)


def test_damped_messages_on_two_mentions_converge_to_the_same() -> None:
    psi, phi, is_candidate = random_problem(2, 4, seed=7)
    mu = lbp.propagate(psi, phi, is_candidate, delta=0.5, T=60)
    exact = max_marginals(psi[0], phi[0], is_candidate[0])
    torch.testing.assert_close(differences(mu[0], is_candidate[0]), differences(exact, is_candidate[0]))


def test_a_chain_of_three_mentions_gives_exact_max_marginals() -> None:
    psi, phi, is_candidate = random_problem(3, 3, seed=3)
    phi[:, 0, 2] = phi[:, 2, 0] = 0  # without this factor the graph is a tree
    mu = lbp.propagate(psi, phi, is_candidate, delta=1.0, T=5)
    exact = max_marginals(psi[0], phi[0], is_candidate[0])
    torch.testing.assert_close(differences(mu[0], is_candidate[0]), differences(exact, is_candidate[0]))


def test_a_single_mention_keeps_its_local_scores() -> None:
    psi, phi, is_candidate = random_problem(1, 4)
    torch.testing.assert_close(lbp.propagate(psi, phi, is_candidate, delta=0.5, T=10), psi)


def test_permuting_mentions_permutes_beliefs() -> None:
    psi, phi, is_candidate = random_problem(4, 3, seed=1)
    order = torch.tensor([2, 0, 3, 1])
    mu = lbp.propagate(psi, phi, is_candidate, delta=0.5, T=10)
    permuted = lbp.propagate(psi[:, order], phi[:, order][:, :, order], is_candidate[:, order], delta=0.5, T=10)
    torch.testing.assert_close(permuted, mu[:, order])


def test_padding_mentions_and_candidates_changes_nothing() -> None:
    psi, phi, is_candidate = random_problem(3, 3, seed=2)
    wide_psi, wide_phi = torch.full((1, 5, 4), 9.0, dtype=F), torch.full((1, 5, 5, 4, 4), 9.0, dtype=F)
    wide_mask = torch.zeros(1, 5, 4, dtype=torch.bool)
    wide_psi[:, :3, :3], wide_phi[:, :3, :3, :3, :3], wide_mask[:, :3, :3] = psi, phi, is_candidate
    mu = lbp.propagate(psi, phi, is_candidate, delta=0.5, T=10)
    wide_mu = lbp.propagate(wide_psi, wide_phi, wide_mask, delta=0.5, T=10)
    torch.testing.assert_close(wide_mu[:, :3, :3][is_candidate], mu[is_candidate])
    torch.testing.assert_close(lbp.marginal(wide_mu, wide_mask)[:, :3, :3], lbp.marginal(mu, is_candidate))


def test_documents_of_a_batch_do_not_influence_each_other() -> None:
    psi, phi, is_candidate = random_problem(3, 3, seed=4, B=2)
    together = lbp.propagate(psi, phi, is_candidate, delta=0.5, T=10)
    alone = lbp.propagate(psi[1:], phi[1:], is_candidate[1:], delta=0.5, T=10)
    torch.testing.assert_close(together[1:], alone)


def test_pairwise_scale_counts_real_mentions_only() -> None:
    scores = torch.ones(1, 4, 1, 4, 1, dtype=F)
    is_mention = torch.tensor([[True, True, True, False]])
    assert lbp.pairwise(scores, lbp.pairwise_scale(is_mention))[0, 0, 1, 0, 0] == 1.0  # 2 / (3 - 1)
    assert lbp.pairwise_scale(is_mention, counts_itself=True)[0] == pytest.approx(2 / 3)
    assert lbp.pairwise_scale(torch.tensor([[True, False]]))[0] == 2.0  # a document of one mention has no pairs


def test_first_round_message_follows_the_formula() -> None:
    psi = torch.tensor([[[0.0, 1.0], [0.0, 0.0]]], dtype=F)
    scores = torch.zeros(1, 2, 2, 2, 2, dtype=F)
    scores[0, 0, 1, 0, 0] = scores[0, 0, 0, 0, 1] = 3.0  # candidate 0 of mention 0 with candidate 0 of mention 1
    is_candidate = torch.ones(1, 2, 2, dtype=torch.bool)
    raw = lbp.send(psi, scores, torch.zeros(1, 2, 2, 2, dtype=F), is_candidate)
    assert raw[0, 0, 1, 0] == 3.0  # max(0 + 3, 1 + 0)
    assert raw[0, 0, 1, 1] == 1.0  # max(0 + 0, 1 + 0)


def test_long_runs_and_equal_scores_stay_finite() -> None:
    psi = torch.zeros(1, 6, 3, dtype=torch.float32)
    phi = torch.zeros(1, 6, 6, 3, 3, dtype=torch.float32)
    is_candidate = torch.ones(1, 6, 3, dtype=torch.bool)
    belief = lbp.marginal(lbp.propagate(psi, phi, is_candidate, delta=0.5, T=100), is_candidate)
    torch.testing.assert_close(belief, torch.full((1, 6, 3), 1 / 3))


def test_gradients_through_all_rounds_pass_gradcheck() -> None:
    psi, phi, is_candidate = random_problem(3, 3, seed=5)
    psi.requires_grad_()
    phi.requires_grad_()
    assert torch.autograd.gradcheck(lambda psi, phi: lbp.propagate(psi, phi, is_candidate, delta=0.5, T=10), (psi, phi))
