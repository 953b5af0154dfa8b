"""The command line: what setup of the seeds writes is accepted and answered for, mistakes end in one sentence."""

import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from strata.engine import option_tables, options
from strata.engine.options import Options, parse
from strata.errors import UsageError

START = ["--serve", "--native", "model.gguf"]
PLAIN = Options(native="model.gguf")


def words(text: str) -> list[str]:
    return [*START, *shlex.split(text)]


def test_defaults_leave_the_choice_to_the_model_and_to_memory() -> None:
    assert parse(START) == PLAIN


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        ("--max-context 4096 --kv=fp16 --eos-ids 1,2 --turn-token 5",
         {"max_context": 4096, "kv": "f16", "eos_ids": (1, 2), "turn_token": 5}),
        ("--prefill 9 --prompt-cache 0 --threads 3 --log x", {"chunk": 9, "prompt_cache": 0, "threads": 3, "log": "x"}),
        ("--eos-ids -1", {"eos_ids": ()}),
        ("--prefill 7 --prefill auto:16384", {"chunk": None, "largest_chunk": 16384}),
        ("--batch 0", {"batch": 0}),
        ("--batch 1", {"batch": 1}),
        ("--slots 64", {"batch": 64}),
        ("--max-lanes 256", {"max_lanes": 256}),
        ("--spec 0 --spec-min-p 0.5", {"spec": 0, "spec_min_p": 0.5}),
        ("--spec 4 --mtp off", {"spec": 4, "mtp": False}),
        ("--mtp off --mtp on",
         {"mtp": True, "notes": ("without effect: --mtp on (the MTP block is in the model file)",)}),
        ("--lookup 12", {"lookup": 12}),
        ("--lookup 12 --suffix-draft 0", {"lookup": 0}),
        ("--suffix-draft 0 --suffix-draft 3", {"lookup": None}),
        ("--lookup 5 --suffix-draft 3", {"lookup": 5}),
        ("--kv-pool-tokens 524288", {"pool_tokens": 524288}),
        ("--prompt-cache-every 0 --prompt-cache-root 0", {"prompt_cache_every": 0, "prompt_cache_root": 0}),
        ("--conversation-cache-mib 8192 --conversation-cache-slots 2 --conversation-cache-min-free-mib 0 "
         "--conversation-cache-spill-dir /s/d --conversation-cache-disk-mib 9",
         {"cache_mib": 8192, "cache_slots": 2, "cache_min_free_mib": 0, "spill_dir": Path("/s/d"), "disk_mib": 9}),
    ],
)  # fmt: skip
def test_settings(line: str, changed: dict[str, object]) -> None:
    assert parse(words(line)) == replace(PLAIN, **changed)


