"""What the workers of a training job are told, and what they do: fit models, calibrate them, learn to find mentions.

Nothing here imports Ray Train: it takes a second and a half, and only the workers that fit models need it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from deeped_ray.knowledge.base import KnowledgeBase
from deeped_ray.linking.candidate_lists import CandidateLists
from deeped_ray.linking.candidates import CandidateConfig
from deeped_ray.linking.config import ModelConfig
from deeped_ray.linking.encoding import Floats
from deeped_ray.linking.inputs import LinkerInputs
from deeped_ray.linking.linker import ALL_BY_PRIOR
from deeped_ray.linking.mention_counts import MentionCounts
from deeped_ray.linking.scoring import FittedModel
from deeped_ray.running import logs
from deeped_ray.training.calibration import fit_certainty
from deeped_ray.training.checkpoint import FitName, Run
from deeped_ray.training.config import TrainingConfig
from deeped_ray.training.detection import Fitted, fit_detection
from deeped_ray.training.documents import TrainingDocuments
from deeped_ray.training.fitting import Examples, Fit
from deeped_ray.training.history import Validation


@dataclass(frozen=True, kw_only=True)
class FitJob:
    """What a worker is told; it reads nothing but the knowledge base."""

    kb: str
    training: TrainingConfig
    model: ModelConfig
    candidates: CandidateConfig
    documents: TrainingDocuments
    lists: CandidateLists
    counts: MentionCounts
    labels: logs.Labels

    def inputs(self) -> LinkerInputs:
        inputs = LinkerInputs(KnowledgeBase(self.kb), self.candidates, lists=self.lists)
        inputs.counts = self.counts
        return inputs

    def validations(self, run: Run) -> Iterator[Validation]:
        """Fit one model after the other, from where `run` left them; see `Fit.validations`."""
        examples = Examples.of(self.documents, self.inputs(), insert_gold=self.training.insert_gold)
        for kind in self.training.kinds:
            for seed in self.training.all_seeds:
                yield from Fit(FitName(kind, seed), examples, self.training, self.model, run).validations()


def certainty(item: tuple[FitName, dict[str, Floats]] | None, job: FitJob) -> dict[str, Floats] | None:
    """Task: how sure one model may be, or the prior."""
    torch.set_num_threads(1)
    if item is None:
        return fit_certainty(None, job.documents.calibration, LinkerInputs(KnowledgeBase(job.kb), ALL_BY_PRIOR))
    name, weights = item
    return fit_certainty(FittedModel(name.kind, job.model, weights), job.documents.calibration, job.inputs())


def detection(seed: int, job: FitJob) -> Fitted:
    """Task: how mentions are found in raw text."""
    return fit_detection(KnowledgeBase(job.kb), job.documents, seed=seed)
