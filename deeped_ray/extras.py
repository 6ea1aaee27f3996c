"""What is not installed, and the extra that has it: `pip install deeped-ray` alone brings no other package."""

from collections.abc import Iterator
from contextlib import contextmanager

from deeped_ray.types import DeepEdError

EXTRA_OF = {
    "httpx": "client",
    **dict.fromkeys(("faiss", "jaxtyping", "numba", "numpy", "orjson", "pyarrow", "safetensors", "yaml"), "link"),
    "pandas": "notebook",
    **dict.fromkeys(("fastapi", "mcp", "pydantic", "rdflib", "starlette"), "serve"),
    "spacy": "spacy",
    **dict.fromkeys(("matplotlib", "ray", "scipy", "torch"), "train"),
}


class MissingExtraError(DeepEdError):
    """A package that this use of deeped-ray needs is not installed."""


@contextmanager
def named(**extra_of: str) -> Iterator[None]:
    """If a package is missing, say in one line which extra has it. `ray="serve"` says which has it for this use."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        extra = {**EXTRA_OF, **extra_of}.get(package)
        if extra is None:
            raise
        raise MissingExtraError(
            f"This needs {package}, which is not installed. Run pip install 'deeped-ray[{extra}]'."
        ) from error
