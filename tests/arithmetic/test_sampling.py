"""The draw: Philox against numpy's, filters against their definitions, frequencies against the softmax."""

import numpy as np
import pytest

from strata.arithmetic.sampling import Sampling, philox, sample
from strata.errors import RequestError


def test_philox_is_numpys():
    for key in ((0, 0), (7, 3), (2**64 - 1, 2**63)):
        for position in (0, 1, 5, 2**40):
            counter = (position - 1) % 2**256
            words = [np.uint64((counter >> (64 * i)) & (2**64 - 1)) for i in range(4)]
            numpys = np.random.Philox(key=np.array(key, np.uint64), counter=np.array(words, np.uint64))
            assert numpys.random_raw(4).tolist() == list(philox(key, (position, 0, 0, 0)))


def draws(logits, count=4000, **options):
    logits = np.asarray(logits, np.float32)
    found = [sample(logits, Sampling(temperature=1.0, seed=11, **options), choice=0, position=p) for p in range(count)]
    return np.bincount(found, minlength=len(logits)) / count


def test_frequencies_are_the_softmax():
    logits = np.array([1.0, 2.0, -1.0, 0.5, 2.0])
    want = np.exp(logits) / np.exp(logits).sum()
    assert np.abs(draws(logits, 20000) - want).max() < 0.012


def test_filters_keep_what_they_say():
    logits = np.log([0.4, 0.3, 0.15, 0.1, 0.05])
    assert set(np.nonzero(draws(logits, top_k=2))[0]) == {0, 1}
    assert set(np.nonzero(draws(logits, top_p=0.69))[0]) == {0, 1}
    assert set(np.nonzero(draws(logits, top_p=0.71))[0]) == {0, 1, 2}
    assert set(np.nonzero(draws(logits, min_p=0.3))[0]) == {0, 1, 2}
    assert set(np.nonzero(draws(logits, top_p=1e-9))[0]) == {0}
    assert set(np.nonzero(draws(np.zeros(6), top_k=3))[0]) == {0, 1, 2}


def test_greedy_takes_the_lowest_of_equals():
    logits = np.array([0, 3, -0.0, 3], np.float32)
    assert sample(logits, Sampling(), choice=0, position=9) == 1
    assert sample(logits, Sampling(temperature=1e-3, seed=5, top_k=1), choice=0, position=9) == 1


def test_a_draw_depends_on_seed_choice_and_position_alone():
    logits = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    options = Sampling(temperature=0.8, top_p=0.95, top_k=40, seed=3)
    first = [sample(logits, options, choice=0, position=p) for p in range(50)]
    assert first == [sample(logits, options, choice=0, position=p) for p in reversed(range(50))][::-1]
    assert first != [sample(logits, options, choice=1, position=p) for p in range(50)]


def test_top_k_of_a_large_vocabulary_equals_sorting_all():
    rng = np.random.default_rng(1)
    logits = rng.integers(-50, 50, 5000).astype(np.float32)
    best = sorted(range(5000), key=lambda i: (-logits[i], i))[:64]
    got = {sample(logits, Sampling(temperature=50.0, top_k=64, seed=s), choice=0, position=0) for s in range(2000)}
    assert got == set(best)


def test_nan_logits_are_refused_with_the_position():
    with pytest.raises(RequestError, match="position 17"):
        sample(np.array([0, np.nan], np.float32), Sampling(), choice=0, position=17)
