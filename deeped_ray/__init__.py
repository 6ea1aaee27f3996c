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
    from deeped_ray.linking.linker import Linker
    from deeped_ray.linking.opened import KnowledgeBase, open
    from deeped_ray.stages import build  # type: ignore[import-not-found, import-untyped, unused-ignore]
    from deeped_ray.types import Candidate, DeepEdError, Document, Mention, Prediction

__version__ = "0.1.0"
__all__ = [
    "Candidate",
    "DeepEdError",
    "Document",
    "KnowledgeBase",
    "Linker",
    "Mention",
    "Prediction",
    "__version__",
    "build",
    "open",
]
_HOMES = {"KnowledgeBase": "linking.opened", "Linker": "linking.linker", "build": "stages", "open": "linking.opened"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOMES.get(name, "types")
    value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
    globals()[name] = value  # the next look-up does not come here
    return value


def __dir__() -> list[str]:
    return __all__
