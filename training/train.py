"""Trains the demo model: `python -m training.train --data DIR --out DIR --minutes 9`.

With torchrun, every process takes its part of each batch on its own GPU. The schedule (warm-up, constant, decay; dense
attention first, then the indexer's selection) runs from share 0 to 1 of the training, by time: a call goes on from its
checkpoint's share to --until, and reaches it when its minutes are used.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from . import checkpoint
from .config import ModelConfig
from .delta import ChunkedDeltaRule, fused_delta_rule
from .export import read
from .layers import DeltaNet
from .losses import Losses, Weights
from .model import DemoModel, Layer
from .muon import optimizers as make_optimizers

SPARSE_FROM = 0.5
WARM_STEPS = 4
SAVE_EVERY = 240


def rate(share: float) -> float:
    """Learning rate relative to its peak after this share of the whole time: warm-up, constant, linear decay."""
    return min(1.0, (share + 0.0005) / 0.02, max(0.01, (1 - share) / 0.45))


def prepare(model: DemoModel, delta: str, compiled: bool) -> None:
    """Choose the delta rule's implementation and compile the layers' parts."""
    rule: Any = ChunkedDeltaRule(compiled) if delta == "chunked" else fused_delta_rule
    for module in model.modules():
        if isinstance(module, DeltaNet):
            module.rule = rule
        if isinstance(module, Layer):
            module.compile_parts(compiled)


def precision(device: str) -> contextlib.AbstractContextManager[Any]:
    return torch.autocast("cuda", torch.bfloat16) if device == "cuda" else contextlib.nullcontext()


class Rows:
    """The packed rows in file order; batch n is always the same rows, and process i takes the i-th part of it."""

    def __init__(self, path: Path, batch: int, device: str, rank: int, world: int) -> None:
        self.rows, self.batch, self.device = np.load(path, mmap_mode="r"), batch, device
        self.part = slice(rank * batch // world, (rank + 1) * batch // world)
        if len(self.rows) < batch:
            raise SystemExit(f"{path} has {len(self.rows)} rows, fewer than one batch of {batch}; lower --rows")

    def get(self, step: int) -> Tensor:
        start = step * self.batch % (len(self.rows) - self.batch + 1)
        block = torch.from_numpy(self.rows[start : start + self.batch][self.part].astype(np.int32))
        return (block.pin_memory() if self.device == "cuda" else block).to(self.device, non_blocking=True).long()


class Team:
    """The processes that torchrun started, or this one alone."""

    def __init__(self) -> None:
        self.rank, self.world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        self.control: Any = None
        if self.world > 1:
            if torch.cuda.is_available():
                torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
            dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
            # the schedule goes over a group of its own, so that it never waits for the GPU
            self.control = dist.new_group(backend="gloo")

    def agree(self, values: list[float]) -> list[float]:
        """The first process's values."""
        if self.world == 1:
            return values
        shared = torch.tensor(values, dtype=torch.float64)
        dist.broadcast(shared, 0, group=self.control)
        return shared.tolist()

    def average_gradients(self, model: DemoModel) -> None:
        """The mean of all processes' gradients, in one transfer."""
        if self.world == 1:
            return
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        flat = torch.cat([g.flatten() for g in grads])
        dist.all_reduce(flat)
        parts = (flat / self.world).split([g.numel() for g in grads])
        torch._foreach_copy_(grads, [part.view_as(g) for part, g in zip(parts, grads, strict=True)])


def train_step(
    model: DemoModel,
    losses: Losses,
    optimizers: list[torch.optim.Optimizer],
    rows: Tensor,
    args: argparse.Namespace,
    share: float,
    team: Team,
) -> dict[str, Tensor]:
    """One update over a batch, in blocks that fit the memory; returns the mean parts of the loss."""
    width = rows.shape[1] - 1
    index_at = torch.randint(width // 16, width, (args.index_queries,), device=rows.device)
    blocks = rows.split(args.micro)
    sums: dict[str, Tensor] = {}
    for block in blocks:
        with precision(args.device):
            loss, parts = losses(model, block, share >= SPARSE_FROM, index_at)
        (loss / len(blocks)).backward()
        sums = {k: sums.get(k, 0) + v / len(blocks) for k, v in parts.items()}
    team.average_gradients(model)
    sums["norm"] = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * rate(share)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return sums


@torch.no_grad()
def held_out_loss(
    model: DemoModel, folder: Path, width: int, rows: int, device: str, names: list[str] | None = None
) -> dict[str, float]:
    """Mean loss a token of each held-out pool, over at most `rows` rows, with the indexer's selection."""
    result = {}
    for path in sorted(folder.glob("*.tokens.npy")):
        name, tokens = path.name.split(".")[0], np.load(path).astype(np.int64)
        count = min(rows, (len(tokens) - 1) // width)
        if (names and name not in names) or len(tokens) < 64:
            continue
        span = width if count else len(tokens) - 1
        total = 0.0
        for start in range(0, max(count, 1) * span, span):
            block = torch.from_numpy(tokens[start : start + span + 1]).to(device)[None]
            with precision(device):
                logits = model(block[:, :-1])
            total += torch.nn.functional.cross_entropy(logits[0].float(), block[0, 1:]).item()
        result[name] = round(total / max(count, 1), 4)
    return result


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train the demo model.")
    parser.add_argument("--data", type=Path, required=True, help="folder made by `python -m training.data shards`")
    parser.add_argument("--out", type=Path, required=True, help="folder of the checkpoint")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint in --out, if there is one")
    parser.add_argument(
        "--minutes",
        type=float,
        default=9,
        help="time of this call (default %(default)s); a number in "
        "the file OUT/minutes takes its place, also while it runs",
    )
    parser.add_argument("--share-from", type=float, default=0.0, help="share of the schedule to start at (default 0)")
    parser.add_argument("--until", type=float, default=1.0, help="share of the schedule at this call's end (default 1)")
    parser.add_argument(
        "--start-from", type=Path, metavar="GGUF", help="start from a file's weights, not from random ones"
    )
    parser.add_argument("--steps", type=int, help="stop after this many steps of this call")
    parser.add_argument("--rows", type=int, default=32, help="rows of a batch (default %(default)s)")
    parser.add_argument("--micro", type=int, default=16, help="rows computed at once (default %(default)s)")
    parser.add_argument("--matrix-lr", type=float, default=4e-3)
    parser.add_argument("--other-lr", type=float, default=2e-3)
    parser.add_argument("--draft-steps", type=int, default=2, help="MTP steps trained (default %(default)s)")
    parser.add_argument("--index-queries", type=int, default=128, help="positions a row that teach the indexer")
    parser.add_argument("--delta", choices=["chunked", "fla"], default="chunked", help="delta rule's implementation")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=torch.cuda.is_available())
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--set", nargs="*", default=[], metavar="NAME=VALUE", help="model settings other than the default"
    )
    return parser.parse_args()


