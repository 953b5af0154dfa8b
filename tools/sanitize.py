"""The native tests under address and undefined-behaviour sanitizers, every instruction set. `make sanitize` runs it.

Builds into build/sanitize, AMX emulated where the machine has none, puts the package beside that extension and runs
the selected tests there. Exit code 0: no finding and no failed test.
"""

import argparse
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import nanobind

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "sanitize"
SITE = BUILD / "site"
TESTS = ["tests/cpu", "tests/model/test_native_windows.py", "tests/model/test_native_drafts.py"]
# An editable install's finder stands before sys.path: without it the sanitized copy is the only `strata`.
RUN = """
import sys
sys.meta_path = [f for f in sys.meta_path if "Redirecting" not in type(f).__name__]
import pytest
from strata.cpu import _native
assert _native.__file__.startswith({site!r}), _native.__file__
sys.exit(pytest.main(sys.argv[1:]))
"""


def has_amx() -> bool:
    """Whether this processor has AMX int8 (Linux)."""
    info = Path("/proc/cpuinfo")
    return info.exists() and " amx_int8" in info.read_text()


def build(jobs: int) -> None:
    """Configure and build the sanitized extension, and lay the package around it."""
    options = {
        "CMAKE_BUILD_TYPE": "Debug",
        "STRATA_SANITIZE": "ON",
        "STRATA_EMULATE_AMX": "OFF" if has_amx() else "ON",
        "Python_EXECUTABLE": sys.executable,
        "nanobind_DIR": nanobind.cmake_dir(),
    }
    defines = [f"-D{key}={value}" for key, value in options.items()]
    configure = ["cmake", "-S", ROOT, "-B", BUILD, "-G", "Ninja", *defines]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for command in (configure, ["cmake", "--build", BUILD, "-j", str(jobs)]):
        subprocess.run([str(part) for part in command], check=True, env={**os.environ, "PATH": path})
    shutil.rmtree(SITE, ignore_errors=True)
    shutil.copytree(ROOT / "src" / "strata", SITE / "strata", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    (built,) = BUILD.glob("_native*.so")
    shutil.copy2(built, SITE / "strata" / "cpu")


def library(name: str) -> str:
    """The compiler's runtime library, to be loaded before Python's own."""
    found = subprocess.run(["c++", f"-print-file-name={name}"], check=True, capture_output=True, text=True)
    return found.stdout.strip()


def main() -> int:
    """Build and run; the exit code of pytest, or of the first finding."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="compilers at once")
    parser.add_argument("--tests", nargs="+", default=TESTS, help="what pytest runs; other options are passed on to it")
    options, passed_on = parser.parse_known_args()
    if platform.system() != "Linux":
        sys.exit("The sanitized tests need Linux: the sanitizers' libraries are loaded before Python with LD_PRELOAD.")
    build(options.jobs)
    environment = {
        **os.environ,
        "PYTHONPATH": str(SITE),
        "LD_PRELOAD": f"{library('libasan.so')} {library('libstdc++.so.6')}",
        "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-c", RUN.format(site=str(SITE)), "-q", "-o", "timeout=1800", *options.tests, *passed_on]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
