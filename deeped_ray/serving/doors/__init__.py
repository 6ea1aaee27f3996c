"""Further interfaces of the server: for language models, for tables, for corrections. A file or folder each.

`create_api` adds every door that it finds here, by its function `add_routes`. To take a door off, delete it.
"""

import importlib
import pkgutil
from typing import TYPE_CHECKING

from fastapi import FastAPI

if TYPE_CHECKING:
    from deeped_ray.serving.service import LinkingService


def add_doors(api: FastAPI, service: "LinkingService", *, has_writers: bool) -> None:
    """`has_writers` says whether anybody may write."""
    for door in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{door.name}").add_routes(api, service, has_writers=has_writers)