def main() -> None:
    args, team = arguments(), Team()
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    torch._dynamo.config.recompile_limit = 64
    resumed = args.resume and (args.out / "progress.json").exists()
    if resumed:
        model = checkpoint.load_model(args.out, args.device)
    elif args.start_from:
        model = read(args.start_from, ModelConfig().replace(dict(s.split("=", 1) for s in args.set))).to(args.device)
    else:
        model = DemoModel(ModelConfig().replace(dict(s.split("=", 1) for s in args.set))).to(args.device)
    optimizers = make_optimizers(model, args.matrix_lr, args.other_lr)
    progress: dict[str, Any] = {"step": 0, "tokens": 0, "seconds": 0.0, "share": args.share_from}
    if resumed:
        progress = checkpoint.load_optimizers(args.out, optimizers, args.device)
    prepare(model, args.delta, args.compile)
    losses = Losses(Weights(), args.draft_steps, args.compile)
    rows = Rows(args.data / "rows.npy", args.rows, args.device, team.rank, team.world)
    print(
        f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f} M parameters, from step {progress['step']}", flush=True
    )
    run(args, model, optimizers, losses, rows, progress, team)
    if team.world > 1:
        dist.destroy_process_group()
    if team.rank:
        return
    checkpoint.save(args.out, model, optimizers, progress)
    prepare(model, "chunked", False)  # held-out rows have many lengths: not worth compiling for each
    report = held_out_loss(model, args.data / "held", rows.rows.shape[1] - 1, 2, args.device)
    print(f"held-out loss {report}")
    print(f"{progress['step']} steps, {progress['tokens'] / 1e6:.1f} M tokens, {progress['seconds']:.0f} s of training")


def run(
    args: argparse.Namespace,
    model: DemoModel,
    optimizers: list[torch.optim.Optimizer],
    losses: Losses,
    rows: Rows,
    progress: dict[str, Any],
    team: Team,
) -> None:
    """The loop: until this call's minutes or steps are used. The schedule waits for the first steps, which compile."""
    begin = started = mark = saved = time.time()
    first_step, first_share, first_seconds = progress["step"], progress["share"], progress["seconds"]
    mark_tokens = 0
    while True:
        now, done = time.time(), progress["step"] - first_step
        if done == WARM_STEPS:
            started = now
        deadline = begin + _minutes(args) * 60
        run_share = (now - started) / max(deadline - started, 1e-9) if done >= WARM_STEPS else 0.0
        share = first_share + (args.until - first_share) * min(1.0, run_share)
        progress["share"], over = team.agree([share, now > deadline])
        if over or (args.steps and done >= args.steps):
            return
        batch = rows.get(progress["step"])
        parts = train_step(model, losses, optimizers, batch, args, progress["share"], team)
        progress["step"] += 1
        progress["tokens"] += batch.numel() * team.world
        mark_tokens += batch.numel() * team.world
        progress["seconds"] = first_seconds + time.time() - begin
        if team.rank:
            continue
        if done < 10 or done % 25 == 0:
            line = " ".join(f"{k} {v.item():.3f}" for k, v in parts.items())
            speed, mark, mark_tokens = mark_tokens / (time.time() - mark), time.time(), 0
            print(
                f"step {progress['step']} at {progress['share']:.3f}: {line} | {speed / 1e3:.1f} K tokens/s", flush=True
            )
        if time.time() - saved > SAVE_EVERY:
            checkpoint.save(args.out, model, optimizers, progress)
            saved = time.time()


def _minutes(args: argparse.Namespace) -> float:
    """The time of this call: the option's, or what was written into the folder since."""
    try:
        return float((args.out / "minutes").read_text())
    except (OSError, ValueError):
        return float(args.minutes)


if __name__ == "__main__":
    main()
