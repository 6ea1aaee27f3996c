"""How the model is fitted, on what, and by whom."""

from dataclasses import dataclass
from typing import Annotated, Literal

from deeped_ray.linking.model import ModelKind
from deeped_ray.running.config import FLAG
from deeped_ray.types import DeepEdError


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Fitting the model."""

    train: Annotated[
        tuple[str, ...],
        "training documents: aida:FILE, wned:FOLDER or jsonl:FILE; repeatable. The mini encyclopedia has its own.",
        FLAG,
    ] = ()
    dev: Annotated[tuple[str, ...], "validation documents, given in the same way", FLAG] = ()
    train_candidates: Annotated[tuple[str, ...], "external candidate lists for --train: ppr:FILE", FLAG] = ()
    dev_candidates: Annotated[tuple[str, ...], "external candidate lists for --dev: ppr:FILE", FLAG] = ()
    model: Annotated[Literal["both", "local", "global"], "which models to fit", FLAG] = "both"
    loss: Annotated[Literal["cross-entropy", "margin"], "cross-entropy, or the paper's ranking loss"] = "cross-entropy"
    margin: Annotated[float, "gamma of the ranking loss"] = 0.01
    schedule: Annotated[
        Literal["decay", "drop"],
        "decay: from `learning_rate` to `final_learning_rate`, step by step, over all epochs;"
        " drop (paper): to it once validation accuracy passes `late_accuracy`",
    ] = "decay"
    learning_rate: Annotated[float, "Adam's learning rate; the paper's is 1e-4"] = 1e-2
    final_learning_rate: Annotated[float, "learning rate in the end; the paper's is 1e-5"] = 5e-4
    matrix_rate: Annotated[
        float, "learning rate of full A, B, C as a share of the others': as fast as these, they learn AIDA by heart"
    ] = 0.03
    late_accuracy: Annotated[float, "validation accuracy at which the schedule `drop` drops"] = 0.9
    epochs: Annotated[int, "most passes over the training documents; the paper's: 1250"] = 6
    validate_every: Annotated[int, "epochs between validations; each also writes a checkpoint"] = 1
    patience: Annotated[int, "stop after this many epochs without a better validation accuracy"] = 500
    documents_per_step: Annotated[int, "documents in one optimiser step; the paper's: 1"] = 8
    insert_gold: Annotated[bool, "offer the right entity where pruning lost it, in training only (deep-ed)"] = False
    seed: Annotated[int, "seeds initial weights and the order of documents"] = 0
    seeds: Annotated[
        int,
        "fit this many times; reports mean and 95% interval. Seeds are counted from `seed` on; the best one is served.",
        FLAG,
    ] = 1

    def __post_init__(self) -> None:
        if min(self.epochs, self.validate_every, self.patience, self.documents_per_step, self.seeds) < 1:
            raise DeepEdError(
                "Epochs, --validate-every, --patience, --documents-per-step and --seeds must be at least 1."
            )
        if self.train_candidates and not self.dev_candidates:
            raise DeepEdError("--train-candidates without --dev-candidates: both sets must be seen alike.")
        if min(self.margin, self.final_learning_rate, self.matrix_rate) <= 0 or self.learning_rate < 0:
            raise DeepEdError(
                "--margin, --final-learning-rate and --matrix-rate must be positive, --learning-rate not negative."
            )

    @property
    def kinds(self) -> list[ModelKind]:
        return ["local", "global"] if self.model == "both" else [self.model]

    @property
    def all_seeds(self) -> range:
        return range(self.seed, self.seed + self.seeds)


@dataclass(frozen=True, kw_only=True)
class WorkerConfig:
    """Ray Train's workers; changes nothing in the result but rounding."""

    num_workers: Annotated[int, "data-parallel workers"] = 1
    cpus_per_worker: Annotated[int, "CPUs of each worker; 0: what the largest node has, shared out, up to 8"] = 0
    use_gpu: Annotated[bool, "give every worker a GPU"] = False
    max_failures: Annotated[int, "lost workers to survive by going back to the last checkpoint"] = 3

    def __post_init__(self) -> None:
        if self.num_workers < 1 or self.cpus_per_worker < 0:
            raise DeepEdError("--num-workers must be at least 1 and --cpus-per-worker must not be negative.")
