"""Learned prices against numpy's least squares, against stalls, changes and cold starts."""

import itertools

import numpy as np
import pytest

from strata.engine.costs import Amount, CostModel, DistinctExperts, Work, _non_negative


def windows(count: int, seed: int = 0) -> list[Work]:
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        lanes, drafts = int(rng.choice([1, 1, 1, 2, 3, 5, 8, 11])), int(rng.integers(0, 4))
        prompt = int(rng.choice([0, 0, 0, 16, 100, 600]))
        rows = lanes * (1 + drafts) + prompt
        made.append(
            Work(rows, lanes + (prompt > 0), rows - prompt, drafts, drafts * lanes, rows * int(rng.integers(5000)))
        )
    return made


def true_seconds(w: Work) -> float:
    rows = 0.002 * min(w.rows, 4) + 0.001 * max(0, w.rows - 4)
    return 0.01 + rows + 0.0007 * w.drawn + 0.0004 * w.lanes + 0.003 * w.steps + 0.0006 * w.drafted + 1e-7 * w.reach


def taught(count: int, noise: float = 0.0, stall: float = 0.0, seed: int = 0) -> CostModel:
    model, rng = CostModel(), np.random.default_rng(seed)
    for work in windows(count, seed):
        seconds = true_seconds(work) * (1 + noise * rng.uniform(-1, 1))
        model.observe(work, seconds * (40 if rng.random() < stall else 1))
    return model


def worst(model: CostModel) -> float:
    """The largest relative error over windows like those seen."""
    return max(abs(model.seconds(work) / true_seconds(work) - 1) for work in windows(200, seed=99))


def test_prices_predict_as_well_as_a_library_fit() -> None:
    """[No relative weight; a step of the solver without the other prices.]"""
    model, seen = taught(600, noise=0.05), windows(600)
    rng = np.random.default_rng(0)
    features = np.array([_features(work) for work in seen])
    seconds = np.array([true_seconds(work) * (1 + 0.05 * rng.uniform(-1, 1)) for work in seen])
    fitted = np.linalg.lstsq(features / seconds[:, None], np.ones(len(seen)), rcond=None)[0]
    ours = [abs(model.seconds(w) / true_seconds(w) - 1) for w in windows(200, seed=99)]
    numpys = [abs(np.dot(_features(w), fitted) / true_seconds(w) - 1) for w in windows(200, seed=99)]
    assert max(ours) < max(numpys) + 0.05
    assert np.mean(ours) < 0.03


def _features(w: Work) -> list[float]:
    return [1, min(w.rows, 4), max(0, w.rows - 4), w.drawn, w.lanes, w.steps, w.drafted, w.reach]


def test_no_price_is_negative_and_no_window_free() -> None:
    """A world whose larger windows are cheaper. [Prices without the clipping.]"""
    model = CostModel()
    for n in range(300):
        rows = 1 + n % 20
        model.observe(Work(rows, rows, rows), 0.030 - 0.001 * rows)
    prices = [model.drawn, model.lane, model.step, model.drafted, model.reach]
    assert min(prices) >= 0
    assert [model.rows_seconds(n) for n in range(1, 50)] == sorted(model.rows_seconds(n) for n in range(1, 50))
    assert model.rows_seconds(1) > 0


@pytest.mark.parametrize("seed", range(30))
def test_the_solver_finds_the_best_of_all_active_sets(seed: int) -> None:
    """[Negative prices set to zero afterwards.]"""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((9, 5))
    a, b, least = x.T @ x + 0.01 * np.eye(5), x.T @ rng.standard_normal(9), 0.05
    found = _non_negative(a, b, least)
    worths = []
    for free in itertools.product([False, True], repeat=5):
        f, y = np.array(free), np.full(5, least)
        if f.any():
            y[f] = np.linalg.solve(a[np.ix_(f, f)], b[f] - least * a[np.ix_(f, ~f)].sum(axis=1))
        if (y >= least - 1e-12).all():
            worths.append(y @ a @ y / 2 - b @ y)
    assert (found >= least).all()
    assert found @ a @ found / 2 - b @ found == pytest.approx(min(worths), abs=1e-9)


def test_stalls_spoil_nothing() -> None:
    """[Durations taken as they are: the worst error is above 1.]"""
    assert worst(taught(600, noise=0.05, stall=0.02)) < 0.15


def test_a_lasting_change_is_learned_soon() -> None:
    """[Clipping without an end.]"""
    model = taught(400)
    for work in windows(400, seed=5)[:120]:
        model.observe(work, 3 * true_seconds(work))
    errors = [abs(model.seconds(work) / (3 * true_seconds(work)) - 1) for work in windows(200, seed=99)]
    assert np.mean(errors) < 0.2


def test_a_cold_start_does_not_last() -> None:
    """The first windows read the model from disk. [The first observation sets the scale for good.]"""
    model = CostModel()
    for n, work in enumerate(windows(120)):
        model.observe(work, true_seconds(work) * (100 if n < 3 else 1))
    assert worst(model) < 0.35


def test_thousands_of_small_windows_leave_the_price_of_large_ones() -> None:
    """[One memory for all kinds of windows.]"""
    model = CostModel()
    for rows in (64, 256, 512, 512):
        model.observe(Work(rows), 0.01 + 0.004 * rows)
    for _ in range(4000):
        model.observe(Work(1, 1, 1), 0.014)
    assert model.seconds(Work(512)) == pytest.approx(0.01 + 0.004 * 512, rel=0.15)


def test_counted_amounts_have_their_own_price() -> None:
    """Experts read by the CPU: the same rows cost what they read. [Counted amounts are ignored.]"""
    use = DistinctExperts(chosen=480)
    model, rng = CostModel([Amount("experts", 0.001, use.expected)]), np.random.default_rng(1)
    for _ in range(500):
        rows = int(rng.integers(1, 9))
        experts = 480 * rows**0.7 * rng.uniform(0.5, 1.5)
        use.observe(rows, experts)
        model.observe(Work(rows, rows, rows, amounts={"experts": experts}), 0.005 + 0.001 * rows + 2e-5 * experts)
    assert use.growth == pytest.approx(0.7, abs=0.12)
    few, many = (model.seconds(Work(4, 4, 4, amounts={"experts": n})) for n in (500, 2000))
    assert many - few == pytest.approx(2e-5 * 1500, rel=0.1)
    assert model.seconds(Work(4, 4, 4)) == pytest.approx(0.009 + 2e-5 * 480 * 4**0.7, rel=0.1)


def test_nonsense_is_no_observation() -> None:
    model = CostModel()
    for seconds in (0.0, -1.0, float("nan"), float("inf")):
        model.observe(Work(1, 1, 1), seconds)
    assert model.windows == 0
