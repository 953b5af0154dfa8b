"""How the scripts beside this file start an engine: options, configuration files, environment, exit codes."""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from strata.cli.defaults import demo_model
from strata.errors import StrataError
from strata.text import Tokenizer
from strata.weights import open_checkpoint

ROOT = Path(__file__).resolve().parent.parent


class BrokenProtocol(Exception):
    """The engine said what the protocol does not allow, refused, fell silent or ended."""


def run_script(main: Callable[[], int]) -> None:
    """Call `main` and end the process with its exit code; what went wrong is one sentence on stdout."""
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    try:
        code = main()
    except (BrokenProtocol, StrataError) as error:
        print(f"FAIL: {error}")
        code = 1
    sys.exit(code)


def engine_arguments(description: str | None, max_new: int) -> argparse.ArgumentParser:
    """The options that every script has."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--exe", help="the engine (default: the configuration's exe, else engine/strata)")
    parser.add_argument("--config", help="JSON file with args, tokenizer, cwd, lib_dirs (default: the demo model)")
    parser.add_argument("--max-new", type=int, default=max_new, help=f"tokens a request may write (default: {max_new})")
    parser.add_argument("--extra", default="", help="further options for the engine, in one string")
    parser.add_argument("--timeout", type=float, default=240.0, help="longest silence in seconds (default: 240)")
    return parser


@dataclass(frozen=True)
class Config:
    """How to start an engine: a `strata-<model>.json`, or the demo model's."""

    exe: str
    args: tuple[str, ...]
    tokenizer: str | None = None
    cwd: str | None = None
    lib_dirs: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_options(cls, options: argparse.Namespace) -> "Config":
        """From `--config` and `--exe`. Raises BrokenProtocol with a sentence where the file cannot be used."""
        # The demo model's answers are short: without end tokens it goes on, and slots decode beside one another.
        values: dict[str, Any] = {"args": ["--native", str(demo_model()), "--eos-ids", "-1"]}
        if options.config:
            try:
                values = json.loads(Path(options.config).read_text(encoding="utf-8-sig"))
                values["args"] = [str(word) for word in values.get("args", [])]
            except (OSError, ValueError, TypeError, AttributeError) as error:
                raise BrokenProtocol(f"--config {options.config} cannot be used: {error}") from None
        cwd = values.get("cwd") or None
        exe = options.exe or values.get("exe") or str(ROOT / "engine" / "strata")
        if options.exe and Path(options.exe).exists():
            exe = str(Path(options.exe).resolve())
        elif cwd and not Path(exe).is_absolute():
            exe = str(Path(cwd, exe))
        return cls(
            exe, (*values["args"], *_split(values)), values.get("tokenizer"), cwd,
            tuple(values.get("lib_dirs") or ()), {k: str(v) for k, v in (values.get("env") or {}).items()},
        )  # fmt: skip

    def read_tokenizer(self) -> Tokenizer:
        """From the configuration's directory, else from the model file that `--native` names."""
        if self.tokenizer:
            return Tokenizer.from_directory(Path(self.cwd or ".", self.tokenizer))
        if "--native" not in self.args[:-1]:
            raise BrokenProtocol("the configuration names neither a tokenizer directory nor a model (--native FILE)")
        path = Path(self.cwd or ".", self.args[self.args.index("--native") + 1])
        with open_checkpoint(path) as checkpoint:
            return Tokenizer.from_metadata(checkpoint.metadata, path.name)


def _split(values: Mapping[str, Any]) -> list[str]:
    """`--layer-split`, which a configuration for several graphics cards has as a key of its own."""
    gpus = values.get("gpu")
    count = len(gpus.split(",")) if isinstance(gpus, str) else len(gpus) if isinstance(gpus, list) else 1
    if count < 2 or "--layer-split" in values["args"]:
        return []
    split = values.get("layer_split", "auto")
    return ["--layer-split", ",".join(map(str, split)) if isinstance(split, list) else str(split)]


def log_path() -> Path:
    """Where the engine's log goes: `BATCH_TEST_LOG`, else batch_test_engine.log in the folder of temporary files."""
    return Path(os.environ.get("BATCH_TEST_LOG") or Path(tempfile.gettempdir(), "batch_test_engine.log"))


def environment_of(config: Config, changes: Mapping[str, str]) -> dict[str, str]:
    """The environment of an engine: this process's, the configuration's, and `changes`."""
    environment = {**os.environ, **config.env, **changes}
    # The engine's first line asks for python3: this one, which has what the engine needs.
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", "")])
    if config.lib_dirs:
        environment["LD_LIBRARY_PATH"] = os.pathsep.join([*config.lib_dirs, environment.get("LD_LIBRARY_PATH", "")])
    return environment
