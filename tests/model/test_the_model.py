"""What a loaded model says of itself, and its draws, on both paths."""

import numpy as np
import pytest
from model.native_models import SIZES
from oracles.oracle_gguf import write

from strata import arithmetic, model
from strata.arithmetic.sampling import Sampling
from strata.cpu import _native
from strata.errors import RequestError
from strata.weights import fingerprint, open_gguf


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("loaded") / "toy.gguf"
    write(path, "Q8_0", "Q4_K", sizes=SIZES, seed=4)
    return path


@pytest.fixture(params=["native", "reference"])
def loaded(request, path, monkeypatch):
    monkeypatch.setenv("STRATA_OPS", request.param)
    return model.load(path, kv="f16", threads=1)


def test_what_computes_and_what_is_computed(path, loaded, request):
    wanted = {"native": f"native {_native.selected_isa()}", "reference": "reference"}
    assert loaded.computed_by == wanted[request.node.callspec.params["loaded"]]
    assert loaded.kv == "f16"
    assert loaded.fingerprint == fingerprint(open_gguf(path))


@pytest.mark.parametrize("rule", [Sampling(), Sampling(0.8, top_p=0.9, top_k=20, seed=7), Sampling(1.0, min_p=0.05)])
def test_draws_are_those_of_the_arithmetic(loaded, rule):
    rows = np.random.default_rng(0).standard_normal((20, loaded.vocab_size)).astype(np.float32) * 4
    for position, row in enumerate(rows):
        want = arithmetic.sample(row, rule, choice=position % 2, position=position)
        assert loaded.sample(row, rule, choice=position % 2, position=position) == want


def test_a_nan_logit_ends_the_request(loaded):
    row = np.zeros(loaded.vocab_size, np.float32)
    row[3] = np.nan
    with pytest.raises(RequestError, match="NaN logit at position 9"):
        loaded.sample(row, Sampling(), choice=0, position=9)
