from dataclasses import replace

import pytest
import torch

from deeped_ray.linking import lbp
from deeped_ray.linking.batching import collate
from deeped_ray.linking.config import ModelConfig, ModelKind, Product, Variant
from deeped_ray.linking.model import LinkerModel, cross_entropy, margin_loss
from deeped_ray.types import DeepEdError
from tests.conftest import random_batch
from tests.linking.test_batching import DOCUMENT, ENTITIES, SECOND_ALONE, WORDS

CONFIG = ModelConfig(local_kept_words=3, global_kept_words=3, hidden_units=8)


def make_model(kind: ModelKind) -> LinkerModel:
    torch.manual_seed(0)
    return LinkerModel(kind, CONFIG, dimension=5).double()


@pytest.mark.parametrize("kind", ["local", "global"])
def test_absent_candidates_never_win(kind: ModelKind) -> None:
    batch = random_batch(seed=1)
    best = make_model(kind)(batch).rho.argmax(dim=-1)
    assert batch.is_candidate.gather(-1, best[..., None]).all()


def test_local_and_global_differ_only_by_coherence() -> None:
    batch = random_batch(seed=2)
    local, joint = make_model("local")(batch), make_model("global")(batch)
    assert local.belief is None
    assert joint.belief is not None
    torch.testing.assert_close(local.psi, joint.psi)
    torch.testing.assert_close((joint.belief * batch.is_candidate).sum(dim=-1), torch.ones(2, 3, dtype=torch.float64))


def test_a_mention_without_candidates_stays_finite() -> None:
    batch = random_batch(seed=3)
    batch.is_candidate[0, 1] = False
    scores = make_model("global")(batch)
    assert torch.isfinite(scores.rho).all()
    assert torch.isfinite(scores.psi[batch.is_candidate]).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_document_scores_alone_as_in_a_batch_with_a_larger_one(dtype: torch.dtype) -> None:
    model = LinkerModel("global", CONFIG, dimension=4).to(dtype)
    alone, together = ([SECOND_ALONE], [SECOND_ALONE, DOCUMENT])
    first, second = (model(collate(documents, WORDS, ENTITIES).to(dtype)).rho for documents in (alone, together))
    torch.testing.assert_close(first[0, 0, 0], second[0, 0, 0])


def test_margin_loss_of_a_worked_example() -> None:
    batch = random_batch(B=1, n=2, S=3)
    batch.is_candidate[:] = torch.tensor([[True, True, False], [True, True, True]])
    batch.gold[:] = torch.tensor([0, -1])
    rho = torch.tensor([[[0.5, 0.495, 9.0], [0.0, 1.0, 2.0]]], dtype=torch.float64)
    # mention 0: [0.01 - 0.5 + 0.495]_+ = 0.005; its third candidate is absent; mention 1 has no gold entity
    assert margin_loss(rho, batch, gamma=0.01).item() == pytest.approx(0.005)


def test_projection_bounds_every_tensor_of_f_and_nothing_else() -> None:
    model = LinkerModel("global", replace(CONFIG, max_norm=1.0), dimension=5).double()
    with torch.no_grad():
        for weight in model.parameters():
            weight.fill_(3.0)
    model.project_()
    assert all(weight.norm() <= 1 + 1e-9 for weight in model.f.parameters())
    assert (model.A == 3.0).all()


def test_float32_scores_agree_with_float64() -> None:
    double = make_model("global")
    single = LinkerModel("global", CONFIG, dimension=5)
    single.load_state_dict({name: tensor.float() for name, tensor in double.state_dict().items()})
    expected = double(random_batch(seed=5)).rho
    actual = single(random_batch(seed=5, dtype=torch.float32)).rho
    mask = random_batch(seed=5).is_candidate
    torch.testing.assert_close(actual.double()[mask], expected[mask], atol=1e-4, rtol=0)


@pytest.mark.parametrize("damping", [0.0, 1.5])
def test_damping_outside_its_range_is_refused(damping: float) -> None:
    with pytest.raises(DeepEdError, match="`damping` must be above 0"):
        ModelConfig(damping=damping)


def test_cross_entropy_equals_the_plain_sum() -> None:
    batch = random_batch(seed=3)
    rho = torch.randn(batch.gold.shape[0], batch.gold.shape[1], batch.candidates.shape[2], dtype=torch.float64)
    rho = rho.masked_fill(~batch.is_candidate, -1e30)
    expected = 0.0
    for b, i in torch.argwhere(batch.gold >= 0).tolist():
        row = rho[b, i][batch.is_candidate[b, i]]
        expected -= float(rho[b, i, batch.gold[b, i]] - torch.logsumexp(row, 0))
    assert float(cross_entropy(rho, batch)) == pytest.approx(expected)


def test_a_log_belief_is_the_logarithm_of_the_marginal() -> None:
    batch = random_batch(seed=1)
    mu = torch.randn(batch.candidates.shape, dtype=torch.float64)
    log_belief, belief = lbp.log_marginal(mu, batch.is_candidate), lbp.marginal(mu, batch.is_candidate)
    torch.testing.assert_close(log_belief.exp()[batch.is_candidate], belief[batch.is_candidate])
    assert not log_belief[~batch.is_candidate].any()


