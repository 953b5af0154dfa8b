"""Row invariance of the whole model on a quantized file: any two ways of running a conversation give the same bits."""

import numpy as np
import pytest
from oracles.oracle_gguf import Geometry, write

from strata import cpu, families, model
from strata.arithmetic import LaneState, MtpSegment, Reference, Segment, bind
from strata.errors import FamilyError, UsageError
from strata.weights import open_gguf

LENGTH = 93  # past the index budget of 32 tokens, with open blocks at the cuts
SIZES = Geometry(budget=32, experts=8, used=3, width=96, hidden=256)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("windows") / "mixed.gguf"
    write(path, "Q5_K", "IQ3_S", down="IQ4_NL", sizes=SIZES, seed=3)
    return path


@pytest.fixture(scope="module")
def engine(path):
    opened = families.open_family(open_gguf(path))
    return Reference(opened.spec, bind(opened.source, opened.spec), ops=cpu.ops())


def tokens_of(lane):
    rng = np.random.default_rng(lane)
    tokens = rng.integers(0, SIZES.vocab, LENGTH)
    tokens[rng.integers(0, LENGTH, 3)] = SIZES.eos
    return tokens


@pytest.fixture(scope="module")
def alone(engine):
    """Logits of three conversations, each read whole by itself."""
    return [engine.forward([Segment(LaneState.empty(engine.spec), tokens_of(lane), 0)]) for lane in range(3)]


def test_token_by_token_and_odd_chunks(engine, alone):
    for cuts in (range(1, LENGTH), [1, 4, 35, 36, 80], [31, 32, 33, 34]):
        state = LaneState.empty(engine.spec)
        parts = [engine.forward([Segment(state, part, 0)]) for part in np.split(tokens_of(0), cuts)]
        assert np.concatenate(parts).tobytes() == alone[0].tobytes()
        assert state.tokens == tokens_of(0).tolist()


def test_random_windows_of_several_lanes(engine, alone):
    rng = np.random.default_rng(0)
    states = [LaneState.empty(engine.spec) for _ in range(3)]
    got = [[] for _ in range(3)]
    while any(state.length < LENGTH for state in states):
        lanes = [lane for lane in rng.permutation(3) if states[lane].length < LENGTH and rng.random() < 0.8]
        segments = []
        for lane in lanes:
            start = states[lane].length
            part = tokens_of(lane)[start : start + int(rng.integers(1, 20))]
            segments.append(Segment(states[lane], part, int(rng.integers(0, len(part) + 1))))
        if not segments:
            continue
        firsts = [state.length for state in states]
        logits = engine.forward(segments)
        for lane, segment in zip(lanes, segments, strict=True):
            count = len(segment.tokens) - segment.logits_from
            got[lane].append((firsts[lane] + segment.logits_from, logits[:count]))
            logits = logits[count:]
        assert not len(logits)
    for lane in range(3):
        assert sum(len(rows) for _, rows in got[lane]) > LENGTH // 4
        for first, rows in got[lane]:
            assert rows.tobytes() == alone[lane][first : first + len(rows)].tobytes()


def test_a_copy_is_a_checkpoint(engine, alone):
    state = LaneState.empty(engine.spec)
    engine.forward([Segment(state, tokens_of(0)[:50], 50)])
    kept = state.copy()
    engine.forward([Segment(state, tokens_of(1)[:30], 30)])
    again = kept.copy()
    first = engine.forward([Segment(kept, tokens_of(0)[50:], 0)])
    second = engine.forward([Segment(again, tokens_of(0)[50:], 0)])
    assert first.tobytes() == second.tobytes() == alone[0][50:].tobytes()


def test_numpy_and_native_ops(engine, alone):
    plain = Reference(engine.spec, engine.weights)
    got = plain.forward([Segment(LaneState.empty(engine.spec), tokens_of(2), 0)])
    assert got.tobytes() == alone[2].tobytes()


def test_mtp_block_does_not_see_windows_either(engine):
    streams = engine.trunk([Segment(LaneState.empty(engine.spec), tokens_of(0), LENGTH)])
    following = tokens_of(0)[1:]
    whole_state = LaneState.empty(engine.spec)
    whole, out = engine.mtp([MtpSegment(whole_state.mtp, streams[:-1], following)])
    state, other = LaneState.empty(engine.spec), LaneState.empty(engine.spec)
    for start in range(0, LENGTH - 1, 7):
        part = slice(start, min(start + 7, LENGTH - 1))
        logits, drafted = engine.mtp(
            [
                MtpSegment(other.mtp, streams[5:8], following[5:8]),
                MtpSegment(state.mtp, streams[part], following[part]),
            ]
        )
        assert logits[3:].tobytes() == whole[part].tobytes()
        assert drafted[3:].tobytes() == out[part].tobytes()


@pytest.mark.parametrize("kv", ["f32", "f16"])
def test_other_cache_types_are_as_invariant(engine, kv):
    other = Reference(engine.spec, engine.weights, kv=kv, ops=cpu.ops())
    whole = other.forward([Segment(LaneState.empty(engine.spec), tokens_of(0), 0)])
    state = LaneState.empty(engine.spec)
    parts = [other.forward([Segment(state, part, 0)]) for part in np.split(tokens_of(0), [40, 41, 60])]
    assert np.concatenate(parts).tobytes() == whole.tobytes()


def test_load_gives_a_model_and_refuses_what_it_cannot(path, alone):
    loaded = model.load(path)
    assert (loaded.vocab_size, loaded.eos_ids) == (SIZES.vocab, (SIZES.eos,))
    got = loaded.forward([model.Segment(loaded.new_state(), tokens_of(1), 0)])
    assert got.tobytes() == alone[1].tobytes()
    limit = loaded.context_length
    with pytest.raises(UsageError, match=f"{limit + 1} tokens was asked for, but the model has 1 to {limit}"):
        model.load(path, context=limit + 1)
    with pytest.raises(UsageError, match="'int8' is not implemented; choose one of bf16, f16, f32"):
        model.load(path, kv="int8")


def test_a_tensor_of_the_wrong_shape_is_named(tmp_path):
    write(tmp_path / "a.gguf", "Q8_0", "Q8_0", sizes=SIZES)
    raw = (tmp_path / "a.gguf").read_bytes()
    key = b"qwen4exp.hyper_connection.low_rank"
    at = raw.index(key) + len(key) + 4
    changed = raw[:at] + (32).to_bytes(4, "little") + raw[at + 4 :]
    (tmp_path / "b.gguf").write_bytes(changed)
    with pytest.raises(FamilyError, match=r"b.gguf: tensor output_hc_down.weight has shape \[64, 1024\].*\[32, 1024\]"):
        families.open_family(open_gguf(tmp_path / "b.gguf"))
