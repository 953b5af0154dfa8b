"""Training losses of the whole model on one block of rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from .model import DemoModel, Notes


@dataclass
class Weights:
    """Shares of the auxiliary losses."""

    draft: float = 0.3
    balance: float = 0.005
    z: float = 1e-4
    index: float = 1.0


def next_token_loss(hidden: Tensor, matrix: Tensor, targets: Tensor) -> Tensor:
    logits = functional.linear(hidden, matrix).float().flatten(0, 1)
    return functional.cross_entropy(logits, targets.flatten())


def agreement_loss(draft: Tensor, hidden: Tensor, matrix: Tensor) -> Tensor:
    """Cross entropy of the draft's distribution to the trunk's own: what makes drafts be accepted."""
    aim = functional.linear(hidden, matrix).float().softmax(-1)
    return -(aim * functional.linear(draft, matrix).float().log_softmax(-1)).sum(-1).mean()


class Losses:
    """Computes the summed loss; `compiled` fuses the output matrix products with their softmax."""

    def __init__(self, weights: Weights, draft_steps: int, compiled: bool) -> None:
        self.weights, self.draft_steps = weights, draft_steps
        functions: list[Callable[..., Any]] = [next_token_loss, agreement_loss]
        if compiled:
            functions = [torch.compile(f, dynamic=False) for f in functions]
        self.next_token, self.agreement = functions

    def __call__(
        self, model: DemoModel, rows: Tensor, sparse: bool, index_at: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """rows (count, width + 1) of tokens -> the loss and its parts (detached)."""
        tokens, targets = rows[:, :-1].contiguous(), rows[:, 1:].contiguous()
        notes = Notes()
        embedded, streams, table = model.streams(tokens, notes, sparse, index_at)
        hidden = model.model.hyper_connection_mixer(streams)[1]
        matrix = model.model.embed_tokens.weight
        parts = {"loss": self.next_token(hidden, matrix, targets)}
        # half of the rows are enough for one layer, and save the time of two more softmaxes
        some = slice(0, max(1, len(rows) // 2))
        drafted = model.mtp.steps(
            self.draft_steps, embedded[some], streams[some], tokens[some], table, notes, sparse, index_at
        )
        aims = hidden[some].detach()
        drafts = [self.agreement(d[:, 4:], aims[:, 4:], matrix.detach()) for d in drafted]
        parts["draft"] = torch.stack(drafts).mean()
        router = torch.stack([r[:2] for r in notes.router]).mean(0)
        parts["balance"], parts["z"] = router[0], router[1]
        parts["index"] = torch.stack(notes.index_losses).mean()
        w = self.weights
        total = parts["loss"] + w.draft * parts["draft"] + w.balance * parts["balance"] + w.z * parts["z"]
        total = total + w.index * parts["index"]
        return total, {name: value.detach() for name, value in parts.items()}