def test_without_a_bound_f_is_left_as_it_is() -> None:
    model = LinkerModel("local", ModelConfig(max_norm=0.0), dimension=5)
    for weight in model.f.parameters():
        weight.data.fill_(3.0)
    model.project_()
    assert all(bool((weight == 3).all()) for weight in model.f.parameters())


def both_precisions(config: ModelConfig, kind: ModelKind = "global") -> tuple[LinkerModel, LinkerModel]:
    torch.manual_seed(0)
    double = LinkerModel(kind, config, dimension=5).double()
    single = LinkerModel(kind, config, dimension=5)
    single.load_state_dict({name: tensor.float() for name, tensor in double.state_dict().items()})
    return single, double


@pytest.mark.parametrize("variant", ["paper", "deep-ed"])
@pytest.mark.parametrize("rounds", [1, 10, 100])
def test_kernels_in_float32_agree_with_torch_in_float64(rounds: int, variant: Variant) -> None:
    config = ModelConfig(variant=variant, rounds=rounds, local_kept_words=3, global_kept_words=3, psi_scale=1.0)
    single, double = both_precisions(config)
    batch = random_batch(B=4, n=8, least=0, seed=5)
    expected, actual = double(batch), single(batch.to(torch.float32))
    assert torch.isfinite(actual.rho).all()
    mask = batch.is_candidate
    torch.testing.assert_close(actual.rho.double()[mask], expected.rho[mask], atol=1e-4, rtol=0)
    torch.testing.assert_close(actual.psi.double()[mask], expected.psi[mask], atol=1e-4, rtol=0)


@pytest.mark.parametrize("product", ["max", "sum"])
def test_extreme_inputs_give_finite_scores_and_gradients(product: Product) -> None:
    """Equal scores, a single candidate, priors of 0 (at the floor) and 1, huge scores, a hundred rounds."""
    config = ModelConfig(rounds=100, product=product, psi_scale=1e3)
    model = LinkerModel("global", config, dimension=5)
    batch = random_batch(B=3, n=6, least=0, seed=2, dtype=torch.float32)
    batch.entity_vectors[:7] = 1.0  # the first document's
    batch.log_prior[1] = 0.0
    batch.log_prior[2] = -6.9
    batch.is_candidate[1, :, 1:] = False
    batch.documents[1].num_candidates.clip(max=1, out=batch.documents[1].num_candidates)
    scores = model(batch)
    assert torch.isfinite(scores.rho).all()
    cross_entropy(scores.rho, batch).backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_full_matrices_that_are_diagonal_change_nothing(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    diagonal = LinkerModel("global", replace(CONFIG, forms="diagonal"), dimension=5)
    full = LinkerModel("global", replace(CONFIG, forms="full"), dimension=5)
    full.f.load_state_dict(diagonal.f.state_dict())
    with torch.no_grad():
        for name in "ABC":
            weights = torch.rand(5)
            getattr(diagonal, name).copy_(weights)
            getattr(full, name).copy_(torch.diag(weights))
    batch = random_batch(seed=3, dtype=dtype)
    torch.testing.assert_close(full.to(dtype)(batch).rho, diagonal.to(dtype)(batch).rho, atol=1e-4, rtol=1e-4)


def test_a_variant_sets_what_is_not_given() -> None:
    assert ModelConfig(variant="paper").belief == "probability"
    assert ModelConfig(variant="paper", belief="log").belief == "log"
    paper, code = ModelConfig(variant="paper"), ModelConfig(variant="deep-ed")
    assert (paper.kept_words("global"), code.kept_words("global")) == (25, 24)
    assert (paper.excludes_receiver, code.excludes_receiver) == (True, False)


def test_f_has_the_layers_and_inputs_that_are_asked_for() -> None:
    one, two = (LinkerModel("local", ModelConfig(hidden_layers=n), dimension=5, num_evidence=3).f for n in (1, 2))
    assert (len(one), len(two)) == (3, 5)
    assert two[0].in_features == 5  # Psi, prior and the rest


def test_the_prior_can_take_part_in_the_unary_factor() -> None:
    model = LinkerModel("global", replace(CONFIG, unary="score"), dimension=5)
    batch = random_batch(seed=4, dtype=torch.float32)
    scores = model(batch)
    assert scores.unary is not None
    assert torch.isfinite(scores.unary[batch.is_candidate]).all()
    batch.log_prior[:] = batch.log_prior.flip(-1)
    assert scores.belief is not None
    assert not torch.allclose(model(batch).belief, scores.belief)


def test_gradients_of_the_whole_model_pass_gradcheck() -> None:
    model = LinkerModel("global", replace(CONFIG, forms="diagonal", psi_scale=1.0), dimension=5).double()
    batch = random_batch(seed=6)

    def loss(A: torch.Tensor, B: torch.Tensor, C: torch.Tensor) -> torch.Tensor:
        scores = torch.func.functional_call(model, {"A": A, "B": B, "C": C}, (batch,))
        return cross_entropy(scores.rho, batch)

    forms = [(torch.rand(5, dtype=torch.float64) + 0.5).requires_grad_() for _ in range(3)]
    assert torch.autograd.gradcheck(loss, tuple(forms))
