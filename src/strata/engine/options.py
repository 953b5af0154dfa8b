"""The engine's command line: what it does, and every option of Strata's earlier engines that it has to answer for.

Three kinds of option are not plain settings here. MOOT ones have no meaning in this engine and are accepted; LESS ones
are not implemented yet, but the engine may run without: both are named once in the log, with the reason. REFUSED ones
would change results or promises, so the start ends with a sentence. An option that is in no table is a mistake.
"""

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from strata.engine.reading import LARGEST_CHUNK
from strata.errors import UsageError

USAGE = """\
usage: strata engine --serve --native FILE [options]

Serves one model over lines on stdin and stdout; the log goes to stderr.

  --native FILE          the model: a GGUF file, or the first of a split one
  --max-context N        positions a conversation may have (default: the model's)
  --kv bf16|f16|f32      precision of stored keys and values (default: bf16)
  --eos-ids LIST         tokens that end an answer, -1 for none (default: the model's)
  --turn-token ID        token that opens a turn, where checkpoints are made (default: the model's)
  --prefill N|auto[:N]   prompt tokens a window; auto adapts to the speed, up to N (default: auto:8192)
  --prompt-cache N       checkpoints kept of a conversation (default: 6)
  --threads N            CPU threads (default: every core this process may use)
  --log FILE             write the log there too
"""

