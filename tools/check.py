"""Every check of the project, one after the other: lint, types, import contracts, tests. `make test` runs it.

`--long` adds the slow tests (whole fuzz, all oracles); `--no-tests` leaves the tests out.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent


def main() -> int:
    """Run the checks; the exit code of the first that fails, else 0."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--long", action="store_true", help="also the slow tests")
    parser.add_argument("--no-tests", action="store_true", help="lint, types and contracts only")
    options = parser.parse_args()
    checks = [
        ("lint", [BIN / "ruff", "check", "."]),
        ("types", [BIN / "mypy"]),
        ("import contracts", [BIN / "lint-imports"]),
    ]
    if not options.no_tests:
        selection = ["-m", "slow or not slow"] if options.long else []
        checks.append(("tests", [sys.executable, "-m", "pytest", "-q", *selection]))
    for name, command in checks:
        start = time.monotonic()
        print(f"== {name}", flush=True)
        code = subprocess.run([str(part) for part in command], cwd=ROOT, check=False).returncode
        if code:
            print(f"== {name} failed (exit {code})", flush=True)
            return code
        print(f"== {name} passed in {time.monotonic() - start:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
