"""The door for Ray Serve: `serve deploy serve/config.yaml`, or `serve run serve.app:build kb=/abs/KB`."""

from deeped_ray.serving.app import LinkerDeployment, build

__all__ = ["LinkerDeployment", "build"]