# fmt: off
_MOOT = (
    ("the model file holds every tensor and is mapped into memory as it is",
     "--pack DIR --ple-gguf FILE --mmap-experts --resident-experts --resident-cpu-experts --resident-budget-gib N "
     "--shared-expert-arena FILE --ple-io MODE --ple-row-cache N --ple-inflight N"),
    ("this engine computes on the CPU and uses no graphics card",
     "--expert-cache N --expert-profile FILE --expert-profile-save FILE --expert-profile-save-every N "
     "--expert-cache-device1 N --expert-cache-device2 N --expert-cache-device3 N --expert-cache-remote-placement MODE "
     "--remote-expert-opt --peer-device N --peer-reserve-mib N --peer-slots N --peer-adapt-swaps N "
     "--peer-prefill-rows N --pcie-frac F --pcie-mode MODE --pcie-balance --adapt-every N --adapt-swaps N "
     "--adapt-decay F --adapt-min-gain F --adapt-async N --vram-reserve-mib N --vram-reserve-later-mib N "
     "--vram-elastic --vram-segment-mib N --no-prefill-borrow --trim-stage-weights --layer-split LIST "
     "--split-device LIST --split-skip-if-fits --head-device N --kv-resident N --kv-grow"),
    ("a prompt is read to its end, and the tail gives the same bits in any chunk", "--short-read N"),
    ("windows hold every conversation; there are no groups", "--batch-groups N --pipeline-windows N"),
    ("the cores are chosen by --threads and the system", "--pool-workers N --pool-affinity MODE --pool-tasks N "
     "--host-core WHICH --aux-cpus LIST --no-host-worker --cpu-kernel NAME --pool-drain MODE"),
    ("each request says how to draw", "--max-new N --greedy --seed N --top-k N --top-p F --temperature F"),
    ("it only shapes --rope-scaling yarn", "--yarn-orig-ctx N --yarn-ext-factor F --yarn-attn-factor F "
     "--yarn-beta-fast F --yarn-beta-slow F"),
    ("there are no session files", "--session-min-free-mib N"),
    ("the log always has one line a request", "--stats"),
)
_LESS = (
    ("drafts are not implemented yet; they change no token",
     "--spec N --mtp DIR --mtp-window N --spec-min-p F --mtp-max-t F --suffix-draft N --lookup-chain N "
     "--lookup-chain-min N --coupled-draft --mtp-hnorm MODE --mtp-q4 MODE --mtp-draft-vocab FILE --dflash FILE "
     "--dflash-block N --batch-mtp --batch-spec N --batch-rows N --batch-suffix N --batch-adapt N --batch-overlap N"),
    ("one request is served at a time for now", "--batch N --slots N --kv-pool-tokens N"),
    ("checkpoints are made at turns and at pins only for now",
     "--prompt-cache-every N --prompt-cache-tail --prompt-cache-root N --tail-role-token ID"),
    ("a conversation that another one replaces is read again for now",
     "--conversation-cache-mib N --conversation-cache-slots N --conversation-cache-min-free-mib N "
     "--conversation-cache-spill-dir DIR --conversation-cache-disk-mib N --conversation-cache-spill-on WHEN "
     "--conversation-cache-spill-when-full --conversation-cache-spill-max-age-days N --conversation-cache-similarity F "
     "--conversation-cache-n-min N"),
)
_REFUSED = (
    ("images are not implemented yet", "--vision"),
    ("control vectors are not implemented yet", "--control-vector FILE --control-vector-scaled FILE SCALE "
     "--control-vector-layer-range A B --cvec-mode MODE --cvec-dir DIR"),
    ("stretching the context is not implemented yet", "--rope-scaling MODE --rope-scale F --rope-freq-base F "
     "--rope-freq-scale F"),
    ("a limit of memory is not implemented yet, and will not be ignored", "--memory-limit-mib N"),
    ("an engine answers requests; `strata generate` gives a single answer", "--tokens LIST --tokens-file FILE"),
    ("dumps are not implemented", "--dump-logits FILE --dump-routing FILE"),
)
# Values that ask for nothing, and so need no word.
_NEUTRAL = frozenset({
    ("--spec", "0"), ("--suffix-draft", "0"), ("--lookup-chain", "0"), ("--batch", "0"), ("--batch", "1"),
    ("--slots", "0"), ("--slots", "1"), ("--kv-pool-tokens", "0"), ("--kv-resident", "0"),
    ("--conversation-cache-mib", "0"), ("--rope-scaling", "none"), ("--rope-scale", "1"), ("--rope-freq-base", "0"),
    ("--rope-freq-scale", "1"), ("--tail-role-token", "-1"), ("--memory-limit-mib", "0"), ("--expert-cache", "0"),
})
# fmt: on
_KV = {"bf16": "bf16", "f16": "f16", "fp16": "f16", "f32": "f32", "fp32": "f32"}


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked for. None leaves the choice to the model (or, for `chunk`, to the measured speed)."""

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
    batch: bool = False
    notes: tuple[str, ...] = ()


def _number(name: str, text: str, least: int, most: int = 2**31 - 1) -> int:
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


_SETTINGS: Mapping[str, Callable[[Options, str], Options]] = {
    "--native": lambda o, v: replace(o, native=v),
    "--max-context": lambda o, v: replace(o, max_context=_number("--max-context", v, 16)),
    "--kv": _kv,
    "--eos-ids": _eos_ids,
    "--turn-token": lambda o, v: replace(o, turn_token=_number("--turn-token", v, -1)),
    "--prefill": _prefill,
    "--prompt-cache": lambda o, v: replace(o, prompt_cache=_number("--prompt-cache", v, 0, 1024)),
    "--threads": lambda o, v: replace(o, threads=_number("--threads", v, 0, 4096)),
    "--log": lambda o, v: replace(o, log=v),
}


@dataclass(frozen=True, slots=True)
class _Known:
    """An option that is no setting: how many values it takes, and what is said about it."""

    values: int
    reason: str
    refused: bool = False


def _table() -> Iterator[tuple[str, _Known]]:
    for groups, refused in ((_MOOT, False), (_LESS, False), (_REFUSED, True)):
        for reason, text in groups:
            for name, values in re.findall(r"(--[a-z0-9-]+)((?: (?!--)\S+)*)", text):
                yield name, _Known(len(values.split()), reason, refused)


KNOWN: Mapping[str, _Known] = dict(_table())


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
            known = KNOWN[name]
            values = _values(name, known.values, words)
            options = replace(options, batch=options.batch or name in ("--batch", "--slots"))
            if (name, " ".join(values)) in _NEUTRAL:
                continue
            if known.refused:
                raise UsageError(f"{' '.join([name, *values])}: {known.reason}; start without it.")
            said.setdefault(known.reason, []).append(" ".join([name, *values]))
        else:
            raise _unknown(name)
    if not serve:
        raise UsageError("The engine only serves: --serve is missing.\n\n" + USAGE.rstrip())
    if not options.native:
        raise UsageError("--native FILE is missing: which model is to be served?")
    return replace(options, notes=tuple(f"without effect: {', '.join(n)} ({reason})" for reason, n in said.items()))


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
