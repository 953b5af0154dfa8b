"""API keys from files and the environment, and what must never be seen of them."""

import argparse
import logging
from pathlib import Path
from typing import Any

import httpx
import pytest

from strata.cli.main import build_parser
from strata.cli.serve import access_for
from strata.errors import UsageError
from strata.server.guard import Access
from strata.server.keys import LONGEST_FILE, Keys, read_key_file, split_keys


def options(*words: str) -> argparse.Namespace:
    return build_parser().parse_args(["serve", *words])


def test_keys_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_bytes("\ufeff# of the team\n\n  first \r\nsecond,half\n#third\n".encode())
    assert read_key_file(file) == ("first", "second,half")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "holds none"),
        (b"\n# nothing\n", "holds none"),
        (b"good\nsecret words\n", "line 2: an API key must be printable ASCII without blanks"),
        ("schlüssel".encode(), "line 1: an API key"),
        (b"\xff\xfe\x00", "not a text in UTF-8"),
        (b"k" * (LONGEST_FILE + 1), "no file of API keys"),
    ],
)
def test_bad_file_is_a_sentence_without_its_content(tmp_path: Path, content: bytes, said: str) -> None:
    file = tmp_path / "keys"
    file.write_bytes(content)
    with pytest.raises(UsageError, match=said) as caught:
        read_key_file(file)
    assert "secret" not in str(caught.value)


def test_file_that_cannot_be_read_is_a_sentence(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path, tmp_path / "a" / "b"):
        with pytest.raises(UsageError, match=r"cannot be read: .*--api-key-file"):
            read_key_file(path)


def test_options_come_before_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, other = tmp_path / "keys", tmp_path / "other"
    file.write_text("of-file\nshared\n")
    other.write_text("of-variable\n")
    monkeypatch.setenv("STRATA_API_KEY", "of-environment\nsecond")
    monkeypatch.setenv("STRATA_API_KEY_FILE", str(other))
    assert access_for(options()).keys == ("of-environment", "second", "of-variable")
    assert access_for(options("--api-key", "a,shared", "--api-key-file", str(file))).keys == ("a", "shared", "of-file")
    assert access_for(options("--api-key-file", str(file))).keys == ("of-file", "shared")
    with pytest.raises(UsageError, match="--api-key holds no key"):
        access_for(options("--api-key", ","))


def test_every_key_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []
    monkeypatch.setattr(
        "strata.server.keys.hmac.compare_digest", lambda one, other: compared.append(len(other)) or one == other
    )
    keys = Keys(("first", "second", "third-and-longest"))
    assert keys.match("first")
    assert not keys.match("no")
    assert compared == [32] * 6


def test_keys_are_in_no_log_and_no_dump(fake: Any, helpers: Any, caplog: pytest.LogCaptureFixture) -> None:
    access = Access(keys=split_keys("sesame-1,sesame-2"))
    assert "sesame" not in repr(access)
    assert "sesame" not in repr(vars(Keys(access.keys)))
    with caplog.at_level(logging.DEBUG), helpers["serving"](fake, access=access) as server:
        for key, status in (("sesame-2", 200), ("sesame-3", 401)):
            for headers in ({"authorization": f"Bearer {key}"}, {"x-api-key": key}):
                for path in ("/v1/models", "/metrics?requests=all"):
                    answer = httpx.get(server.url + path, headers=headers)
                    assert answer.status_code == status
                    assert "sesame" not in answer.text + str(answer.headers)
        body = {"messages": [{"role": "user", "content": "die"}]}
        answer = httpx.post(f"{server.url}/v1/chat/completions", json=body, headers={"x-api-key": "sesame-1"})
        assert answer.status_code == 503
    assert "killed by SIGKILL" in caplog.text
    assert "sesame" not in caplog.text
