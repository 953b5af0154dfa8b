"""The maker of large random files: what it writes loads, here and by `gguf`, and the streamed matrices are whole."""

import gguf
import numpy as np
import pytest

from benchmarks import random_gguf
from benchmarks.cpu_vs_llamacpp.traffic import Traffic
from strata.model import Segment, load


def test_a_tiny_file_loads_and_computes(tmp_path):
    path = tmp_path / "tiny.gguf"
    random_gguf.write(path, "Q8_0", "IQ3_XXS", down="IQ4_NL", sizes=random_gguf.TINY)
    model = load(path, threads=1)
    logits = model.forward([Segment(model.new_state(), [1, 2, 3], 0)])
    assert logits.shape == (3, random_gguf.TINY.vocab)
    assert np.isfinite(logits).all()
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize("form", ["Q4_K", "IQ2_XS", "MXFP4"])
def test_streamed_matrices_have_the_scale_of_small_ones(form, tmp_path, monkeypatch):
    monkeypatch.setattr(random_gguf, "CHUNK", 1000)  # so that small matrices are streamed, the last piece a part
    monkeypatch.setattr(random_gguf, "POOL", 8000)
    random_gguf.write(tmp_path / "m.gguf", "Q8_0", form, sizes=random_gguf.TINY)
    tensors = {t.name: t for t in gguf.GGUFReader(tmp_path / "m.gguf").tensors}
    tensor = tensors["blk.0.ffn_up_exps.weight"]
    assert tensor.tensor_type.name == form
    values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    assert values.size == random_gguf.TINY.experts * random_gguf.TINY.width * random_gguf.TINY.hidden
    assert values.std() == pytest.approx(random_gguf.TINY.hidden**-0.5, rel=0.25)  # MXFP4 scales are powers of two


def test_traffic_counts_the_weights_of_a_step(tmp_path):
    path, sizes = tmp_path / "tiny.gguf", random_gguf.TINY
    random_gguf.write(path, "Q8_0", "Q8_0", sizes=sizes)
    traffic = Traffic.of(path)
    expert = 3 * sizes.hidden * sizes.width
    assert traffic.expert_weights == expert
    assert traffic.expert_bytes == expert * 34 / 32
    assert traffic.head_weights == sizes.vocab * sizes.hidden
    one, two = traffic.step_bytes(1), traffic.step_bytes(2)
    assert two - one == sizes.layers * expert * 34 / 32
    rows = traffic.step_macs(5, 2) - traffic.step_macs(4, 2)
    assert rows == traffic.dense_weights + sizes.layers * sizes.used * expert