# Every option of the seeds' engines (their usage and defaults), with values as their users write them.
SEEDS = """
--pack P --tokens 1,2 --tokens-file F --max-new 16 --max-context 4096 --kv fp16 --kv-resident 20480 --kv-grow
--kv-pool-tokens 0 --eos-ids 248044,248046 --vision
--expert-cache auto --expert-profile P --expert-profile-save P --expert-profile-save-every 10 --expert-cache-device1 8
--expert-cache-device2 8 --expert-cache-device3 8 --expert-cache-remote-placement stripe --remote-expert-opt
--peer-device 1 --peer-reserve-mib 600 --peer-slots 3 --peer-adapt-swaps 3 --peer-prefill-rows 3 --mmap-experts
--resident-cpu-experts --resident-experts --resident-budget-gib 40 --shared-expert-arena F --pcie-frac -1
--pcie-mode auto --pcie-balance --adapt-every 4 --adapt-swaps 96 --adapt-decay 0.7 --adapt-min-gain 1.5 --adapt-async 0
--vram-reserve-mib 700 --vram-reserve-later-mib 700 --vram-elastic --vram-segment-mib 512 --memory-limit-mib 9
--session-min-free-mib 4096
--prefill auto:32768 --no-prefill-borrow --short-read 64 --ple-io direct --ple-row-cache 1048576 --ple-inflight 256
--spec 4 --mtp DIR --mtp-window 32768 --spec-min-p 0 --mtp-max-t 4 --suffix-draft 3 --suffix-draft 8 --lookup-chain 3
--lookup-chain-min 3 --coupled-draft --mtp-hnorm stream --mtp-q4 all --mtp-draft-vocab F --dflash F --dflash-block 4
--prompt-cache 6 --prompt-cache-every 16384 --prompt-cache-tail --prompt-cache-root 2048 --turn-token 248045
--tail-role-token 9
--conversation-cache-mib 8192 --conversation-cache-slots 4 --conversation-cache-min-free-mib 2560
--conversation-cache-spill-dir D --conversation-cache-disk-mib 8192 --conversation-cache-spill-on park
--conversation-cache-spill-when-full reject --conversation-cache-spill-max-age-days 3
--conversation-cache-similarity 0.5 --conversation-cache-n-min 64
--system-prompt-cache --system-prompt-cache-dir D --system-prompt-cache-mib 2048 --system-prompt-cache-slots 2
--system-prompt-cache-max-age-days 1 --system-prompt-cache-key K
--batch 4 --slots 4 --batch-mtp --batch-groups auto --trim-stage-weights --pipeline-windows 2 --batch-spec 4
--batch-rows 16 --batch-suffix --batch-suffix 1 --batch-adapt --batch-adapt 1 --batch-overlap --batch-overlap 1
--layer-split auto --layer-split 24,36 --split-device 1 --split-skip-if-fits --head-device 1
--rope-scaling yarn --rope-scale 4 --rope-freq-base 1e6 --rope-freq-scale 0.25 --yarn-orig-ctx 262144
--yarn-ext-factor -1 --yarn-attn-factor 1 --yarn-beta-fast 32 --yarn-beta-slow 1
--pool-workers 0 --pool-affinity p-cores --pool-tasks 0 --host-core last --aux-cpus off --no-host-worker
--cpu-kernel fast --pool-drain counters
--control-vector F --control-vector-scaled F:1.5 --control-vector-layer-range 1 9 --cvec-mode add --cvec-dir per-layer
--greedy --seed 1 --top-k 20 --top-p .95 --temperature 1 --stats --dump-logits F --dump-routing F
"""
USES = [" ".join(use.split()) for use in re.findall(r"--[a-z0-9-]+(?:\s(?!--)\S+)*", SEEDS)]
REAL = re.findall(
    r"\S+",
    """
--native --max-context --kv --kv-pool-tokens --eos-ids --prefill --spec --spec-min-p --mtp --suffix-draft --prompt-cache
--prompt-cache-every --prompt-cache-root --turn-token --conversation-cache-mib --conversation-cache-slots
--conversation-cache-min-free-mib --conversation-cache-spill-dir --conversation-cache-disk-mib --batch --slots
""",
)
REFUSED = re.findall(
    r"\S+",
    """
--tokens --tokens-file --vision --memory-limit-mib --rope-scaling --rope-scale --rope-freq-base --rope-freq-scale
--control-vector --control-vector-scaled --control-vector-layer-range --cvec-mode --cvec-dir --dump-logits
--dump-routing
""",
)
SILENT = ["--batch-mtp"]


@pytest.mark.parametrize("use", USES)
def test_every_option_of_the_seeds_is_real_refused_or_named_in_the_log(use: str) -> None:
    name = use.split()[0]
    if name in REFUSED:
        with pytest.raises(UsageError, match=rf"^{re.escape(use)}: .*start without it\.$"):
            parse(words(use))
        return
    notes = parse(words(use)).notes
    if name not in REAL:
        assert (notes == ()) == (name in SILENT)
    for note in notes:
        assert note.startswith(f"without effect: {use} (")


def test_a_line_of_the_seeds_setup_is_accepted_whole_and_each_reason_is_said_once() -> None:
    uses = [use for use in USES if use.split()[0] not in REFUSED]
    found = parse(words(" ".join(uses)))
    assert (found.batch, found.spec, found.pool_tokens, found.cache_mib, found.largest_chunk) == (4, 4, 0, 8192, 32768)
    said = " ".join(found.notes)
    for use in uses:
        name = use.split()[0]
        assert name in [*REAL, *SILENT] or f" {use}" in said, f"{use} was passed over in silence"
    reasons = [re.findall(r" \((.*)\)$", note)[0] for note in found.notes]
    assert len(set(reasons)) == len(reasons)


def test_real_options_are_those_that_change_something() -> None:
    for name in REAL:
        assert name in options._SETTINGS
        assert name in options.USAGE
    assert set(options._SETTINGS) - set(REAL) == {"--threads", "--log", "--max-lanes", "--lookup"}, "our own"


