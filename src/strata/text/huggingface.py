"""A tokenizer in the form of the `tokenizers` library: one `tokenizer.json` that holds vocabulary and merges."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from strata.errors import WeightsError


def read_parts(path: Path, content: Mapping[str, Any]) -> tuple[list[str], list[int], list[tuple[str, str]]]:
    """Tokens by id, their types, and merges. Ids that name no token (a padded vocabulary) become unused ones.

    Raises WeightsError for anything but byte-level BPE.
    """
    model = content.get("model")
    if not isinstance(model, Mapping) or model.get("type", "BPE") != "BPE":
        raise WeightsError(f"{path}: only BPE tokenizers are implemented.")
    try:
        normal = {str(token): int(number) for token, number in model["vocab"].items()}
        added = [(str(t["content"]), int(t["id"]), bool(t.get("special", False))) for t in content["added_tokens"]]
        merges = [_pair(merge) for merge in model["merges"]]
        size = 1 + max([*normal.values(), *(number for _, number, _ in added)])
    except (KeyError, TypeError, ValueError, AttributeError):
        raise WeightsError(f"{path}: its vocab, merges or added_tokens are not as a tokenizer has them.") from None
    if size > 2 * (len(normal) + len(added)) + 1024:
        raise WeightsError(f"{path}: {len(normal) + len(added)} tokens, but ids up to {size - 1}.")
    tokens, types = [f"[unused{number}]" for number in range(size)], [5] * size
    for token, number in normal.items():
        tokens[number], types[number] = token, 1
    for token, number, special in added:
        tokens[number], types[number] = token, 3 if special else 4
    return tokens, types, merges


def _pair(merge: str | Sequence[str]) -> tuple[str, str]:
    left, right = merge.split(" ") if isinstance(merge, str) else merge
    return left, right
