"""Penalties and bias against a slow formulation of their definition, token by token."""

import math
import random

import numpy as np
import pytest

from strata.arithmetic.penalties import Penalties, Recent, penalized, penalized_rows
from strata.arithmetic.sampling import Sampling, sample

F = np.float32
RULES = [
    Penalties(),
    Penalties(8, repeat=1.3),
    Penalties(8, frequency=0.4, presence=-0.2),
    Penalties(3, 0.8, 0.1, 1.5, {0: 2.5, 7: -100.0, 9: -math.inf, 99: 1.0}),
    Penalties(1000, 1.1, 0.7, 0.3),
    Penalties(0, 1.5, 1.0, 1.0),
]


def slow(logits: np.ndarray, rule: Penalties, history: list[int]) -> np.ndarray:
    """One token after the other, counted afresh."""
    tail = history[max(0, len(history) - rule.last_n) :]
    row = []
    for token, logit in enumerate(logits):
        value = F(logit)
        if token in rule.bias:
            value = F(value + F(rule.bias[token]))
        count = tail.count(token)
        if count:
            value = F(value * F(rule.repeat)) if value <= 0 else F(value / F(rule.repeat))
            value = F(value - F(F(count) * F(rule.frequency)))
            value = F(value - F(rule.presence))
        row.append(value)
    return np.array(row, np.float32)


@pytest.mark.parametrize("rule", RULES, ids=range(len(RULES)))
def test_rows_of_a_window_equal_the_definition_bit_for_bit(rule: Penalties) -> None:
    """[Presence times the count; a window of last_n + 1; drafts that are not in the history of later rows; a negative
    logit divided; the history of the first row without its last token; penalties before the bias.]"""
    rng, choose = np.random.default_rng(3), random.Random(3)
    for _ in range(40):
        history = [choose.randrange(12) for _ in range(choose.randrange(30))]
        drafts = [choose.randrange(12) for _ in range(choose.randrange(5))]
        logits = (rng.standard_normal((1 + len(drafts), 12)) * 4).astype(np.float32)
        before, recent = logits.copy(), Recent(rule.last_n, history)
        counts = dict(recent.counts)
        got = penalized_rows(logits, rule, recent, drafts)
        for at in range(1 + len(drafts)):
            want = slow(logits[at], rule, history + drafts[:at])
            assert got[at].tobytes() == want.tobytes()
        assert logits.tobytes() == before.tobytes()
        assert recent.counts == counts, "drafts belong to the rows, not to the history"


def test_a_draft_row_draws_what_the_row_alone_draws() -> None:
    rng, rule = np.random.default_rng(5), Penalties(16, 1.2, 0.5, 0.5, {3: 1.0})
    logits = rng.standard_normal((5, 20)).astype(np.float32) * 3
    history, sampling = [1, 2, 2, 3], Sampling(0.9, 0.95, 10, 0.01, seed=8)
    drawn: list[int] = []
    for at in range(5):
        alone = penalized(logits[at], rule, Recent(16, history + drawn).counts)
        drawn.append(sample(alone, sampling, choice=0, position=4 + at))
    together = penalized_rows(logits, rule, Recent(16, history), drawn[:4])
    assert [sample(row, sampling, choice=0, position=4 + at) for at, row in enumerate(together)] == drawn


def test_recent_counts_equal_counting_afresh() -> None:
    rng = random.Random(0)
    for last_n in (0, 1, 5, 64):
        recent, history = Recent(last_n), []
        for _ in range(200):
            token = rng.randrange(9)
            recent.append(token)
            history.append(token)
            tail = history[max(0, len(history) - last_n) :]
            assert recent.counts == {t: tail.count(t) for t in set(tail)}


def test_a_banned_token_is_never_drawn_and_neutral_rules_give_the_row_itself() -> None:
    row = np.zeros((1, 4), np.float32)
    banned = penalized(row[0], Penalties(bias={0: -math.inf, 1: -math.inf}), {})
    assert {sample(banned, Sampling(1.0), choice=0, position=p) for p in range(60)} == {2, 3}
    assert penalized_rows(row, Penalties(5), Recent(5, [1, 2]), []) is row
