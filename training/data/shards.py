"""Token shards: tokenizes the corpus, generates conversations and packs both into rows, with every core.

A pool is `NAME.tokens.npy` (uint16) and `NAME.ends.npy` (where each document ends). `rows.npy` holds the packed
training rows; `held/` the held-out pools and `tasks.jsonl`, the questions with their expected answers.
"""

from __future__ import annotations

import json
import lzma
import multiprocessing
import os
import time
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from .generate import GROUPS, Sources, draw, held_out_tasks, load_sources

TEXTS = ["books", "wiki", "words", "dialogue", "computing", "docs", "manuals", "code"]
# Shares of the training tokens
MIX = {
    "books": 21,
    "wiki": 2.5,
    "words": 2.5,
    "dialogue": 5,
    "computing": 1.5,
    "docs": 2,
    "manuals": 0.5,
    "code": 3,
    "facts": 10,
    "knowledge": 9,
    "skills": 15,
    "tools": 5,
    "turns": 6,
    "recall": 17,
}
_shared: dict[str, Any] = {}


def encode(texts: Iterable[str], limit: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Tokens of all documents, each closed by the end token, and their ends; longer than `limit` are left out."""
    tokenizer: Tokenizer = _shared["tokenizer"]
    end = tokenizer.token_to_id("<|endoftext|>")
    parts = [np.array([*tokenizer.encode(text).ids, end], np.uint16) for text in texts if text]
    parts = [p for p in parts if limit is None or len(p) <= limit]
    ends = np.cumsum([len(p) for p in parts]) if parts else np.zeros(0)
    return (np.concatenate(parts) if parts else np.zeros(0, np.uint16)), ends.astype(np.int64)


def _encode_job(job: tuple[str, Any]) -> tuple[str, np.ndarray, np.ndarray]:
    kind, work = job
    if kind in GROUPS:
        seed, count = work
        return kind, *encode(draw(_shared["sources"], seed, count, kind), _shared["row"])
    return kind, *encode(work)


def _store(folder: Path, results: Iterable[tuple[str, np.ndarray, np.ndarray]]) -> None:
    pools: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    for kind, tokens, ends in results:
        pools.setdefault(kind, []).append((tokens, ends))
    for kind, parts in pools.items():
        offsets = np.cumsum([0] + [len(tokens) for tokens, _ in parts])
        np.save(folder / f"{kind}.tokens.npy", np.concatenate([tokens for tokens, _ in parts]))
        np.save(folder / f"{kind}.ends.npy", np.concatenate([e + o for (_, e), o in zip(parts, offsets, strict=False)]))


def _texts(corpus: Path, name: str) -> list[str]:
    return lzma.open(corpus / f"{name}.txt.xz", "rt", encoding="utf-8").read().split("\0")


def _jobs(corpus: Path, samples: int) -> list[tuple[str, Any]]:
    jobs: list[tuple[str, Any]] = []
    total = sum(GROUPS.values())
    for number, (kind, weight) in enumerate(GROUPS.items()):
        count, batch = int(samples * weight / total) + 1, 100 if kind == "recall" else 2000
        jobs += [(kind, (number * 1_000_000 + i, min(batch, count - i))) for i in range(0, count, batch)]
    for name in TEXTS:
        texts = _texts(corpus, name)
        jobs += [(name, texts[i : i + 64]) for i in range(0, len(texts), 64)]
    Random(0).shuffle(jobs)
    return jobs


class _Pool:
    """Documents of one pool in a shuffled order of its own, again and again."""

    def __init__(self, folder: Path, name: str, seed: int) -> None:
        self.tokens = np.load(folder / f"{name}.tokens.npy", mmap_mode="r")
        ends = np.load(folder / f"{name}.ends.npy")
        self.bounds = np.concatenate([[0], ends])
        self.random, self.order, self.at = np.random.default_rng(seed), np.zeros(0, np.int64), 0

    def next(self) -> np.ndarray:
        if self.at == len(self.order):
            self.order, self.at = self.random.permutation(len(self.bounds) - 1), 0
        document = self.order[self.at]
        self.at += 1
        return self.tokens[self.bounds[document] : self.bounds[document + 1]]


def _pack_job(job: tuple[Path, int, int, int]) -> np.ndarray:
    """Rows filled with whole documents; a text cut at a row's end goes on, a long conversation starts a row."""
    folder, seed, count, width = job
    mix = _shared["mix"]
    names = [n for n in mix if len(np.load(folder / f"{n}.ends.npy"))]
    pools = {n: _Pool(folder, n, seed * 100 + i) for i, n in enumerate(names)}
    spent = dict.fromkeys(names, 0.0)
    total = sum(mix[n] for n in names)
    rows = np.zeros((count, width), np.uint16)
    waiting: np.ndarray | None = None
    for row in rows:
        at = 0
        while at < width:
            if waiting is None:
                # the pool that lags most behind its share, so the mix holds exactly over time
                name = min(names, key=lambda n: spent[n] / mix[n] * total + 1e-9 * pools[n].at)
                document = pools[name].next()
                spent[name] += len(document)
                if name in GROUPS and at and len(document) > max(width - at, 1024):
                    waiting = document
                    if width - at > width // 2:
                        continue_with = pools["books"].next()[: width - at]
                        row[at : at + len(continue_with)] = continue_with
                        spent["books"] += len(continue_with)
                        at += len(continue_with)
                    if at < width:
                        filler = pools["dialogue"].next()[: width - at]
                        row[at : at + len(filler)] = filler
                        at += len(filler)
                    continue
            else:
                document, name, waiting = waiting, "", None
                if at and len(document) > width - at:
                    waiting = document
                    filler = pools["dialogue"].next()[: width - at]
                    row[at : at + len(filler)] = filler
                    at += len(filler)
                    continue
            piece = document[: width - at]
            row[at : at + len(piece)] = piece
            at += len(piece)
            if name in TEXTS and len(document) - len(piece) > 128:
                waiting = document[len(piece) :]
    return rows


def build(
    corpus: Path, tokenizer: Path, out: Path, samples: int, tokens: int, width: int, each: int, mix: dict[str, float]
) -> None:
    """Everything the training run reads, in `out`; skipped when it is there already."""
    done = out / "done.json"
    wanted = {"samples": samples, "tokens": tokens, "width": width, "tasks": each, "mix": mix, "groups": GROUPS}
    if done.exists() and json.loads(done.read_text()) == wanted:
        print(f"{out}: already there")
        return
    start = time.time()
    (out / "held").mkdir(parents=True, exist_ok=True)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    _shared.update(tokenizer=Tokenizer.from_file(str(tokenizer)), sources=load_sources(corpus), row=width, mix=mix)
    workers = os.cpu_count() or 1
    context = multiprocessing.get_context("fork")
    with context.Pool(workers) as pool:
        _store(
            out,
            pool.imap_unordered(_encode_job, _jobs(corpus, samples))
            if workers > 2
            else map(_encode_job, _jobs(corpus, samples)),
        )
        print(f"tokenized after {time.time() - start:.0f} s", flush=True)
    count = tokens // width
    with context.Pool(workers) as pool:
        jobs = [(out, i, min(256, count - start_row), width) for i, start_row in enumerate(range(0, count, 256))]
        rows = np.lib.format.open_memmap(out / "rows.npy", "w+", np.uint16, (count, width))
        at = 0
        for block in pool.imap(_pack_job, jobs):
            rows[at : at + len(block)] = block
            at += len(block)
        rows.flush()
    _held_out(corpus, out / "held", each, width)
    done.write_text(json.dumps(wanted))
    print(f"{out}: {count} rows of {width} after {time.time() - start:.0f} s")


def _held_out(corpus: Path, folder: Path, each: int, width: int) -> None:
    sources: Sources = load_sources(corpus, held_out=True)
    tokenizer: Tokenizer = _shared["tokenizer"]
    tasks = held_out_tasks(sources, each, lambda text: len(tokenizer.encode(text).ids))
    lines = [
        {"kind": t.kind, "prompt": t.prompt(), "expect": t.expect, "rule": t.rule, "text": t.text()} for t in tasks
    ]
    (folder / "tasks.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    results = [(f"{name}", *encode(_texts(corpus, f"{name}.held"))) for name in TEXTS]
    for kind in sorted({t.kind for t in tasks}):
        results.append((kind, *encode((t.text() for t in tasks if t.kind == kind), width)))
    _store(folder, results)
