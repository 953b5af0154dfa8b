"""What a command uses when nothing was said: the demo model of the package."""

from importlib import resources
from pathlib import Path

from strata.errors import UsageError


def demo_model() -> Path:
    """The demo model shipped in the package. Raises UsageError when this installation has none."""
    folder = Path(str(resources.files("strata").joinpath("data")))
    found = sorted(folder.glob("strata-demo*.gguf"))
    if not found:
        raise UsageError(f"This installation has no demo model ({folder}/strata-demo*.gguf); name one with --model.")
    return found[0]
