"""What a checkpoint of a training run holds: its validations, and for every model its weights and Adam's state."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file, save_file

from deeped_ray.linking.config import ModelKind
from deeped_ray.linking.model import LinkerModel
from deeped_ray.training.history import HISTORY, Validation, read_history, write_history

Tensors = dict[str, torch.Tensor]


class FitName(NamedTuple):
    """Which of a run's models."""

    kind: ModelKind
    seed: int

    def __str__(self) -> str:
        return f"{self.kind}.{self.seed}"


@dataclass
class Run:
    """A training run so far."""

    tensors: dict[str, Tensors] = field(default_factory=dict)
    """By the name of their file: `global.0.last` and `global.0.best` are weights, `global.0.optimizer` is Adam's state."""
    history: list[Validation] = field(default_factory=list)

    def save(self, folder: Path) -> None:
        for name, tensors in self.tensors.items():
            save_file(tensors, folder / f"{name}.safetensors")
        write_history(self.history, folder / HISTORY)

    @classmethod
    def load(cls, folder: Path) -> "Run":
        tensors = {path.stem: load_file(path) for path in folder.glob("*.safetensors")}
        return cls(tensors, read_history(folder / HISTORY))

    def validations(self, name: FitName) -> list[Validation]:
        return [row for row in self.history if (row.model, row.seed) == name]

    def keep(self, name: FitName, model: LinkerModel, optimizer: torch.optim.Optimizer, validation: Validation) -> None:
        """The state of a fit after a validation."""
        self.tensors[f"{name}.last"] = weights = _copy(model.state_dict())
        if all(validation.dev_accuracy > row.dev_accuracy for row in self.validations(name)):
            self.tensors[f"{name}.best"] = weights
        state = optimizer.state_dict()["state"]
        named = {f"{index}.{key}": tensor for index, entry in state.items() for key, tensor in entry.items()}
        self.tensors[f"{name}.optimizer"] = _copy(named)
        self.history.append(validation)

    def restore(self, name: FitName, model: LinkerModel, optimizer: torch.optim.Optimizer) -> None:
        """Put a fit where its last validation left it."""
        model.load_state_dict(self.tensors[f"{name}.last"])
        state: dict[int, Tensors] = {}
        for key, tensor in self.tensors[f"{name}.optimizer"].items():
            index, _, part = key.partition(".")
            state.setdefault(int(index), {})[part] = tensor
        optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def _copy(tensors: Tensors) -> Tensors:
    return {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}
