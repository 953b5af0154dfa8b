"""The table of environment variables against its documentation, and what a bad value says."""

import re
from pathlib import Path

import pytest

from strata import settings
from strata.errors import UsageError

ROOT = Path(__file__).resolve().parents[2]


def test_the_documentation_lists_every_variable_with_its_default():
    text = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(STRATA_\w+)` \| (?:`([^`]*)`)? ?\|", text, re.M))
    assert set(rows) == {v.name for v in settings.VARIABLES}
    for variable in settings.VARIABLES:
        assert variable.kind(rows[variable.name] or "") == variable.default


def test_every_variable_is_read_somewhere_and_only_settings_reads_the_environment():
    sources = {p: p.read_text(encoding="utf-8") for p in (ROOT / "src").rglob("*.py")}
    elsewhere = "".join(text for path, text in sources.items() if path.name != "settings.py")
    assert [v.name for v in settings.VARIABLES if f'"{v.name}"' not in elsewhere] == []
    assert [p.name for p, text in sources.items() if re.search(r"os\.(environ|getenv)", text)] == ["settings.py"]


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("STRATA_OPS", "cuda", "must be one of native, reference"),
        ("STRATA_WATCHDOG_S", "two", "is not a number"),
        ("STRATA_WATCHDOG_S", "-1", "at least 0"),
        ("STRATA_WATCHDOG_S", "nan", "at least 0"),
        ("STRATA_BATCH_DECODE_SHARE", "1.5", "at most 1"),
    ],
)
def test_a_bad_value_says_what_is_allowed(name, text, says):
    with pytest.raises(UsageError, match=says):
        settings.read(name, {name: text})


def test_absent_and_empty_mean_the_default():
    assert settings.read("STRATA_OPS", {}) == settings.read("STRATA_OPS", {"STRATA_OPS": ""}) == "native"
    assert settings.read("STRATA_WATCHDOG_S", {"STRATA_WATCHDOG_S": "5"}) == 5.0
