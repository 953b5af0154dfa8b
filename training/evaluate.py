"""Measures a checkpoint, or what a GGUF file left of it, on the held-out mix.

`python -m training.evaluate --checkpoint DIR --data DIR --tokenizer FILE [--gguf FILE] [--out FILE.json]`
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from . import checkpoint
from .data.sample import Sample
from .export import read
from .model import DemoModel, Notes
from .train import held_out_loss, precision

TEXTS = ["books", "wiki", "dialogue", "docs", "code", "facts", "reading", "tools", "turns"]


@torch.no_grad()
def continue_greedily(model: DemoModel, prompts: list[list[int]], stop: int, new: int, device: str) -> list[list[int]]:
    """The most probable continuation of each prompt, up to `new` tokens or the stop token.

    Every step reads whole rows again: slow a token, but without a second implementation of the state.
    """
    longest = max(map(len, prompts))
    width = -(-(longest + new) // 64) * 64
    rows = torch.full((len(prompts), width), stop, dtype=torch.long)
    for row, prompt in zip(rows, prompts, strict=True):
        row[: len(prompt)] = torch.tensor(prompt)
    rows, at = rows.to(device), torch.tensor([len(p) for p in prompts], device=device)
    each, open_rows = (
        torch.arange(len(prompts), device=device),
        torch.ones(len(prompts), dtype=torch.bool, device=device),
    )
    for _ in range(new):
        with precision(device):
            _, streams, _ = model.streams(rows[:, : int(at.max())], Notes(), sparse=True)
            hidden = model.model.hyper_connection_mixer(streams[each, at - 1][:, None])[1]
            token = model.head(hidden)[:, 0].float().argmax(-1)
        rows[each, at] = torch.where(open_rows, token, stop)
        open_rows &= token != stop
        at = at + open_rows
        if not open_rows.any():
            break
    return [row[len(p) : int(end)].tolist() for row, p, end in zip(rows.cpu(), prompts, at, strict=True)]


def tasks(model: DemoModel, tokenizer: Tokenizer, path: Path, device: str, budget: int, limit: int) -> dict[str, Any]:
    """Share of held-out tasks answered rightly, of each kind, and some answers to look at."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    by_kind: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        by_kind[line["kind"]].append(line)
    lines = sorted((x for xs in by_kind.values() for x in xs[:limit]), key=lambda x: len(x["prompt"]))
    stop = tokenizer.token_to_id("<|im_end|>")
    right: dict[str, list[bool]] = defaultdict(list)
    shown: dict[str, list[str]] = defaultdict(list)
    while lines:
        count = 1
        while count < len(lines) and (count + 1) * (len(lines[count]["prompt"]) // 3 + 64) < budget:
            count += 1
        block, lines = lines[:count], lines[count:]
        prompts = [tokenizer.encode(x["prompt"]).ids for x in block]
        for x, ids in zip(block, continue_greedily(model, prompts, stop, 64, device), strict=True):
            answer = tokenizer.decode(ids, skip_special_tokens=False)
            judged = Sample(x["kind"], [], x["expect"], x["rule"]).accepts(answer)
            right[x["kind"]].append(judged)
            if len(shown[x["kind"]]) < 8:
                shown[x["kind"]].append(f"{'ok ' if judged else 'NO '}{x['prompt'][-160:]!r} -> {answer[:160]!r}")
    accuracy = {kind: round(sum(r) / len(r), 3) for kind, r in sorted(right.items())}
    return {"accuracy": accuracy, "count": {k: len(v) for k, v in sorted(right.items())}, "answers": dict(shown)}


@torch.no_grad()
def drafts(model: DemoModel, folder: Path, width: int, rows: int, device: str) -> tuple[dict[str, Any], Tensor]:
    """Draft acceptance on held-out text, and each layer's expert use.

    `first` is how often the first draft equals the trunk's most probable token; `second` how often the second does too,
    where the first was accepted; `both` is their product.
    """
    result, use = {}, []
    for name in TEXTS:
        path = folder / f"{name}.tokens.npy"
        tokens = np.load(path).astype(np.int64) if path.exists() else np.zeros(0, np.int64)
        span = min(width, len(tokens) // 64 * 64)
        if span < 64:
            continue
        first = second = chances = accepted = 0
        for start in range(0, min(rows, len(tokens) // span) * span, span):
            block = torch.from_numpy(tokens[start : start + span]).to(device)[None]
            notes = Notes()
            with precision(device):
                embedded, streams, table = model.streams(block, notes, sparse=True)
                trunk = model.head(model.model.hyper_connection_mixer(streams)[1]).argmax(-1)[0]
                steps = model.mtp.steps(2, embedded, streams, block, table, notes, sparse=True)
                one, two = (model.head(step).argmax(-1)[0] for step in steps)
            use.append(torch.stack([r[2:] for r in notes.router[:-1]]))
            first += int((one[1:] == trunk[1:]).sum())
            chances += span - 1
            # the second draft follows the first, so count where the first was taken and the text follows it
            taken = (one[1:-1] == trunk[1:-1]) & (trunk[1:-1] == block[0, 2:])
            accepted += int(taken.sum())
            second += int((taken & (two[2:] == trunk[2:])).sum())
        share_second = second / max(accepted, 1)
        result[name] = {
            "first": round(first / chances, 3),
            "second": round(share_second, 3),
            "both": round(first / chances * share_second, 3),
        }
    means = {k: round(float(np.mean([r[k] for r in result.values()])), 3) for k in ("first", "second", "both")}
    return {**result, "mean": means}, torch.stack(use).mean(0)


def expert_use(use: Tensor) -> list[dict[str, float]]:
    """For each layer: the largest share of one expert, and the share of choices that the busiest quarter receives."""
    ordered = use.sort(-1, descending=True).values
    quarter = use.shape[-1] // 4
    return [
        {
            "largest": round(float(o[0]), 4),
            "smallest": round(float(o[-1]), 4),
            "busiest_quarter": round(float(o[:quarter].sum()), 3),
        }
        for o in ordered
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="Evaluate the demo model on the held-out mix.")
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True, help="folder made by `python -m training.data shards`")
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--gguf", type=Path, help="evaluate this file's dequantized weights instead")
    parser.add_argument("--out", type=Path, help="JSON file for the whole report")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--width", type=int, default=4096, help="tokens of a row of text (default %(default)s)")
    parser.add_argument("--rows", type=int, default=8, help="rows of each pool at most (default %(default)s)")
    parser.add_argument("--budget", type=int, default=131072, help="tokens of a batch of tasks (default %(default)s)")
    parser.add_argument("--limit", type=int, default=100, help="tasks of each kind at most (default %(default)s)")
    parser.add_argument("--loss-only", action="store_true")
    args = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    model = checkpoint.load_model(args.checkpoint, args.device)
    if args.gguf:
        model = read(args.gguf, model.config).to(args.device)
    model.eval()
    held = args.data / "held"
    losses = held_out_loss(model, held, args.width, args.rows, args.device)
    report: dict[str, Any] = {"loss": losses, "mean_loss": round(float(np.mean(list(losses.values()))), 4)}
    print(json.dumps(report))
    if not args.loss_only:
        report["drafts"], use = drafts(model, held, args.width, args.rows, args.device)
        report["experts"] = expert_use(use)
        report.update(
            tasks(
                model,
                Tokenizer.from_file(str(args.tokenizer)),
                held / "tasks.jsonl",
                args.device,
                args.budget,
                args.limit,
            )
        )
        print(json.dumps({k: report[k] for k in ("drafts", "experts", "accuracy")}))
        for answers in report["answers"].values():
            print("\n".join(answers[:4]))
    if args.out:
        args.out.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
