"""What tells one file's weights from another's."""

import numpy as np
import pytest
from safetensors.numpy import save_file

from strata.weights import fingerprint, open_checkpoint


def tensors():
    rng = np.random.default_rng(0)
    sizes = {"a": (4, 8), "b": (300, 100), "c": (3,)}  # b is longer than the samples at both its ends
    return {name: rng.standard_normal(size).astype(np.float32) for name, size in sizes.items()}


@pytest.fixture
def named(tmp_path):
    def write(name, changed):
        save_file(changed, tmp_path / name)
        return fingerprint(open_checkpoint(tmp_path / name))

    return write


def test_a_copy_has_the_same_one(named):
    one = named("one.safetensors", tensors())
    assert named("two.safetensors", tensors()) == one
    assert len(bytes.fromhex(one)) == 16


@pytest.mark.parametrize("change", ["first", "last", "shape", "name", "type", "missing"])
def test_any_change_gives_another(named, change):
    changed = tensors()
    if change in ("first", "last"):
        changed["b"].reshape(-1)[0 if change == "first" else -1] += 1
    elif change == "shape":
        changed["a"] = changed["a"].reshape(8, 4)
    elif change == "name":
        changed["d"] = changed.pop("c")
    elif change == "type":
        changed["a"] = changed["a"].view(np.int32)
    else:
        del changed["c"]
    assert named("other.safetensors", changed) != named("one.safetensors", tensors())
