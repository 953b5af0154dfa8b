"""Prints how far ours and llama.cpp's logits of random GGUF files lie from the float32 model's, a line a format.

`oracles.py [FORMAT ...]`: largest relative RMS of a position with the same experts (trunk, MTP block), how near a tie
the experts that differ were, ours against llama.cpp, and the mean KL (nats) where each model chooses its own experts.
`--demo FILE`: the mean KL over 500 positions of held-out text and the accepted drafts of one model file.
"""

import argparse
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np

ORACLES = Path(__file__).resolve().parent.parent / "tests" / "oracles"
sys.path.insert(0, str(ORACLES))

import oracle_compare as compare  # noqa: E402
import oracle_drafts  # noqa: E402
import oracle_gguf  # noqa: E402
from oracle_float_model import FloatModel  # noqa: E402
from oracle_llamacpp import LlamaModel  # noqa: E402


def line(form: str, path: Path) -> str:
    """The figures of one format."""
    sizes = oracle_gguf.Geometry()
    oracle_gguf.write(path, form, form, sizes=sizes)
    tokens = compare.prompt(48, sizes.vocab, sizes.eos)
    model, ours = FloatModel.load(path), compare.Ours(path)
    mine, theirs = ours.read(tokens), compare.llama(path, tokens, ours.spec)
    want, _ = model.forward(tokens)
    same = ours.read(tokens, theirs.routing)
    pair = [compare.relative_rms(a, b).max() for a, b in ((same.logits, theirs.logits), (same.draft, theirs.draft))]
    parts = [f"{form:8}"]
    for name, reading in (("ours", mine), ("llama.cpp", theirs)):
        error, divergence = compare.against_float(reading, model, tokens), compare.kl(want, reading.logits).mean()
        parts.append(f"{name} {error.logits:.1e} {error.draft:.1e} tie {error.flip:.3f} KL {divergence:.1e}")
    return " | ".join([*parts, f"ours against llama.cpp {pair[0]:.1e} {pair[1]:.1e}"])


def demo(path: Path) -> None:
    """The figures of a model file on the held-out text."""
    with LlamaModel(path) as model:
        tokens = model.tokenize((ORACLES / "heldout.txt").read_text(encoding="utf-8"))
    ours = compare.Ours(path)
    found = compare.divergence(path, ours, np.array(tokens[:500]))
    ratio = found.ours / found.llama
    print(f"mean KL of {found.positions}: ours {found.ours:.3e}, llama.cpp {found.llama:.3e}, ratio {ratio:.2f}")
    if ours.spec.mtp_layers:
        theirs = oracle_drafts.llama(path, tokens[:64], 160)
        for name, drafts in (
            ("llama.cpp", theirs),
            (
                "ours on its text, with its extra row",
                oracle_drafts.ours(ours, tokens[:64], 160, zero_row=True, text=theirs.text),
            ),
            ("ours on its text", oracle_drafts.ours(ours, tokens[:64], 160, text=theirs.text)),
        ):
            print(f"drafts accepted: {drafts.accepted} of {drafts.drafted} ({name})")


def main() -> None:
    """Run what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("formats", nargs="*", default=oracle_gguf.FORMATS)
    parser.add_argument("--demo", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.demo:
        demo(options.demo)
        return
    with tempfile.TemporaryDirectory() as folder:
        for form in options.formats:
            print(line(form, Path(folder) / f"{form}.gguf"), flush=True)


if __name__ == "__main__":
    main()
