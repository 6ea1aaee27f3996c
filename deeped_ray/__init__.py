"""Entity linking on Ray, after Ganea & Hofmann 2017, "Deep Joint Entity Disambiguation with Local Neural Attention".

    import deeped_ray as deeped

    kb = deeped.open("kb/mini")
    for mention in kb.link("Montreal met Toronto in the Stanley Cup."):
        print(mention.surface, mention.entity.title, mention.probability)

Each name below is imported when it is first used: numpy, torch and Ray together take seconds to import.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deeped_ray.client import AsyncClient, Client
    from deeped_ray.linking.linker import Linker
    from deeped_ray.linking.opened import KnowledgeBase, open
    from deeped_ray.predictions import Predictions
    from deeped_ray.stages import build
    from deeped_ray.types import Candidate, DeepEdError, Document, Mention, Prediction

__version__ = "0.1.0"
__all__ = [
    "AsyncClient",
    "Candidate",
    "Client",
    "DeepEdError",
    "Document",
    "KnowledgeBase",
    "Linker",
    "Mention",
    "Prediction",
    "Predictions",
    "__version__",
    "build",
    "open",
]
_HOMES = {
    "AsyncClient": "client",
    "Client": "client",
    "KnowledgeBase": "linking.opened",
    "Linker": "linking.linker",
    "Predictions": "predictions",
    "build": "stages",
    "open": "linking.opened",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from deeped_ray.extras import named

    with named():
        value = getattr(importlib.import_module(f"{__name__}.{_HOMES.get(name, 'types')}"), name)
    globals()[name] = value  # the next look-up does not come here
    return value


def __dir__() -> list[str]:
    return __all__
