"""Options, a model's sizes and a number of bytes give pool, lanes and what is kept: never more than there is."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import strata
from strata.engine import sizing
from strata.engine.options import Options
from strata.engine.sizing import choose_memory, draft_notes, info, policy
from strata.errors import UsageError
from strata.families import Spec, open_family
from strata.families.qwen4_exp.spec import AttentionSpec, DeltaSpec, ExpertSpec, NgramSpec
from strata.weights import open_checkpoint

MIB, GIB = 1 << 20, 1 << 30
DEMO = Path(strata.__file__).parent / "data" / "strata-demo.gguf"
# The published geometry of Qwen3.8-Flash-Next; bytes below are worked out by hand from it.
FLASH = Spec(
    name="Flash-Next",
    vocab_size=248_320,
    context_length=262_144,
    hidden=2560,
    eps=1e-6,
    kinds=("delta", "delta", "delta", "sparse") * 12,
    ratios=(0, 0, 0, 4) * 12 + (4,),
    mtp_layers=1,
    streams=4,
    rank=320,
    attention=AttentionSpec(24, 2, 256, 64, 1e7, 4, 128, 2048),
    delta=DeltaSpec(16, 48, 128, 128, 4, "sigmoid"),
    experts=ExpertSpec(512, 10, 640, 640),
    ngram=NgramSpec(1, 3, 8, 160, 4, 248_044, (1, 3, 5), (0,) * 16, (7,) * 16, None),
)
FLASH_CHUNK, FLASH_STATE, FLASH_LANE = 7_028_736, 120_155_648, 142_208_512
PLAIN = Options(native="model.gguf")


@pytest.fixture(scope="module")
def demo() -> Spec:
    return open_family(open_checkpoint(DEMO)).spec


@pytest.mark.parametrize(
    ("available", "context", "pool", "lanes", "kept"),
    [
        (8 * GIB, 140_544, 140_544, 13, 16),
        (24 * GIB, 262_144, 422_144, 40, 48),
        (64 * GIB, 262_144, 1_172_992, 113, 134),
        (2**62, 262_144, 32 * 262_144, 256, 224),
    ],
)
def test_the_real_model(available: int, context: int, pool: int, lanes: int, kept: int) -> None:
    found = choose_memory(PLAIN, FLASH, 262_144, available)
    assert (found.sizes.chunk, found.sizes.state, found.lane_bytes) == (FLASH_CHUNK, FLASH_STATE, FLASH_LANE)
    assert (found.context, found.pool_tokens, found.max_lanes) == (context, pool, lanes)
    assert found.limits.state_bytes // FLASH_STATE == kept
    assert found.limits.pool_tokens == pool
    assert found.state_bytes == lanes * FLASH_LANE + found.limits.state_bytes
    told = [f"a conversation may have {context} of the model's 262144 positions: its share of the memory holds no more"]
    assert [note.split(";")[0] for note in found.notes] == (told if context < 262_144 else [])
    assert f"keys and values ({pool} tokens)" in found.summary
    assert f"(at most {lanes} at a time)" in found.summary


@pytest.mark.parametrize(
    ("available", "context", "pool", "lanes", "kept"),
    [(2 * GIB, 4096, 131_072, 206, 224), (64 * MIB, 4096, 10_496, 2, 2), (16 * MIB, 1024, 1024, 1, 1)],
)
def test_the_demo(demo: Spec, available: int, context: int, pool: int, lanes: int, kept: int) -> None:
    found = choose_memory(PLAIN, demo, 4096, available)
    assert (found.context, found.pool_tokens, found.max_lanes) == (context, pool, lanes)
    assert found.limits.state_bytes // found.sizes.state == kept


def test_who_needs_little_leaves_the_rest_to_the_other() -> None:
    """[A pool that was asked for, or few lanes and no checkpoints, are subtracted and not half of all.]"""
    half = choose_memory(PLAIN, FLASH, 262_144, 24 * GIB)
    small = choose_memory(replace(PLAIN, pool_tokens=65_536), FLASH, 262_144, 24 * GIB)
    assert (small.pool_tokens, small.context) == (65_536, 65_536)
    assert small.state_bytes > half.state_bytes + half.pool_bytes - small.pool_bytes - FLASH_LANE - FLASH_CHUNK
    assert small.notes == (
        "a conversation may have 65536 of the model's 262144 positions: --kv-pool-tokens 65536 hold no more",
    )
    few = choose_memory(replace(PLAIN, max_lanes=2, prompt_cache=0), FLASH, 262_144, 24 * GIB)
    assert few.max_lanes == 2
    assert few.limits.state_bytes == 32 * FLASH_STATE, "no more than the ends of the conversations"
    assert few.pool_tokens // 256 == (23_192_823_399 - 2 * FLASH_LANE - 32 * FLASH_STATE) // FLASH_CHUNK
    assert replace(few, limits=half.limits).context == 262_144


def test_a_context_that_was_asked_for_takes_more_than_half() -> None:
    found = choose_memory(replace(PLAIN, max_context=262_144), FLASH, 262_144, 8 * GIB)
    assert (found.context, found.pool_tokens, found.max_lanes, found.notes) == (262_144, 262_144, 1, ())
    assert found.limits.state_bytes // FLASH_STATE == 2


def test_parked_conversations_share_too() -> None:
    found = choose_memory(replace(PLAIN, cache_mib=4096, cache_slots=2, disk_mib=7), FLASH, 262_144, 24 * GIB)
    parking = found.limits.parking
    assert (parking.ram_bytes, parking.slots, parking.min_free_bytes) == (4 * GIB, 2, 2560 * MIB)
    assert (parking.directory, parking.disk_bytes) == (None, 7 * MIB)
    assert found.pool_tokens // 256 == (23_192_823_399 - 4 * GIB) // 2 // FLASH_CHUNK
    less = choose_memory(replace(PLAIN, cache_mib=8192), FLASH, 262_144, 8 * GIB)
    assert less.limits.parking.ram_bytes == 7_730_941_133 // 2
    assert "--conversation-cache-mib 8192: there is room for 3686" in less.notes
    files = choose_memory(replace(PLAIN, spill_dir=Path("d")), FLASH, 262_144, 8 * GIB).limits.parking
    assert (files.on, files.ram_bytes, files.directory) == (True, 0, Path("d"))


def test_idle_conversations_are_as_many_as_were_asked_for() -> None:
    for change, wanted in (({}, 32), ({"batch": 8}, 32), ({"batch": 64}, 65), ({"max_lanes": 100}, 100)):
        assert choose_memory(replace(PLAIN, **change), FLASH, 262_144, 64 * GIB).limits.conversations == wanted
    limits = choose_memory(replace(PLAIN, prompt_cache=3), FLASH, 262_144, 64 * GIB).limits
    assert limits.checkpoints == 3


def test_fewer_lanes_than_asked_for_are_said() -> None:
    assert choose_memory(replace(PLAIN, max_lanes=14), FLASH, 262_144, 8 * GIB).notes[-1] == (
        "--max-lanes 14: there is room for 13 at a time, other requests wait"
    )
    assert choose_memory(replace(PLAIN, batch=32), FLASH, 262_144, 8 * GIB).notes[-1] == (
        "--batch 32: 13 run at a time, other requests wait"
    )
    assert choose_memory(replace(PLAIN, batch=13), FLASH, 262_144, 24 * GIB).notes == ()


def test_lanes_without_drafts_are_smaller() -> None:
    plain = choose_memory(replace(PLAIN, spec=0, lookup=0), FLASH, 262_144, 8 * GIB)
    assert plain.lane_bytes == FLASH_STATE
    assert choose_memory(replace(PLAIN, lookup=0), FLASH, 262_144, 8 * GIB).lane_bytes == FLASH_STATE + 4 * 2_756_608


@pytest.mark.parametrize(
    ("change", "available", "sentence"),
    [
        ({"max_context": 262_145}, 64 * GIB, "--max-context 262145: the model has 262144 positions; ask for less."),
        ({}, 300 * MIB, "Of 300.0 MiB of available memory 150.0 MiB stay free and 250.2 MiB hold the state of one "
         "request and a kept one: nothing is left for keys and values. At least 513.8 MiB have to be available."),
        ({"max_context": 262_144}, 6 * GIB, "Of 6.0 GiB of available memory 614.4 MiB stay free and 250.2 MiB hold the "
         "state of one request and a kept one: what is left holds the keys and values of 201472 tokens, less than one "
         "context of 262144; use --max-context 201472 or less."),
        ({"pool_tokens": 524_288}, 8 * GIB, "Of 8.0 GiB of available memory 819.2 MiB stay free and 250.2 MiB hold the "
         "state of one request and a kept one: --kv-pool-tokens 524288 takes 13.4 GiB, more than is left; ask for "
         "271872 or less."),
        ({"pool_tokens": 4000, "max_context": 4096}, 8 * GIB, "--kv-pool-tokens 4000 is less than one context of 4096 "
         "tokens; ask for at least 4096, or for less with --max-context."),
    ],
)  # fmt: skip
def test_what_does_not_fit_ends_in_one_sentence(change: dict[str, int], available: int, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        choose_memory(replace(PLAIN, **change), FLASH, 262_144, available)
    assert str(caught.value) == sentence


def test_a_pool_in_part_of_a_chunk_holds_what_was_asked_for() -> None:
    found = choose_memory(replace(PLAIN, pool_tokens=5000, max_context=5000), FLASH, 262_144, 8 * GIB)
    assert (found.pool_tokens, found.context) == (5120, 5000)


OPTIONS = st.builds(
    Options,
    native=st.just("m"),
    max_context=st.none() | st.integers(16, 262_144),
    kv=st.sampled_from(["bf16", "f32"]),
    prompt_cache=st.integers(0, 20),
    batch=st.sampled_from([0, 1, 4, 4096]),
    max_lanes=st.integers(0, 256),
    spec=st.none() | st.integers(0, 64),
    lookup=st.none() | st.integers(0, 64),
    pool_tokens=st.just(0) | st.integers(1, 2**21),
    cache_mib=st.just(0) | st.integers(0, 2**17),
)
BYTES = st.integers(0, 40).flatmap(lambda bits: st.integers(2**bits - 1, 2 ** (bits + 1) - 2)) | st.just(2**62)


def chosen(options: Options, available: int) -> sizing.Sizing | None:
    """None where it is refused, with the numbers."""
    try:
        return choose_memory(options, FLASH, 262_144, available)
    except UsageError as error:
        text = str(error)
    assert re.fullmatch(r".*\d.*\.", text)
    return None


@settings(max_examples=400, deadline=None)
@given(OPTIONS, BYTES)
@example(PLAIN, 8 * GIB)
@example(replace(PLAIN, cache_mib=2**17), 1 * GIB)
@example(replace(PLAIN, pool_tokens=1), 8 * GIB)
def test_never_more_than_there_is(options: Options, available: int) -> None:
    found = chosen(options, available)
    if found is None:
        return
    sizes, limits = found.sizes, found.limits
    assert found.pool_tokens % 256 == 0
    full = found.pool_tokens // 256 * sizes.chunk + found.max_lanes * found.lane_bytes
    full += limits.state_bytes + limits.parking.ram_bytes
    assert full == found.total_bytes
    assert full + min(512 * MIB, available // 2) <= available
    assert found.context == options.max_context if options.max_context else 256 <= found.context <= 262_144
    assert found.context <= found.pool_tokens
    assert found.pool_tokens >= options.pool_tokens
    assert 1 <= found.max_lanes <= (options.max_lanes or 256)
    assert found.max_lanes <= found.pool_tokens // 256, "every lane needs a chunk"
    assert limits.state_bytes >= sizes.state, "the next turn finds its conversation"
    assert limits.parking.ram_bytes <= options.cache_mib * MIB
    assert limits.conversations > options.batch


@settings(max_examples=400, deadline=None)
@given(OPTIONS, BYTES, BYTES)
@example(PLAIN, 8 * GIB, 8 * GIB + FLASH_CHUNK)
def test_more_memory_never_gives_less(options: Options, one: int, other: int) -> None:
    less, more = (chosen(options, available) for available in sorted((one, other)))
    if less is None:
        return
    assert more is not None
    for name in ("context", "pool_tokens", "max_lanes", "state_bytes"):
        assert getattr(less, name) <= getattr(more, name), name
    assert less.limits.state_bytes <= more.limits.state_bytes
    assert less.limits.parking.ram_bytes <= more.limits.parking.ram_bytes


@settings(max_examples=200, deadline=None)
@given(OPTIONS, st.integers(0, 64 * GIB))
def test_the_number_that_an_error_names_is_accepted(options: Options, available: int) -> None:
    try:
        choose_memory(options, FLASH, 262_144, available)
    except UsageError as error:
        text = str(error)
        if found := re.search(r"use --max-context (\d+) or less", text):
            options = replace(options, max_context=int(found[1]))
        elif found := re.search(r"ask for (\d+) or less", text):
            options = replace(options, pool_tokens=int(found[1]), max_context=None)
        elif found := re.search(r"ask for at least (\d+)", text):
            options = replace(options, max_context=None)
        elif found := re.search(r"At least ([\d.]+) (MiB|GiB)", text):
            options = replace(options, max_context=None, pool_tokens=0)
            available = int((float(found[1]) + 0.1) * {"MiB": MIB, "GiB": GIB}[found[2]])
        assert found, text
    assert choose_memory(options, FLASH, 262_144, available).max_lanes >= 1


def test_bounds_of_windows() -> None:
    found = policy(PLAIN, True, 0.25)
    assert (found.decode_share, found.mtp_depth, found.lookup_depth, found.least_chance) == (0.25, 4, 8, 0.0)
    assert (found.chunk, found.largest_chunk, found.most_rows) == (None, 8192, 8192)
    assert policy(PLAIN, False, 0.5).mtp_depth == 0
    assert policy(replace(PLAIN, spec=7, mtp=False), True, 0.5).mtp_depth == 0
    asked = policy(replace(PLAIN, spec=7, lookup=0, spec_min_p=0.5, chunk=20_000), True, 0.5)
    assert (asked.mtp_depth, asked.lookup_depth, asked.least_chance) == (7, 0, 0.5)
    assert (asked.chunk, asked.most_rows) == (20_000, 20_000)
    assert policy(replace(PLAIN, largest_chunk=16_384), True, 0.5).most_rows == 16_384
    assert policy(replace(PLAIN, largest_chunk=512), True, 0.5).most_rows == 8192


def test_drafts_that_cannot_be_are_said() -> None:
    asked = replace(PLAIN, spec=4)
    assert draft_notes(PLAIN, False) == draft_notes(asked, True) == draft_notes(replace(PLAIN, spec=0), False) == ()
    assert draft_notes(asked, False) == ("without effect: --spec 4 (the model has no MTP block)",)
    assert draft_notes(replace(asked, mtp=False), True) == ("without effect: --spec 4 (--mtp off)",)


def documented_keys() -> list[str]:
    text = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text(encoding="utf-8")
    start = text[text.index("Keys of INFO:") : text.index("Values are whole numbers")]
    return re.findall(r"[a-z_]{2,}", " ".join(re.findall(r"`([^`]*)`", start)).replace("--batch", ""))


def test_info_has_the_documented_keys_in_order_and_true_values() -> None:
    options = replace(PLAIN, batch=4, spec=2, cache_mib=1024, max_context=4096)
    found = choose_memory(options, FLASH, 262_144, 24 * GIB)
    values = info(options, found, policy(options, True, 0.5), threads=7)
    keys = [key for key in documented_keys() if key != "version"]
    assert list(values) == keys
    assert values["context"] == 4096
    assert values["pool_tokens"] == found.pool_tokens
    assert (values["spec"], values["mtp_max"], values["lookup"], values["pool_workers"]) == (2, 2, 8, 7)
    assert (values["conversation_cache_mib"], values["conversation_cache_slots"]) == (1024, 4)
    assert (values["batch_slots"], values["slot_cache"], values["lanes"]) == (4, 1, 1)
    assert values["engine"] == strata.__version__
    plain = info(PLAIN, found, policy(PLAIN, True, 0.5), threads=1)
    assert set(values) - set(plain) == {"batch_slots", "slot_cache"}
    assert info(replace(options, prompt_cache=0), found, policy(options, True, 0.5), 1)["slot_cache"] == 0
    nothing = info(PLAIN, choose_memory(PLAIN, FLASH, 262_144, 24 * GIB), policy(PLAIN, False, 0.5), 1)
    assert (nothing["spec"], nothing["conversation_cache_mib"], nothing["conversation_cache_slots"]) == (0, 0, 0)