@pytest.mark.parametrize(
    "line",
    [
        "--spec 0 --batch 1 --kv-pool-tokens 0 --rope-scaling none --conversation-cache-mib 0 --batch-mtp",
        "--suffix-draft 3 --lookup-chain 0 --mtp-max-t 0 --tail-role-token -1 --kv-resident 0 --memory-limit-mib 0",
        "--conversation-cache-spill-on evict --conversation-cache-spill-when-full evict-oldest",
    ],
)
def test_values_that_ask_for_what_happens_anyway_need_no_word(line: str) -> None:
    assert parse(words(line)).notes == ()


def test_a_value_that_may_be_missing() -> None:
    assert parse(words("--batch-adapt --batch-suffix 1 --spec 2")).spec == 2
    assert "--batch-adapt, --batch-suffix 1 (" in parse(words("--batch-adapt --batch-suffix 1")).notes[0]
    assert "--batch-adapt (" in parse(words("--batch-adapt")).notes[0]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("--kv int8", "--kv int8 is not implemented yet: choose bf16, f16 or f32."),
        ("--kv q9", "--kv q9: must be bf16, f16 or f32."),
        ("--vision", "--vision: images are not implemented yet; start without it."),
        ("--rope-scale 2", "--rope-scale 2: stretching the context is not implemented yet; start without it."),
        ("--cvec-mode add", "--cvec-mode add: control vectors are not implemented yet; start without it."),
        ("--control-vector-layer-range 3", "--control-vector-layer-range needs 2 values."),
        ("--max-context 1e5", "--max-context 1e5: must be a whole number from 16 to 2147483647."),
        ("--prefill 0", "--prefill 0: must be a whole number from 1 to 2147483647."),
        ("--eos-ids 1,,2", "--eos-ids : must be a whole number from -1 to 2147483647."),
        ("--batch -1", "--batch -1: must be a whole number from 0 to 4096."),
        ("--slots two", "--slots two: must be a whole number from 0 to 4096."),
        ("--max-lanes 257", "--max-lanes 257: must be a whole number from 0 to 256."),
        ("--spec 65", "--spec 65: must be a whole number from 0 to 64."),
        ("--lookup -1", "--lookup -1: must be a whole number from 0 to 64."),
        ("--suffix-draft x", "--suffix-draft x: must be a whole number from 0 to 2147483647."),
        ("--spec-min-p 1.5", "--spec-min-p 1.5: must be a number from 0 to 1."),
        ("--spec-min-p nan", "--spec-min-p nan: must be a number from 0 to 1."),
        ("--spec-min-p p", "--spec-min-p p: must be a number from 0 to 1."),
        ("--conversation-cache-spill-dir ''", "--conversation-cache-spill-dir needs a directory."),
        ("--threads", "--threads needs a value."),
        ("--threads --kv", "--threads needs a value."),
        ("--max-contxt 9", "--max-contxt is not an option of the engine; the nearest is --max-context."),
        ("--max-lane 9", "--max-lane is not an option of the engine; the nearest is --max-lanes."),
        ("--kv-resitent 9", "--kv-resitent is not an option of the engine; the nearest is --kv-resident."),
        ("file.gguf", None),
    ],
)  # fmt: skip
def test_mistakes_end_in_one_sentence(line: str, sentence: str | None) -> None:
    with pytest.raises(UsageError) as caught:
        parse(words(line))
    assert caught.value.exit_code == 2
    if sentence is None:
        assert str(caught.value).startswith("file.gguf is not an argument of the engine")
    else:
        assert str(caught.value) == sentence


def test_what_has_to_be_there() -> None:
    with pytest.raises(UsageError, match=r"(?s)--serve is missing.*usage: strata engine"):
        parse(["--native", "x"])
    with pytest.raises(UsageError, match="--native FILE is missing"):
        parse(["--serve"])


def test_every_option_has_one_meaning() -> None:
    assert not set(options.KNOWN) & set(options._SETTINGS)
    texts = [text for table in (option_tables.MOOT, option_tables.LESS, option_tables.REFUSED) for _, text in table]
    names = re.findall(r"--[a-z0-9-]+", " ".join(texts))
    assert len(names) == len(set(names)) == len(options.KNOWN)
    assert {name for name, _ in option_tables.NEUTRAL} <= set(options.KNOWN)
    for name in options._SETTINGS:
        assert re.search(rf"{name}[ ,]", options.USAGE), f"{name} is not in the usage"
    shown = set(re.findall(r"--[a-z0-9-]+", options.USAGE))
    assert shown == {"--serve", *options._SETTINGS}
    assert max(map(len, options.USAGE.splitlines())) <= 120
