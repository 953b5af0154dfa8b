"""Numbers as people read them."""

import pytest

from strata import units


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: units.bytes_text(1023), "1023 B"),
        (lambda: units.bytes_text(1536), "1.5 KiB"),
        (lambda: units.bytes_text(3 * 2**40), "3.0 TiB"),
        (lambda: units.bytes_text(5000 * 2**40), "5000.0 TiB"),
        (lambda: units.count_text(9999), "9999"),
        (lambda: units.count_text(52_300_000), "52.3 M"),
        (lambda: units.seconds_text(0.0123), "12 ms"),
        (lambda: units.seconds_text(12.34), "12.3 s"),
        (lambda: units.seconds_text(75), "1 min 15 s"),
    ],
)
def test_text(call, text):
    assert call() == text
