"""Objects of one instruction set export nothing that the linker could take for another's."""

import re
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

BUILD = Path(__file__).parents[2] / "build"


def objects_by_isa():
    """Every kernel object of the newest build tree that has them: {isa: [path, ...]}."""
    trees = defaultdict(lambda: defaultdict(list))
    for path in BUILD.rglob("*.o"):
        for part in path.parts:
            match = re.fullmatch(r"strata_kernels_(\w+)\.dir", part)
            tree = path.relative_to(BUILD).parts[0]
            if match and tree != "sanitize":  # instrumented objects refer to a run-time library of their own
                trees[tree][match[1]].append(path)
    newest = max(trees, key=lambda name: (BUILD / name).stat().st_mtime, default=None)
    return trees[newest] if newest else {}


def exported(path):
    """Symbols that an object defines for others, as (kind, demangled name)."""
    run = subprocess.run(["nm", "-g", "-C", "--defined-only", path], capture_output=True, text=True, check=True)
    return [tuple(line.split(" ", 2)[1:]) for line in run.stdout.splitlines() if line]


@pytest.mark.skipif(shutil.which("nm") is None, reason="nm is not installed")
def test_kernel_objects_export_only_functions_of_their_own_namespace():
    """A weak or inline symbol compiled for AVX-512 could be the one that the linker keeps for every machine."""
    isas = objects_by_isa()
    if not isas:
        pytest.skip(f"no kernel objects under {BUILD}: the extension was built elsewhere")
    assert "portable" in isas
    for isa, paths in isas.items():
        for path in paths:
            for kind, name in exported(path):
                assert kind == "T", f"{path.name} of {isa} exports {name} as {kind}"
                fill = rf"strata::{isa}::fill\w*\(strata::Kernels&\)"
                assert re.fullmatch(fill, name), f"{path.name} of {isa}: {name}"
