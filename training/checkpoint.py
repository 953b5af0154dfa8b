"""Checkpoints: the configuration, weights, optimizer states and progress in one folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from .config import ModelConfig
from .model import DemoModel


def save(folder: Path, model: DemoModel, optimizers: list[torch.optim.Optimizer], progress: dict[str, Any]) -> None:
    """Write beside the old files, then put the new ones in their place, so that a cut leaves a whole checkpoint."""
    folder.mkdir(parents=True, exist_ok=True)
    model.config.save(folder / "config.json")
    torch.save(model.state_dict(), folder / "model.pt.new")
    torch.save([o.state_dict() for o in optimizers], folder / "optimizers.pt.new")
    for name in ("model.pt", "optimizers.pt"):
        (folder / f"{name}.new").replace(folder / name)
    (folder / "progress.json").write_text(json.dumps(progress, indent=1))


def load_model(folder: Path, device: str = "cpu") -> DemoModel:
    model = DemoModel(ModelConfig.load(folder / "config.json"))
    model.load_state_dict(torch.load(folder / "model.pt", map_location="cpu", weights_only=True))
    return model.to(device)


def load_optimizers(folder: Path, optimizers: list[torch.optim.Optimizer], device: str) -> dict[str, Any]:
    """Restore the optimizers' states; returns the progress."""
    for optimizer, state in zip(
        optimizers, torch.load(folder / "optimizers.pt", map_location=device, weights_only=True), strict=True
    ):
        optimizer.load_state_dict(state)
    progress: dict[str, Any] = json.loads((folder / "progress.json").read_text())
    return progress
