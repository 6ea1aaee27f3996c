"""Settings of entity vectors: the method, which entities, and how the work is split."""

from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal

from deeped_ray.embeddings.closed_form import ClosedFormConfig
from deeped_ray.running.config import JOB_FLAG
from deeped_ray.types import DeepEdError, require_at_least


@dataclass(frozen=True, kw_only=True)
class EmbeddingConfig:
    """The method."""

    method: Annotated[
        Literal["closed-form", "reference"], "solve in closed form, or take the paper's sampled steps", JOB_FLAG
    ] = "closed-form"
    alpha: Annotated[float, "exponent of q(w) = p(w)^alpha, the distribution of negative words"] = 0.6


@dataclass(frozen=True, kw_only=True)
class ReferenceConfig:
    """Method `reference`: the paper's own optimisation, with its values."""

    gamma: Annotated[float, "margin between an entity's words and random words"] = 0.1
    num_positives: Annotated[int, "positive words per step"] = 20
    num_negatives: Annotated[int, "negative words per positive word"] = 5
    learning_rate: Annotated[float, "Adagrad's learning rate"] = 0.3
    page_steps: Annotated[int, "steps on the words of the entity's own page"] = 400
    link_steps: Annotated[
        int,
        "steps on the words around links to the entity, after `page_steps`. -1: as many as validation finds best.",
    ] = -1
    initialization: Annotated[
        Literal["title", "random"], "start from the mean of the title's word vectors, or from random numbers"
    ] = "title"
    seed: Annotated[int, "seed of the random numbers. Each entity adds its title to it."] = 0

    def __post_init__(self) -> None:
        require_at_least(1, self, "num_positives", "num_negatives")
        require_at_least(0, self, "page_steps")
        require_at_least(-1, self, "link_steps")
        if self.learning_rate <= 0 or self.gamma <= 0:
            raise DeepEdError("`learning_rate` and `gamma` must be positive.")


@dataclass(frozen=True, kw_only=True)
class SubsetConfig:
    """Which entities get a new vector. The others keep theirs."""

    entities: Annotated[str | None, "embed only the entities in this file, one title per line", JOB_FLAG] = None
    only_new: Annotated[
        bool, "embed only entities that are new or have changed. The other vectors stay the same to the byte.", JOB_FLAG
    ] = False


@dataclass(frozen=True, kw_only=True)
class ShardConfig:
    """How the work is split and where it runs. The result is the same."""

    shard_words: Annotated[int, "closed-form: words of evidence per Ray task"] = 2_000_000
    shard_entities: Annotated[int, "reference: entities per Ray task"] = 500
    block_entities: Annotated[int, "reference: entities that a task optimises side by side"] = 32
    device: Annotated[Literal["auto", "cpu", "cuda"], "where tasks compute. auto: on a GPU if the task has one."] = (
        "auto"
    )
    num_gpus: Annotated[float, "GPUs per task. A fraction lets several tasks share one.", JOB_FLAG] = 0.0

    def __post_init__(self) -> None:
        require_at_least(1, self, "shard_words", "shard_entities", "block_entities")
        require_at_least(0, self, "num_gpus")
        if self.device == "cuda" and not self.num_gpus:
            raise DeepEdError("`device` cuda needs GPUs for its tasks: give --num-gpus, for example 0.5.")


@dataclass(frozen=True, kw_only=True)
class Methods:
    """Everything a vector depends on, apart from the entity's own words."""

    embedding: EmbeddingConfig = EmbeddingConfig()
    closed_form: ClosedFormConfig = ClosedFormConfig()
    reference: ReferenceConfig = ReferenceConfig()

    @property
    def is_closed_form(self) -> bool:
        return self.embedding.method == "closed-form"

    @property
    def needs_validation(self) -> bool:
        """Whether validation has to find the length of the reference's link phase."""
        return not self.is_closed_form and self.reference.link_steps < 0

    def recorded(self) -> dict[str, Any]:
        return {**asdict(self.embedding), **asdict(self.closed_form if self.is_closed_form else self.reference)}


def device_of(sharding: ShardConfig) -> str:
    import torch  # takes a second, and settings are read by every command

    if sharding.device == "cuda" and not torch.cuda.is_available():
        raise DeepEdError(
            "`device` is cuda, but this task sees no GPU. Check the node's drivers, or set vectors.device=auto."
        )
    return "cuda" if sharding.device != "cpu" and torch.cuda.is_available() else "cpu"
