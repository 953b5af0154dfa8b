"""The fuzzer of `tools/fuzz_weights.py`: a short run here, the full one marked slow; and that it can fail at all."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from strata.weights import Checkpoint


@pytest.fixture(scope="module")
def fuzzer() -> ModuleType:
    path = Path(__file__).parents[2] / "tools" / "fuzz_weights.py"
    spec = importlib.util.spec_from_file_location("fuzz_weights", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def assert_ends_well(fuzzer: ModuleType, count: int, seed: int) -> None:
    report = fuzzer.fuzz(count, seed)
    assert report.failures == []
    assert report.opened + report.refused.total() == count
    assert report.opened > count // 20
    assert report.refused.total() > count // 2


def test_two_thousand_mutations(fuzzer: ModuleType) -> None:
    assert_ends_well(fuzzer, 2_000, seed=1)


@pytest.mark.slow
def test_twenty_thousand_mutations(fuzzer: ModuleType) -> None:
    assert_ends_well(fuzzer, 20_000, seed=7)


def test_a_case_is_a_function_of_seed_and_number(fuzzer: ModuleType) -> None:
    first, again = fuzzer.fuzz(0, 3, only=25), fuzzer.fuzz(0, 3, only=25)
    assert (first.opened, first.refused) == (again.opened, again.refused)


def test_the_fuzzer_finds_planted_faults(fuzzer: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = fuzzer.open_checkpoint

    def break_on_damage(path: Path) -> Checkpoint:
        try:
            return opened(path)
        except fuzzer.WeightsError as error:
            if "UTF-8" in str(error):
                raise UnicodeDecodeError("utf-8", b"", 0, 1, "planted") from None
            if "overlap" in str(error):
                raise fuzzer.WeightsError("two\nlines") from None
            bytearray(4_000_000)
            raise

    monkeypatch.setattr(fuzzer, "open_checkpoint", break_on_damage)
    failures = "\n".join(fuzzer.fuzz(1_000, 1).failures)
    assert "planted" in failures
    assert "more than" in failures
