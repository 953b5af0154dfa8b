"""What a command uses when nothing was said: the demo model of the package."""

from pathlib import Path

import strata
from strata.errors import UsageError


def demo_model() -> Path:
    """The demo model shipped in the package. Raises UsageError when this installation has none."""
    # Not importlib.resources: of an editable installation that names the folder of the compiled files.
    folder = Path(strata.__file__).parent / "data"
    found = sorted(folder.glob("strata-demo*.gguf"))
    if not found:
        raise UsageError(f"This installation has no demo model ({folder}/strata-demo*.gguf); name one with --model.")
    return found[0]
