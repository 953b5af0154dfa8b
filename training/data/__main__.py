"""`python -m training.data corpora|shards`: build the text files, then the token shards."""

from __future__ import annotations

import argparse
from pathlib import Path

from . import corpora, shards


def _mix(words: list[str] | None) -> dict[str, float]:
    if words is None:
        return dict(shards.MIX)
    mix = {name: float(share) for name, share in (word.split("=", 1) for word in words)}
    strange = sorted(set(mix) - set(shards.MIX))
    if strange or not {"books", "dialogue"} <= set(mix):
        raise SystemExit(f"--mix: unknown pools {strange} or no books and dialogue; known: {', '.join(shards.MIX)}")
    return mix


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m training.data", description=__doc__)
    parts = parser.add_subparsers(dest="part", required=True)
    texts = parts.add_parser("corpora", help="compressed text files from books and downloads")
    texts.add_argument("--books", type=Path, required=True, help="xz file of books, each starting with '# Title:'")
    texts.add_argument("--downloads", type=Path, required=True, help="what training/data/fetch.sh downloaded")
    texts.add_argument("--out", type=Path, required=True)
    texts.add_argument("--books-mb", type=float, default=95, help="book text to keep (default %(default)s)")
    rows = parts.add_parser("shards", help="token shards, packed rows and the evaluation mix")
    rows.add_argument("--corpus", type=Path, required=True)
    rows.add_argument("--tokenizer", type=Path, required=True)
    rows.add_argument("--out", type=Path, required=True)
    rows.add_argument("--samples", type=int, default=1_200_000, help="generated conversations (default %(default)s)")
    rows.add_argument("--tokens", type=int, default=420_000_000, help="tokens in packed rows (default %(default)s)")
    rows.add_argument("--width", type=int, default=4097, help="tokens of a row and one (default %(default)s)")
    rows.add_argument("--tasks", type=int, default=100, help="held-out tasks of each group (default %(default)s)")
    rows.add_argument(
        "--mix",
        nargs="*",
        metavar="POOL=SHARE",
        help="shares of the training tokens other than the default; "
        "books and dialogue fill rows and must be among them",
    )
    args = parser.parse_args()
    if args.part == "corpora":
        corpora.build(args.books, args.downloads, args.out, args.books_mb)
    else:
        mix = _mix(args.mix)
        shards.build(args.corpus, args.tokenizer, args.out, args.samples, args.tokens, args.width, args.tasks, mix)


if __name__ == "__main__":
    main()
