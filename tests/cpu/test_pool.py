"""The threads of the extension: how many, and that a forked child does without them."""

import os
import subprocess
import sys

import pytest
from model.native_models import Models

from strata.cpu.model import available_cores


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return Models.written(tmp_path_factory.mktemp("pool"))


def test_the_default_is_what_this_process_may_use():
    code = "import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]);" \
           "from strata.cpu.model import available_cores; print(available_cores())"  # fmt: skip
    narrow = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert narrow.stdout.strip() == "1"
    assert 1 <= available_cores() <= len(os.sched_getaffinity(0))


@pytest.mark.parametrize("threads", [0, 1, 5])
def test_the_number_asked_for(models, threads):
    assert models.native(threads=threads).threads == (threads or available_cores())


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_computes_alone(models):
    """The child has no workers; it must not wait for them."""
    model, tokens = models.native(threads=3), models.tokens(0, 20)
    want = model.forward([model.new_lane()], [tokens], [0], [0]).tobytes()
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if model.forward([model.new_lane()], [tokens], [0], [0]).tobytes() == want else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert model.forward([model.new_lane()], [tokens], [0], [0]).tobytes() == want
