"""The statistics against their slow definitions, against scipy's own tests and against worked examples."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from results.stats import bootstrap_median, holm, interval, paired, tost, verdict

ACCURACY = st.integers(0, 10_000).map(lambda count: count / 100)
PAIRS = st.lists(st.tuples(ACCURACY, ACCURACY), min_size=2, max_size=12)


def _split(pairs: list[tuple[float, float]]) -> tuple[dict[int, float], dict[int, float]]:
    return {seed: pair[0] for seed, pair in enumerate(pairs)}, {seed: pair[1] for seed, pair in enumerate(pairs)}


def test_interval_against_a_worked_example():
    # n = 5, mean 6, s = sqrt(2.5), t(0.975, 4) = 2.7764 from any table
    found = interval([4, 5, 6, 7, 8])
    half = 2.7764 * math.sqrt(2.5 / 5)
    assert (found.mean, found.n) == (6, 5)
    assert found.low == pytest.approx(6 - half, abs=1e-4)
    assert found.high == pytest.approx(6 + half, abs=1e-4)


@given(st.lists(ACCURACY, min_size=2, max_size=12).filter(lambda values: len(set(values)) > 1))
def test_interval_is_scipys(values):
    expected = stats.t.interval(0.95, len(values) - 1, loc=np.mean(values), scale=stats.sem(values))
    found = interval(values)
    assert (found.low, found.high) == pytest.approx(expected)


def test_interval_covers_the_true_mean_19_times_in_20():
    draws = np.random.default_rng(0).normal(50, 2, size=(2000, 5))
    covered = np.mean([found.low <= 50 <= found.high for found in map(interval, draws)])
    assert 0.935 < covered < 0.965


def test_one_run_has_no_interval():
    assert interval([3.5]) == interval(iter([3.5]))
    assert (interval([3.5]).low, interval([3.5]).high) == (None, None)


def test_equal_values_have_an_interval_of_no_width():
    found = interval([0.5] * 4)
    assert (found.low, found.mean, found.high) == (0.5, 0.5, 0.5)


@pytest.mark.parametrize("values", [[], [1.0, math.nan], [math.inf, 1.0]])
@pytest.mark.parametrize("function", [interval, bootstrap_median])
def test_no_value_and_values_that_are_not_finite_are_refused(function, values):
    with pytest.raises(ValueError, match="at least one|not all finite"):
        function(values)


@given(PAIRS)
def test_paired_is_scipys_paired_t_test(pairs):
    method, exact = _split(pairs)
    found = paired(method, exact)
    differences = np.round([a - b for a, b in pairs], 9)
    assert found.values == tuple(differences)
    if np.ptp(differences) == 0:
        return
    expected = stats.ttest_rel(list(method.values()), list(exact.values()))
    low, high = expected.confidence_interval(0.95)
    assert found.p == pytest.approx(expected.pvalue, rel=1e-6)
    assert (found.low, found.high) == (pytest.approx(low, abs=1e-6), pytest.approx(high, abs=1e-6))
    assert found.sd == pytest.approx(math.sqrt(sum((d - found.mean) ** 2 for d in differences) / (len(pairs) - 1)))


@given(PAIRS)
def test_paired_changes_sign_with_its_sides(pairs):
    method, exact = _split(pairs)
    there, back = paired(method, exact), paired(exact, method)
    assert there.mean == -back.mean
    assert there.p == pytest.approx(back.p)


def test_seeds_of_one_side_only_are_named_and_left_out():
    found = paired({0: 1.0, 1: 2.0, 5: 90.0}, {1: 1.0, 0: 1.0, 7: 0.0})
    assert (found.seeds, found.n, found.mean) == ((0, 1), 2, 0.5)
    assert (found.only_method, found.only_exact) == ((5,), (7,))


def test_pairing_takes_the_noise_of_the_seeds_out():
    exact = dict(enumerate([40.0, 50.0, 60.0, 70.0]))
    noise = [0.01, -0.01, 0.02, 0.0]
    found = paired({seed: value + 1 + noise[seed] for seed, value in exact.items()}, exact)
    assert found.p < 1e-4
    assert stats.ttest_ind([value + 1 for value in exact.values()], list(exact.values())).pvalue > 0.9


def test_no_shared_seed_and_diverged_values_are_refused_by_seed():
    with pytest.raises(ValueError, match=r"no seed in common.*\[1\].*\[2\]"):
        paired({1: 1.0}, {2: 1.0})
    with pytest.raises(ValueError, match=r"seeds \[3\] are not finite"):
        paired({2: 1.0, 3: math.nan}, {2: 1.0, 3: 1.0})


def test_one_pair_gives_a_difference_and_no_more():
    found = paired({4: 51.0}, {4: 50.0})
    assert (found.mean, found.n, found.seeds) == (1.0, 1, (4,))
    assert (found.low, found.high, found.sd, found.p) == (None, None, None, None)
    with pytest.raises(ValueError, match="no spread"):
        tost(found.values, 0.5)


def test_bit_equal_runs_differ_in_nothing_and_are_equivalent():
    found = paired(dict.fromkeys(range(9), 50.3), dict.fromkeys(range(9), 50.3))
    assert (found.mean, found.low, found.high, found.sd, found.p) == (0, 0, 0, 0, 1)
    assert tost(found.values, 0.5) == 0
    assert verdict(found.mean, found.p, tost(found.values, 0.5)) == "equivalent"


def _sign_flip_p(differences: list[float]) -> float:
    """Two-sided, by listing every assignment of signs."""
    observed = abs(sum(differences))
    flips = [abs(sum(s * d for s, d in zip(signs, differences, strict=True)))
             for signs in itertools.product((1, -1), repeat=len(differences))]  # fmt: skip
    return sum(flip >= observed - 1e-9 for flip in flips) / len(flips)


@pytest.mark.parametrize("n", [2, 5, 9])
def test_equal_differences_get_the_sign_flip_p_and_not_certainty(n):
    # The last bits of these differences are not alike; the differences are.
    exact = {seed: 49.7 + seed for seed in range(n)}
    found = paired({seed: value + 0.5 for seed, value in exact.items()}, exact)
    assert found.sd == 0
    assert found.p == pytest.approx(_sign_flip_p([0.5] * n)) == 2 / 2**n
    assert tost(found.values, 1.0) == pytest.approx(1 / 2**n)
    assert tost(found.values, 0.5) == 1, "on the margin is not within it"
    assert tost(found.values, 0.3) == 1


@given(
    st.lists(st.floats(-2, 2).map(lambda d: round(d, 2)), min_size=2, max_size=12).filter(lambda d: len(set(d)) > 1),
    st.sampled_from([0.1, 0.5, 2.0]),
)
def test_tost_is_two_one_sided_tests_by_hand(differences, margin):
    n, mean = len(differences), np.mean(differences)
    standard_error = np.std(differences, ddof=1) / math.sqrt(n)
    above = stats.t.sf((mean + margin) / standard_error, n - 1)
    below = stats.t.cdf((mean - margin) / standard_error, n - 1)
    assert tost(differences, margin) == pytest.approx(max(above, below), rel=1e-6, abs=1e-12)


@given(
    st.lists(st.floats(-2, 2).map(lambda d: round(d, 2)), min_size=2, max_size=12).filter(lambda d: len(set(d)) > 1),
    st.sampled_from([0.1, 0.5, 2.0]),
)
def test_tost_rejects_exactly_where_the_90_percent_interval_lies_within_the_margin(differences, margin):
    low, high = stats.ttest_1samp(differences, 0).confidence_interval(0.90)
    if min(abs(low + margin), abs(high - margin)) > 1e-6:
        assert (tost(differences, margin) < 0.05) == (-margin < low and high < margin)


@pytest.mark.parametrize("margin", [0, -1, math.nan])
def test_a_margin_must_be_above_zero(margin):
    with pytest.raises(ValueError, match="margin"):
        tost([0.1, 0.2], margin)


def test_holm_worked_example():
    # 4 * 0.005, 3 * 0.01, 2 * 0.03, then 1 * 0.04 lifted to the one before it
    found = holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005})
    assert found == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02})
    assert list(found) == ["a", "b", "c", "d"]


@given(st.lists(st.floats(0, 0.1), min_size=1, max_size=8), st.floats(0.02, 0.2))
def test_holm_rejects_as_the_step_down_procedure_does(p_values, alpha):
    rejected: set[int] = set()
    for step, index in enumerate(sorted(range(len(p_values)), key=lambda index: p_values[index])):
        if p_values[index] * (len(p_values) - step) >= alpha:
            break
        rejected.add(index)
    found = holm({str(index): p for index, p in enumerate(p_values)})
    assert {int(name) for name, p in found.items() if p < alpha} == rejected


def test_holm_refuses_what_is_no_p_value_and_takes_an_empty_family():
    assert holm({}) == {}
    for p in (math.nan, -0.1, 1.1):
        with pytest.raises(ValueError, match="p value of x"):
            holm({"x": p})


@pytest.mark.parametrize(
    ("mean", "p", "p_equivalent", "expected"),
    [
        (2.0, 0.01, 0.9, "better"),
        (-2.0, 0.01, 0.9, "worse"),
        (-0.1, 0.01, 0.01, "equivalent"),
        (0.1, 0.6, 0.01, "equivalent"),
        (-0.4, 0.2, 0.3, "undecided"),
        (-0.4, 0.05, 0.05, "undecided"),
        (-9.0, None, None, "undecided"),
    ],
)
def test_verdicts(mean, p, p_equivalent, expected):
    assert verdict(mean, p, p_equivalent) == expected


def test_bootstrap_median_repeats_holds_the_median_and_covers():
    ratios = np.random.default_rng(1).lognormal(0.1, 0.05, 31)
    first = bootstrap_median(ratios)
    assert first == bootstrap_median(list(ratios))
    assert first[0] == np.median(ratios)
    assert first[1] < first[0] < first[2]
    draws = np.random.default_rng(2).lognormal(0.1, 0.05, size=(200, 31))
    covered = np.mean([low <= math.exp(0.1) <= high for _, low, high in map(bootstrap_median, draws)])
    assert covered > 0.9


def test_bootstrap_median_of_one_and_of_equal_ratios():
    median, low, high = bootstrap_median([1.5])
    assert median == 1.5 and math.isnan(low) and math.isnan(high)
    assert bootstrap_median([1.25] * 5) == (1.25, 1.25, 1.25)
