"""The command line: what setup of the seeds writes is accepted and answered for, mistakes end in one sentence."""

import re
import shlex

import pytest

from strata.engine import options
from strata.engine.options import Options, parse
from strata.errors import UsageError

START = ["--serve", "--native", "model.gguf"]


def words(text: str) -> list[str]:
    return [*START, *shlex.split(text)]


def test_defaults_leave_the_choice_to_the_model() -> None:
    assert parse(START) == Options(native="model.gguf")


def test_settings() -> None:
    line = "--max-context 4096 --kv=fp16 --eos-ids 1,2 --turn-token 5 --prefill 9 --prompt-cache 0 --threads 3 --log x"
    found = parse(words(line))
    assert found == Options("model.gguf", 4096, "f16", (1, 2), 5, 9, 8192, 0, 3, "x")
    assert parse(words("--eos-ids -1")).eos_ids == ()
    last = parse(words("--prefill 7 --prefill auto:16384"))
    assert (last.chunk, last.largest_chunk) == (None, 16384)


@pytest.mark.parametrize(
    "line",
    [
        # What setup writes, and what the seeds' test scripts add.
        "--pack P --ple-gguf F --expert-profile data/expert-profile.bin --expert-cache auto --prefill auto --spec 4 "
        "--spec-min-p 0.5 --mtp R --max-context 8192 --resident-budget-gib 40 --kv-resident 32768 --vram-reserve-mib 7",
        "--conversation-cache-mib 8192 --conversation-cache-slots 4 --pcie-frac 0",
        "--batch-mtp --max-context 512 --kv-resident 0 --eos-ids -1 --pcie-frac 0 --adapt-every 1000000 "
        "--no-prefill-borrow",
        "--layer-split 24,36 --split-skip-if-fits --vram-elastic --vram-segment-mib 512 --batch 4 --tail-role-token 9",
    ],
)
def test_lines_of_the_seeds_start_and_every_option_without_effect_is_named(line: str) -> None:
    notes = " ".join(parse(words(line)).notes)
    for name in re.findall(r"--[a-z-]+", line):
        settled = name in options._SETTINGS or (name, "0") in options._NEUTRAL and f"{name} 0" in line
        assert settled or len(re.findall(rf"{name}(?![a-z-])", notes)) == 1, f"{name} was passed over in silence"


def test_values_that_ask_for_nothing_need_no_word() -> None:
    line = "--spec 0 --batch 1 --kv-pool-tokens 0 --rope-scaling none --conversation-cache-mib 0"
    assert parse(words(line)).notes == ()


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
        ("--threads", "--threads needs a value."),
        ("--threads --kv", "--threads needs a value."),
        ("--max-contxt 9", "--max-contxt is not an option of the engine; the nearest is --max-context."),
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
    texts = [text for table in (options._MOOT, options._LESS, options._REFUSED) for _, text in table]
    names = re.findall(r"--[a-z0-9-]+", " ".join(texts))
    assert len(names) == len(set(names)) == len(options.KNOWN)
    assert {name for name, _ in options._NEUTRAL} <= set(options.KNOWN)
    for name in options._SETTINGS:
        assert name in options.USAGE
