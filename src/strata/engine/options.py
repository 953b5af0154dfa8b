"""The engine's command line: what it does, and every option of Strata's earlier engines that it has to answer for.

Those that are no settings here stand in `option_tables`. An option that is in no table is a mistake.
"""

import difflib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from strata.engine.option_tables import KNOWN, NEUTRAL, Known
from strata.engine.reading import LARGEST_CHUNK
from strata.errors import UsageError

USAGE = """\
usage: strata engine --serve --native FILE [options]

Serves one model over lines on stdin and stdout; the log goes to stderr.

  --native FILE          the model: a GGUF file, or the first of a split one
  --max-context N        positions a conversation may have (default: the model's, or as many as memory holds)
  --kv bf16|f16|f32      precision of stored keys and values (default: bf16)
  --eos-ids LIST         tokens that end an answer, -1 for none (default: the model's)
  --turn-token ID        token that opens a turn, where checkpoints are made (default: the model's)
  --prefill N|auto[:N]   prompt tokens a window; auto adapts to the speed, up to N (default: auto:8192)
  --threads N            CPU threads (default: every core this process may use)
  --log FILE             write the log there too

many conversations:
  --batch N, --slots N   slots of a client that places conversations itself (default: 0)
  --max-lanes N          requests that run at a time, at most 256 (default: 0, as many as memory has states for)
  --kv-pool-tokens N     tokens of all conversations whose keys and values are kept (default: 0, what memory holds)

drafts, which change no token:
  --spec N               most drafts of the MTP block a lane and window, 0 for none (default: 4)
  --spec-min-p F         no draft whose measured chance to stand is below F, 0 to 1 (default: 0)
  --mtp off|DIR          off: no drafts of the MTP block; a directory is not needed, the block is in the model file
  --lookup N             most drafts found in the conversation's own history, 0 for none (default: 8)
  --suffix-draft N       0 is --lookup 0

kept conversations:
  --prompt-cache N       checkpoints kept of a conversation, 0 for none (default: 6)
  --prompt-cache-every N
                         also one every N prompt tokens, 0 for none (default: 16384)
  --prompt-cache-root N  also one at the end of a system prompt of at least N tokens, 0 for none (default: 2048)
  --conversation-cache-mib N
                         memory for idle conversations that had to leave the pool (default: 0, none)
  --conversation-cache-slots N
                         most of them in memory (default: 4)
  --conversation-cache-min-free-mib N
                         memory of the machine that they leave free (default: 2560)
  --conversation-cache-spill-dir DIR
                         directory for those that memory has no room for, found again by the next start (default: none)
  --conversation-cache-disk-mib N
                         what its files may take (default: 8192)
"""
MOST_LANES = 256
_MOST = 2**31 - 1
_MOST_SLOTS = 4096
_MOST_DRAFTS = 64
_SUFFIX_MATCH = 3
_KV = {"bf16": "bf16", "f16": "f16", "fp16": "f16", "f32": "f32", "fp32": "f32"}


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked for. None leaves the choice to the model, or to the engine's own bound.

    `chunk` None: adapted to the measured speed. `batch`: slots. `max_lanes`, `pool_tokens` 0: what memory allows.
    `spec`, `lookup`: most drafts a lane and window from the MTP block and from the history; `mtp` False: none from the
    block. Sizes in MiB; `cache_mib` 0 and `spill_dir` None: idle conversations that leave the pool are not parked.
    """

    native: str = ""
    max_context: int | None = None
    kv: str = "bf16"
    eos_ids: tuple[int, ...] | None = None
    turn_token: int | None = None
    chunk: int | None = None
    largest_chunk: int = LARGEST_CHUNK
    prompt_cache: int = 6
    threads: int = 0
    log: str | None = None
    batch: int = 0
    max_lanes: int = 0
    spec: int | None = None
    spec_min_p: float = 0.0
    mtp: bool = True
    lookup: int | None = None
    pool_tokens: int = 0
    prompt_cache_every: int = 16384
    prompt_cache_root: int = 2048
    cache_mib: int = 0
    cache_slots: int = 4
    cache_min_free_mib: int = 2560
    spill_dir: Path | None = None
    disk_mib: int = 8192
    notes: tuple[str, ...] = ()


def _number(name: str, text: str, least: int, most: int = _MOST) -> int:
    if not re.fullmatch(r"-?[0-9]{1,10}", text) or not least <= int(text) <= most:
        raise UsageError(f"{name} {text}: must be a whole number from {least} to {most}.")
    return int(text)


def _prefill(options: Options, text: str) -> Options:
    auto, _, largest = text.partition(":")
    if auto != "auto":
        return replace(options, chunk=_number("--prefill", text, 1))
    most = _number("--prefill auto:", largest, 1) if largest else LARGEST_CHUNK
    return replace(options, chunk=None, largest_chunk=most)


def _eos_ids(options: Options, text: str) -> Options:
    ids = [_number("--eos-ids", word, -1) for word in text.split(",")]
    return replace(options, eos_ids=tuple(i for i in ids if i >= 0))


def _kv(options: Options, text: str) -> Options:
    if text in ("int8", "q4_0", "k8v4"):
        raise UsageError(f"--kv {text} is not implemented yet: choose bf16, f16 or f32.")
    if text not in _KV:
        raise UsageError(f"--kv {text}: must be bf16, f16 or f32.")
    return replace(options, kv=_KV[text])


def _spec_min_p(options: Options, text: str) -> Options:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise UsageError(f"--spec-min-p {text}: must be a number from 0 to 1.")
    return replace(options, spec_min_p=value)


def _mtp(options: Options, text: str) -> Options:
    if text == "off":
        return replace(options, mtp=False)
    return _noted(replace(options, mtp=True), f"--mtp {text}", "the MTP block is in the model file")


def _suffix_draft(options: Options, text: str) -> Options:
    """The shortest match that earlier engines draft from; here only 0, none, says something."""
    shortest = _number("--suffix-draft", text, 0)
    if not shortest:
        return replace(options, lookup=0)
    options = replace(options, lookup=options.lookup or None)
    if shortest == _SUFFIX_MATCH:
        return options
    reason = f"a match of {_SUFFIX_MATCH} tokens or more counts, by how often drafts behind one of its length stand"
    return _noted(options, f"--suffix-draft {text}", reason)


def _spill_dir(options: Options, text: str) -> Options:
    if not text:
        raise UsageError("--conversation-cache-spill-dir needs a directory.")
    return replace(options, spill_dir=Path(text))


def _noted(options: Options, words: str, reason: str) -> Options:
    return replace(options, notes=(*options.notes, _without_effect(words, reason)))


def _without_effect(words: str, reason: str) -> str:
    return f"without effect: {words} ({reason})"


Setting = Callable[[Options, str], Options]


def _whole(name: str, field: str, least: int = 0, most: int = _MOST) -> tuple[str, Setting]:
    """A setting that is a whole number."""

    def set_to(options: Options, text: str) -> Options:
        change: dict[str, Any] = {field: _number(name, text, least, most)}
        return replace(options, **change)

    return name, set_to


_SETTINGS: Mapping[str, Setting] = {
    "--native": lambda o, v: replace(o, native=v),
    "--kv": _kv,
    "--eos-ids": _eos_ids,
    "--prefill": _prefill,
    "--log": lambda o, v: replace(o, log=v),
    "--spec-min-p": _spec_min_p,
    "--mtp": _mtp,
    "--suffix-draft": _suffix_draft,
    "--conversation-cache-spill-dir": _spill_dir,
    **dict((
        _whole("--max-context", "max_context", 16),
        _whole("--turn-token", "turn_token", -1),
        _whole("--threads", "threads", 0, 4096),
        _whole("--batch", "batch", 0, _MOST_SLOTS),
        _whole("--slots", "batch", 0, _MOST_SLOTS),
        _whole("--max-lanes", "max_lanes", 0, MOST_LANES),
        _whole("--spec", "spec", 0, _MOST_DRAFTS),
        _whole("--lookup", "lookup", 0, _MOST_DRAFTS),
        _whole("--kv-pool-tokens", "pool_tokens"),
        _whole("--prompt-cache", "prompt_cache", 0, 1024),
        _whole("--prompt-cache-every", "prompt_cache_every"),
        _whole("--prompt-cache-root", "prompt_cache_root"),
        _whole("--conversation-cache-mib", "cache_mib"),
        _whole("--conversation-cache-slots", "cache_slots"),
        _whole("--conversation-cache-min-free-mib", "cache_min_free_mib"),
        _whole("--conversation-cache-disk-mib", "disk_mib"),
    )),
}  # fmt: skip


def parse(arguments: Sequence[str]) -> Options:
    """Options from the words after `strata engine`. Raises UsageError with one sentence."""
    options, words = Options(), list(arguments)
    serve = False
    said: dict[str, list[str]] = {}
    while words:
        name, equals, value = words.pop(0).partition("=")
        if equals:
            words.insert(0, value)
        if name == "--serve":
            serve = True
        elif name in _SETTINGS:
            options = _SETTINGS[name](options, _values(name, 1, words)[0])
        elif name in KNOWN:
            _answer(name, KNOWN[name], words, said)
        else:
            raise _unknown(name)
    if not serve:
        raise UsageError("The engine only serves: --serve is missing.\n\n" + USAGE.rstrip())
    if not options.native:
        raise UsageError("--native FILE is missing: which model is to be served?")
    notes = [*options.notes, *(_without_effect(", ".join(names), reason) for reason, names in said.items())]
    return replace(options, notes=tuple(dict.fromkeys(notes)))


def _answer(name: str, known: Known, words: list[str], said: dict[str, list[str]]) -> None:
    """Take the values of an option that is no setting from `words`; refuse it, or note it under its reason."""
    absent = known.optional and (not words or words[0].startswith("--"))
    asked = " ".join([name, *_values(name, 0 if absent else known.values, words)])
    if tuple(asked.partition(" ")[::2]) in NEUTRAL:
        return
    if known.refused:
        raise UsageError(f"{asked}: {known.reason}; start without it.")
    said.setdefault(known.reason, []).append(asked)


def _values(name: str, count: int, words: list[str]) -> list[str]:
    values = words[:count]
    if len(values) < count or any(value.startswith("--") for value in values):
        raise UsageError(f"{name} needs {'a value' if count == 1 else f'{count} values'}.")
    del words[:count]
    return values


def _unknown(name: str) -> UsageError:
    near = difflib.get_close_matches(name, ["--serve", *_SETTINGS, *KNOWN], n=1, cutoff=0)
    what = "option" if name.startswith("-") else "argument"
    return UsageError(f"{name} is not an {what} of the engine; the nearest is {near[0]}.")
