"""Random GGUF files in every format, read by us, by llama.cpp, and by a float32 model made of `transformers`' modules.

What is compared, and what happens where a router's choice is a near tie: `oracle_compare`.
"""

import numpy as np
import oracle_drafts
import oracle_gguf
import pytest
from oracle_compare import Ours, against_float, divergence, kl, llama, prompt, relative_rms
from oracle_float_model import FloatModel
from oracle_gguf import Geometry

pytestmark = pytest.mark.filterwarnings("ignore")  # the oracles' own

TOKENS = 48  # below the indexer's budget of 64
LIMIT = 3e-2  # relative RMS of a position's logits
TIE = 0.1  # standard deviations of a router's logits: the most by which a forced choice may have lost
QUICK = ("F16", "Q8_0", "Q4_K", "IQ2_XXS", "NVFP4")
SLOW = tuple(f for f in oracle_gguf.FORMATS if f not in QUICK)
# As published: experts narrower than a 256-wide block, another format for their down projection.
MIXES = (
    ("Q8_0", "IQ3_XXS", "IQ4_NL"),
    ("Q6_K", "IQ2_XS", "Q4_0"),
    ("Q5_K", "IQ4_XS", "Q8_0"),
    ("BF16", "IQ3_S", "MXFP4"),
)


def check(path, sizes):
    """Ours and llama.cpp's against the float32 model, and against each other."""
    tokens = prompt(TOKENS, sizes.vocab, sizes.eos)
    model, ours = FloatModel.load(path), Ours(path)
    mine, theirs = ours.read(tokens), llama(path, tokens, ours.spec)
    for error in (against_float(mine, model, tokens), against_float(theirs, model, tokens)):
        assert error.logits < LIMIT
        assert error.draft < LIMIT
        assert error.flip < TIE
    same = ours.read(tokens, theirs.routing)
    assert relative_rms(same.logits, theirs.logits).max() < 1.5 * LIMIT  # two independent errors
    assert relative_rms(same.draft, theirs.draft).max() < 1.5 * LIMIT
    want, _ = model.forward(tokens)  # whole distributions, every model with its own experts
    assert kl(want, mine.logits).mean() < 1e-3
    assert kl(want, theirs.logits).mean() < 1e-3


@pytest.mark.parametrize("form", QUICK + tuple(pytest.param(f, marks=pytest.mark.slow) for f in SLOW))
def test_every_format_stays_near_the_float32_model(form, tmp_path):
    path, sizes = tmp_path / "model.gguf", Geometry()
    oracle_gguf.write(path, form, form, sizes=sizes)
    check(path, sizes)


@pytest.mark.parametrize("mix", [MIXES[0], *(pytest.param(m, marks=pytest.mark.slow) for m in MIXES[1:])], ids="/".join)
def test_published_mixes_stay_near_the_float32_model(mix, tmp_path):
    path, sizes = tmp_path / "model.gguf", Geometry(width=160, shared_width=160, rank=96, value_heads=6)
    oracle_gguf.write(path, mix[0], mix[1], down=mix[2], sizes=sizes)
    check(path, sizes)


def test_float_files_agree_to_rounding_past_the_budget(tmp_path):
    """Nothing is quantized here, so all three differ by float32 rounding alone, the indexer's choices included."""
    path, sizes = tmp_path / "model.gguf", Geometry(index_heads=8)  # few heads have many blocks with a score of 0
    oracle_gguf.write(path, "F32", "F32", sizes=sizes)
    tokens = prompt(150, sizes.vocab, sizes.eos)
    model, ours = FloatModel.load(path), Ours(path, kv="f32")
    mine, theirs = ours.read(tokens), llama(path, tokens, ours.spec, cache="f32")
    want, streams = model.forward(tokens)
    draft = model.draft(streams[:-1], tokens[1:])
    for reading in (mine, theirs):
        assert relative_rms(reading.logits, want).max() < 1e-5
        assert relative_rms(reading.streams, streams.reshape(len(tokens), -1)).max() < 1e-5
        assert relative_rms(reading.draft, draft).max() < 1e-5
    for a, b in zip(mine.routing, theirs.routing, strict=True):
        assert np.array_equal(np.sort(a, 1), np.sort(b, 1))


def test_as_many_drafts_are_accepted_as_by_llama(tmp_path):
    """A head that favours a few tokens makes random weights accept some drafts; float32 keeps both texts equal."""
    path, sizes = tmp_path / "model.gguf", Geometry(index_heads=8, budget=256, favourites=3)
    oracle_gguf.write(path, "F32", "F32", sizes=sizes)
    start = [int(t) for t in prompt(24, sizes.vocab, sizes.eos)]
    theirs = oracle_drafts.llama(path, start, 60)
    same_rows = oracle_drafts.ours(Ours(path), start, 60, zero_row=True)
    assert (same_rows.drafted, same_rows.accepted) == (theirs.drafted, theirs.accepted)
    spoken = [[t for t in d.text if not 128 <= t < 256] for d in (same_rows, theirs)]
    assert spoken[0] == spoken[1]  # its reply leaves out bytes that are no whole character
    assert 0 < theirs.accepted < theirs.drafted
    assert abs(oracle_drafts.ours(Ours(path), start, 60).accepted - theirs.accepted) <= 3


@pytest.mark.slow
def test_the_measure_of_the_demo_model_works_on_random_weights(tmp_path):
    """Router flips decide here, so only the order of magnitude is asked; the demo model's test asks for the ratio."""
    path, sizes = tmp_path / "model.gguf", Geometry(budget=512)
    oracle_gguf.write(path, "Q8_0", "Q8_0", sizes=sizes)
    found = divergence(path, Ours(path), prompt(500, sizes.vocab, sizes.eos))
    assert found.positions == 500
    assert 0 < found.ours < 1e-3
    assert 0 < found.llama < 1e-3
