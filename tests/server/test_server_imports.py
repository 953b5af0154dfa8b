"""The rooms of server and text need no torch and no numpy: each module imports in an interpreter that forbids them."""

import pkgutil
import subprocess
import sys

import pytest

import strata.server
import strata.text

BLOCKER = """
import importlib, sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "numpy", "transformers"}:
            raise ImportError(f"{name} may not be imported here")
        return None

sys.meta_path.insert(0, Blocker())
for name in sys.argv[1:]:
    importlib.import_module(name)
assert not {"torch", "numpy"} & set(sys.modules)
"""


@pytest.mark.parametrize("room", [strata.server, strata.text])
def test_free_of_torch_and_numpy(room: object) -> None:
    name = room.__name__  # type: ignore[attr-defined]
    modules = [name, *(f"{name}.{module.name}" for module in pkgutil.iter_modules(room.__path__))]  # type: ignore[attr-defined]
    assert len(modules) > 5
    done = subprocess.run([sys.executable, "-c", BLOCKER, *modules], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_the_blocker_blocks() -> None:
    done = subprocess.run([sys.executable, "-c", BLOCKER, "numpy"], capture_output=True, text=True, timeout=60)
    assert "may not be imported here" in done.stderr
