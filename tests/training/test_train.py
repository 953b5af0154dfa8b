"""A toy model learns, resumes, and survives the way through a GGUF file's names."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("gguf")

from training import checkpoint, naming, train  # noqa: E402
from training.export import arrays  # noqa: E402
from training.model import DemoModel  # noqa: E402

TINY = [
    "vocab_size=64",
    "hidden_size=32",
    "num_hidden_layers=4",
    "num_attention_heads=4",
    "head_dim=16",
    "rotary_dim=8",
    "linear_head_dim=16",
    "linear_num_key_heads=2",
    "linear_num_value_heads=4",
    "num_experts=8",
    "num_experts_per_tok=2",
    "moe_intermediate_size=16",
    "hc_lowrank=8",
    "shared_expert_intermediate_size=32",
    "indexer_head_dim=8",
    "indexer_budget=16",
    "ple_embed_dim=64",
    "ngram_vocab_size_base=64",
    "eos_token_id=0",
    "pad_token_id=0",
]


def counting_rows(folder: Path) -> np.ndarray:
    """Training rows of a counting sequence with a random start: learnable, and not from single-token frequencies."""
    starts = np.random.default_rng(0).integers(1, 64, 64)
    rows = ((starts[:, None] + np.arange(65)) % 63 + 1).astype(np.uint16)
    np.save(folder / "rows.npy", rows)
    (folder / "held").mkdir()
    return rows


@pytest.mark.slow
def test_two_processes_take_the_steps_of_one(tmp_path: Path) -> None:
    counting_rows(tmp_path)
    common = ["-m", "training.train", "--data", str(tmp_path), "--rows", "8", "--micro", "4", "--steps", "3"]
    common += ["--index-queries", "8", "--minutes", "5", "--device", "cpu", "--set", *TINY]
    together = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    for name, command in (("one", [sys.executable]), ("two", together)):
        done = subprocess.run([*command, *common, "--out", str(tmp_path / name)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-2000:]
    one, two = (checkpoint.load_model(tmp_path / name) for name in ("one", "two"))
    torch.manual_seed(1)
    start = DemoModel(one.config)
    flat = [torch.cat([p.detach().flatten() for p in model.parameters()]) for model in (start, one, two)]
    assert (flat[2] - flat[1]).norm() < 0.05 * (flat[1] - flat[0]).norm()


def run(folder: Path, *options: str) -> None:
    options = ("--data", str(folder), "--out", str(folder / "run"), "--rows", "8", "--micro", "4", *options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["train", *options])
        train.main()


def test_learns_resumes_and_renames(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = counting_rows(tmp_path)
    np.save(tmp_path / "held/text.tokens.npy", rows[:2].ravel())
    common = ("--steps", "25", "--minutes", "0.6", "--matrix-lr", "0.02", "--other-lr", "0.01")
    run(tmp_path, *common, "--until", "0.5", "--set", *TINY)
    run(tmp_path, *common, "--resume")
    output = capsys.readouterr().out
    steps = [line for line in output.splitlines() if line.startswith("step ")]
    first, last = (float(line.split("loss ")[1].split()[0]) for line in (steps[0], steps[-1]))
    assert first > 3.5
    assert last < 1.5
    assert "50 steps" in output

    model = checkpoint.load_model(tmp_path / "run")
    weights = arrays(model)
    back = naming.from_gguf(model.config, naming.to_gguf(model.config, weights), weights)
    for name, array in weights.items():
        np.testing.assert_allclose(back[name], array, atol=1e-6, err_msg=name)
