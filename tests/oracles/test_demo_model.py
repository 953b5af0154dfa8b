"""The embedded demo model on held-out text: how far int8 activations move its distributions, and its drafts."""

from pathlib import Path

import numpy as np
import oracle_drafts
import pytest
from oracle_compare import Ours, divergence
from oracle_llamacpp import LlamaModel

import strata
from strata.text import Tokenizer

pytestmark = pytest.mark.filterwarnings("ignore")  # the oracles' own

DATA = Path(strata.__file__).parent / "data"
HELD_OUT = Path(__file__).with_name("heldout.txt")
POSITIONS = 500


@pytest.fixture(scope="module")
def demo():
    found = sorted(DATA.glob("strata-demo*.gguf"))
    if not found:
        pytest.skip(f"no demo model (strata-demo*.gguf) in {DATA}")
    return found[0]


@pytest.fixture(scope="module")
def tokens(demo):
    """The held-out text, tokenized by our tokenizer as by llama.cpp's."""
    text = HELD_OUT.read_text(encoding="utf-8")
    mine = Tokenizer.from_metadata(Ours(demo).metadata).encode(text, parse_special=True)
    with LlamaModel(demo) as model:
        assert mine == model.tokenize(text)
    assert len(mine) >= POSITIONS, f"the held-out text has {len(mine)} tokens, {POSITIONS} are needed"
    return np.array(mine)


def test_distributions_are_as_near_the_float32_model_as_those_of_llama(demo, tokens):
    found = divergence(demo, Ours(demo), tokens[:POSITIONS])
    assert found.positions == POSITIONS
    assert found.ours <= 1.1 * found.llama, f"mean KL: ours {found.ours:.3e}, llama.cpp {found.llama:.3e}"


def test_drafts_are_accepted_as_often_as_by_llama(demo, tokens):
    ours = Ours(demo)
    if not ours.spec.mtp_layers:
        pytest.skip(f"{demo.name} has no MTP block")
    start = [int(t) for t in tokens[:64]]
    theirs = oracle_drafts.llama(demo, start, 160)
    mine = oracle_drafts.ours(ours, start, 160, text=theirs.text)
    rates = [d.accepted / d.drafted for d in (mine, theirs)]
    assert abs(rates[0] - rates[1]) < 0.1, f"accepted: ours {mine.accepted}/{mine.drafted}, llama.cpp {rates[1]:.2f}"
