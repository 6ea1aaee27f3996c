"""Settings of training: how the models are fitted, to which documents, by how many workers."""

from dataclasses import dataclass
from typing import Annotated, Literal

from deeped_ray.linking.config import ModelKind
from deeped_ray.running.config import FLAG
from deeped_ray.types import DeepEdError, require_at_least


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Fitting the model."""

    train: Annotated[
        tuple[str, ...],
        "training documents: links:train (articles of the dump, the default), aida:FILE, wned:FOLDER or jsonl:FILE; repeatable. A weight may follow: links:train@0.3.",
        FLAG,
    ] = ()
    dev: Annotated[tuple[str, ...], "validation documents, given in the same way; default: links:dev", FLAG] = ()
    documents: Annotated[
        tuple[str, ...],
        "annotated documents of your own, as JSON lines; repeatable. They teach beside --train. Without --dev, one in five validates.",
        FLAG,
    ] = ()
    linker_from: Annotated[
        str | None,
        "take the linker of another knowledge base over instead of training one. Both must have the same word vectors.",
        FLAG,
    ] = None
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
    final_learning_rate: Annotated[float, "learning rate at the end; the paper's is 1e-5"] = 5e-4
    matrix_rate: Annotated[
        float, "learning rate of full A, B, C as a share of the other weights' rate; at 1 they learn AIDA by heart"
    ] = 0.03
    late_accuracy: Annotated[float, "validation accuracy at which the schedule `drop` drops"] = 0.9
    epochs: Annotated[int, "most passes over the training documents; the paper's: 1250"] = 6
    validate_every: Annotated[int, "epochs between validations; each also writes a checkpoint"] = 1
    patience: Annotated[int, "stop after this many epochs without a better validation accuracy"] = 500
    documents_per_step: Annotated[int, "documents in one optimiser step; the paper's: 1"] = 8
    learn_unlinked: Annotated[
        bool,
        'also learn "none of these" from mentions annotated as outside Wikipedia (--NME--, NIL). Noisy.',
    ] = False
    insert_gold: Annotated[bool, "offer the right entity where pruning lost it, in training only (deep-ed)"] = False
    seed: Annotated[int, "seeds initial weights and the order of documents"] = 0
    seeds: Annotated[
        int,
        "fit this many times; reports mean and 95% interval. Seeds are counted from `seed` on; the best one is served.",
        FLAG,
    ] = 1

    def __post_init__(self) -> None:
        require_at_least(1, self, "epochs", "validate_every", "patience", "documents_per_step", "seeds")
        require_at_least(0, self, "learning_rate")
        for name in ("margin", "final_learning_rate", "matrix_rate"):
            if getattr(self, name) <= 0:
                raise DeepEdError(f"`{name}` must be above 0, not {getattr(self, name)}.")
        if self.linker_from and (self.train or self.documents):
            raise DeepEdError("`linker_from` takes a linker over. Leave out `train` and `documents`, which teach one.")
        if self.train_candidates and not self.dev_candidates:
            raise DeepEdError("`train_candidates` is set, but not `dev_candidates`. Set both or neither.")

    @property
    def kinds(self) -> list[ModelKind]:
        return ["local", "global"] if self.model == "both" else [self.model]

    @property
    def all_seeds(self) -> range:
        return range(self.seed, self.seed + self.seeds)


@dataclass(frozen=True, kw_only=True)
class WorkerConfig:
    """Ray Train's workers. They change nothing in the result but rounding."""

    num_workers: Annotated[int, "data-parallel workers"] = 1
    cpus_per_worker: Annotated[
        int, "CPUs of each worker; 0: those of the largest node, shared out among the workers, up to 8"
    ] = 0
    use_gpu: Annotated[bool, "give every worker a GPU"] = False
    max_failures: Annotated[int, "how often a lost worker is replaced, from the last checkpoint"] = 3

    def __post_init__(self) -> None:
        require_at_least(1, self, "num_workers")
        require_at_least(0, self, "cpus_per_worker", "max_failures")
