"""What the tests of the C++ model share."""

import pytest
from model.native_models import Models

from strata.cpu import _native


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """One toy file of mixed formats, and models of it."""
    return Models.written(tmp_path_factory.mktemp("models"))


@pytest.fixture
def poisoned():
    """Memory of every op is full of NaN before it runs."""
    _native.poison(True)
    yield
    _native.poison(False)
