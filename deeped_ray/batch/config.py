"""What is linked, and what is told of it."""

from dataclasses import asdict, dataclass
from typing import Annotated, Any

from deeped_ray.running.config import FLAG
from deeped_ray.types import DeepEdError, LinkerKind, require_at_least


@dataclass(frozen=True, kw_only=True)
class CorpusLinkingConfig:
    """What to link, and what to write."""

    input: Annotated[
        tuple[str, ...],
        "documents as Parquet or JSON lines; repeatable. A file, folder or glob, on disk or s3://...; may be compressed.",
        FLAG,
    ] = ()
    output: Annotated[str | None, "folder for the answers: a path, s3://, gs:// or hdfs://", FLAG] = None
    model: Annotated[LinkerKind, "which linker", FLAG] = "global"
    threshold: Annotated[float, "below this probability, a mention gets no entity", FLAG] = 0.0
    top: Annotated[int, "candidates to write per mention", FLAG] = 0
    explain: Annotated[bool, "write attended words and supporting mentions", FLAG] = False
    max_characters: Annotated[int, "a document with a longer text is not linked; its row holds an error"] = 1_000_000
    max_error_share: Annotated[float, "if a larger share of documents has errors, the job fails at its end"] = 1.0
    partition_documents: Annotated[int, "documents per task and answer file, at most"] = 10_000

    def __post_init__(self) -> None:
        if not (0 <= self.threshold <= 1 and 0 <= self.max_error_share <= 1):
            raise DeepEdError("`threshold` and `max_error_share` must lie between 0 and 1.")
        require_at_least(0, self, "top")
        require_at_least(1, self, "max_characters", "partition_documents")

    def recorded(self) -> dict[str, Any]:
        """What the answers depend on, beside the inputs."""
        without = ("input", "output", "max_error_share")
        return {name: value for name, value in asdict(self).items() if name not in without}
