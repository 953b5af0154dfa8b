"""`strata inspect`: what a model file holds, by part and by format, and what it lacks."""

import argparse
import dataclasses
import math
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from strata import families
from strata.cli.model import model_name, parameters
from strata.units import bytes_text, count_text
from strata.weights import Checkpoint, TensorInfo, open_checkpoint

SHOWN_FAULTS = 20


def run(options: argparse.Namespace) -> int:
    """Print the description; exit code 1 when the model cannot run here."""
    path = Path(options.file)
    console = Console(highlight=False, soft_wrap=True)
    with open_checkpoint(path) as checkpoint:
        description = families.describe(checkpoint)
        total = sum(info.nbytes for info in checkpoint.tensors.values())
        files = "1 file" if len(checkpoint.files) == 1 else f"{len(checkpoint.files)} files"
        console.print(
            f"{model_name(path)}: {description.family or 'unknown architecture'}, "
            f"{count_text(parameters(checkpoint))} parameters in {len(checkpoint.tensors)} tensors, "
            f"{bytes_text(total)}, {checkpoint.kind}, {files}", markup=False,
        )
        if description.spec is not None:
            console.print(_spec_line(description.spec), markup=False)
        console.print(_parts_table(checkpoint, description.parts))
        console.print(_formats_table(checkpoint.tensors.values()))
    faults = [f"missing: {name}" for name in description.missing] + description.problems
    for fault in faults[:SHOWN_FAULTS]:
        console.print(fault, markup=False)
    if len(faults) > SHOWN_FAULTS:
        console.print(f"and {len(faults) - SHOWN_FAULTS} more")
    console.print("This model cannot run here." if faults else "Nothing is missing: this model can run here.")
    return 1 if faults else 0


def _spec_line(spec: object) -> str:
    """The plain values of a family's spec, as its own field names."""
    if not dataclasses.is_dataclass(spec):
        return str(spec)
    values = {field.name: getattr(spec, field.name) for field in dataclasses.fields(spec)}
    return ", ".join(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in values.items()
        if isinstance(value, int | float | str)
    )


def _parts_table(checkpoint: Checkpoint, parts: dict[str, list[str]]) -> Table:
    table = Table("part", title="parts", title_justify="left")
    for heading in ("tensors", "parameters", "bytes", "share"):
        table.add_column(heading, justify="right")
    table.add_column("formats")
    total = sum(info.nbytes for info in checkpoint.tensors.values()) or 1
    for part, names in parts.items():
        known = [checkpoint.tensors[name] for name in names if name in checkpoint.tensors]
        if len(known) < len(names):
            # The tensors of a safetensors checkpoint are put together under other names than they are stored.
            table.add_row(part, str(len(names)), "", "", "", "")
            continue
        nbytes = sum(info.nbytes for info in known)
        values = sum(math.prod(info.shape) for info in known)
        formats = ", ".join(sorted({info.format for info in known}))
        share = f"{100 * nbytes / total:.1f} %"
        table.add_row(part, str(len(known)), count_text(values), bytes_text(nbytes), share, formats)
    return table


def _formats_table(tensors: Iterable[TensorInfo]) -> Table:
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for info in tensors:
        counts[info.format] += 1
        sizes[info.format] += info.nbytes
    table = Table("format", title="formats", title_justify="left")
    for heading in ("tensors", "bytes"):
        table.add_column(heading, justify="right")
    for name, nbytes in sizes.most_common():
        table.add_row(name, str(counts[name]), bytes_text(nbytes))
    return table
