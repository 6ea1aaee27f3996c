"""The door for Ray Serve from a checkout: `serve run serve.app:build kb=/abs/KB`."""

from deeped_ray.serving.app import build

__all__ = ["build"]
