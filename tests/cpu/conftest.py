"""Every instruction set that this machine runs."""

import pytest

from strata.cpu import _native


@pytest.fixture(params=_native.available_isas())
def isa(request):
    """The ops of one instruction set; the one before comes back afterwards."""
    before = _native.selected_isa()
    _native.select_isa(request.param)
    yield request.param
    _native.select_isa(before)
