"""No library's order of addition in the rooms that must give equal bits: a check of the sources themselves."""

import ast
from pathlib import Path

import pytest

import strata

ROOMS = Path(strata.__file__).parent
ORDERED = {
    "sum",
    "nansum",
    "mean",
    "average",
    "dot",
    "vdot",
    "inner",
    "matmul",
    "einsum",
    "tensordot",
    "cumsum",
    "std",
    "var",
    "norm",
    "trace",
    "convolve",
    "exp",
    "log",
    "log1p",
    "power",
    "sin",
    "cos",
    "tanh",
    "fma",
}
OWN = {"functions", "exp", "log1p"}
MARK = "exact-integers"


def offences(source):
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.MatMult):
            name = "@"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ORDERED:
            name = node.func.attr
        else:
            continue
        if MARK not in lines[line - 1] and MARK not in lines[node.end_lineno - 1]:
            yield f"line {line}: {name}"


@pytest.mark.parametrize("room", ["arithmetic", "cpu"])
def test_no_library_sum_or_function(room):
    found = [
        f"{path.name} {offence}"
        for path in sorted((ROOMS / room).glob("*.py"))
        for offence in offences(path.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize("text", ["x.sum()", "np.exp(x)", "a @ b", "np.einsum('i,i', a, b)"])
def test_the_check_sees_an_offence(text):
    assert list(offences(text))
