"""Links corpora of any size: `link_corpus` as a job of its own, `LinkBatch` within Ray Data."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deeped_ray.batch.dataset import LinkBatch

__all__ = ["LinkBatch"]


def __getattr__(name: str) -> Any:
    """On first use: the linker's imports take half a second that other modules of this folder need not wait for."""
    if name != "LinkBatch":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from deeped_ray.batch.dataset import LinkBatch

    return LinkBatch
