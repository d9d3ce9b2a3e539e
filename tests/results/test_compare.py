"""Comparisons of made-up records whose answers are known beforehand."""

import itertools

import numpy as np
import pytest
from scipy import stats

from results.compare import METHODS, compare, flat, summary
from results.stats import holm, tost

SEEDS = range(10)


def _accuracy(seed: int) -> float:
    return 50 + 2 * np.sin(seed)


def _trainings(make_record, method, offset=0.0, noise=0.0, seeds=SEEDS, **changes):
    wobble = itertools.cycle((1, -1, 0.5, -0.5, 0))
    return [
        make_record("train", method, seed, test_accuracy=_accuracy(seed) + offset + noise * next(wobble), **changes)
        for seed in seeds
    ]


def _by_method(records, **options):
    return {row.method: row for row in compare(records, **options)}


@pytest.fixture
def rows(make_record):
    records = [
        *_trainings(make_record, "naive4", offset=-20, noise=5),
        *_trainings(make_record, "approx2", noise=3),
        *_trainings(make_record, "lean"),
        *_trainings(make_record, "approx4", offset=-0.1, noise=0.05),
        *_trainings(make_record, "pool2", offset=2, noise=0.5),
        *_trainings(make_record, "exact"),
    ]
    return _by_method(records)


def test_each_of_the_four_verdicts_is_reached(rows):
    assert {method: row.verdict for method, row in rows.items()} == {
        "exact": None,
        "lean": "equivalent",
        "approx4": "equivalent",
        "approx2": "undecided",
        "naive4": "worse",
        "pool2": "better",
    }


def test_rows_come_in_the_order_of_the_methods_and_others_after_them(make_record):
    names = ["zeta", "approx4", "alpha", "exact", "checkpoint"]
    found = [row.method for row in compare([make_record("memory", name) for name in names])]
    assert found == ["exact", "approx4", "checkpoint", "alpha", "zeta"]
    assert len(METHODS) == 13


def test_p_values_are_adjusted_over_the_methods_tested(rows):
    raw = {method: row.difference for method, row in rows.items() if row.difference}
    expected = {method: stats.ttest_1samp(d.values, 0).pvalue for method, d in raw.items() if method != "lean"}
    assert {m: row.p for m, row in rows.items() if row.p is not None} == pytest.approx(holm(expected | {"lean": 1.0}))
    expected = {method: tost(d.values, 0.5) for method, d in raw.items()}
    assert {m: r.p_equivalent for m, r in rows.items() if r.p_equivalent is not None} == pytest.approx(holm(expected))


def test_exact_is_the_reference_and_is_not_compared_with_itself(rows):
    exact = rows["exact"]
    assert exact.difference is exact.p is exact.p_equivalent is exact.verdict is None
    assert exact.accuracy.mean == pytest.approx(np.mean([_accuracy(seed) for seed in SEEDS]))
    assert exact.accuracies == {seed: pytest.approx(_accuracy(seed)) for seed in SEEDS}


def test_the_margin_decides_what_is_equivalent(make_record):
    records = _trainings(make_record, "exact") + _trainings(make_record, "approx4", offset=-0.4, noise=0.02)
    assert _by_method(records)["approx4"].verdict == "equivalent"
    assert _by_method(records, margin=0.1)["approx4"].verdict == "worse"


def test_one_seed_gives_figures_and_no_verdict(make_record):
    rows = _by_method([make_record("train"), make_record("train", "approx4", test_accuracy=10.0)])
    assert rows["approx4"].difference.mean == -40
    assert (rows["approx4"].accuracy.low, rows["approx4"].p, rows["approx4"].p_equivalent) == (None, None, None)
    assert rows["approx4"].verdict == "undecided"


def test_without_exact_there_is_no_difference_and_no_gain(make_record):
    (row,) = compare([make_record(measure, "approx4") for measure in ("train", "memory", "time")])
    assert row.difference is row.verdict is row.saved_gain is None
    assert row.saved_bytes == 2**20


def test_groups_are_kept_apart(make_record):
    records = [
        make_record("train", method, seed, test_accuracy=accuracy, **group)
        for group, accuracy in (({"batch": 8}, 10.0), ({"model": "resnet18"}, 20.0), ({"dataset": "cifar10"}, 30.0))
        for method in ("exact", "lean")
        for seed in range(2)
    ]
    found = [(row.group.name, row.method, row.accuracy.mean) for row in compare(reversed(records))]
    assert found == [
        ("digits-laptop_cifar10_preact_resnet20_b32", "exact", 30),
        ("digits-laptop_cifar10_preact_resnet20_b32", "lean", 30),
        ("digits-laptop_digits_preact_resnet20_b8", "exact", 10),
        ("digits-laptop_digits_preact_resnet20_b8", "lean", 10),
        ("digits-laptop_digits_resnet18_b32", "exact", 20),
        ("digits-laptop_digits_resnet18_b32", "lean", 20),
    ]


def test_memory_gains_are_exact_over_method(make_record):
    records = [make_record("memory"), make_record("memory", "approx4", saved_bytes=2**16, peak_bytes=2**23)]
    row = _by_method(records)["approx4"]
    assert (row.saved_gain, row.held_gain, row.peak_gain) == (16, 1, 0.5)


def test_absent_and_zero_memory_make_no_gain_and_the_reason_shows(make_record):
    absent = make_record("memory", "lean", held_bytes=None, peak_bytes=None, absent="the profiler sees no mps memory")
    row = _by_method([make_record("memory"), absent, make_record("memory", "pool2", saved_bytes=0)])
    assert (row["lean"].held_bytes, row["lean"].held_gain, row["lean"].saved_gain) == (None, None, 1)
    assert row["pool2"].saved_gain is None
    assert row["lean"].notes == ("memory absent (seed 0): the profiler sees no mps memory",)


@pytest.mark.parametrize("name", ["saved_bytes", "held_bytes", "peak_bytes"])
def test_memory_that_changes_between_repeats_is_refused(make_record, name):
    same = [make_record("memory", "lean", seed) for seed in (0, 1)]
    assert compare(same)[0].saved_bytes == 2**20
    with pytest.raises(ValueError, match=rf"{name} of lean .*2: 3\}}"):
        compare([*same, make_record("memory", "lean", 2, **{name: 3})])


def test_the_process_peak_is_the_highest(make_record):
    records = [make_record("memory", seed=seed, process_peak_bytes=peak) for seed, peak in enumerate((5, 9, None))]
    assert compare(records)[0].process_peak_bytes == 9


def test_one_time_cell_keeps_its_own_figures(make_record):
    row = compare([make_record("time", "lean", ratio=1.3, ratio_low=1.2, ratio_high=1.4, control_low=0.9)])[0]
    assert (row.time.median, row.time.low, row.time.high, row.time.n) == (1.3, 1.2, 1.4, 2)
    assert (row.control.median, row.control.low) == (1.0, 0.9)


def test_a_time_cell_of_one_step_has_no_interval(make_record):
    row = compare([make_record("time", "lean", ratio_low=float("nan"), ratio_high=float("nan"))])[0]
    assert (row.time.median, row.time.low, row.time.high) == (1.15, None, None)


def test_several_time_cells_are_pooled_by_their_steps(make_record):
    records = [
        make_record("time", "lean", 0, method_ms=(12.0, 15.0), exact_ms=(10.0, 10.0), control_ms=(10.0, 20.0)),
        make_record("time", "lean", 1, method_ms=(30.0,), exact_ms=(10.0,), control_ms=(5.0,)),
    ]
    row = compare(records)[0]
    assert (row.time.median, row.time.n) == (1.2, 3)  # of 1.2, 1.0, 4.0
    assert row.control.median == 1.0  # of 1, 2, 0.5
    assert 1.0 <= row.time.low <= 1.2 <= row.time.high <= 4.0


def test_gradient_errors_are_means_over_seeds(make_record):
    records = [make_record("gradient", "lean", seed, relative_error=error) for seed, error in enumerate((0.1, 0.3))]
    assert compare(records)[0].gradient_error == pytest.approx(0.2)


def test_cells_that_did_not_end_are_told_with_their_reason(make_record):
    records = [
        *_trainings(make_record, "exact", seeds=range(4)),
        *_trainings(make_record, "lean", seeds=(0, 1, 9)),
        *[make_record("train", "lean", seed, status="killed", reason="signal 9") for seed in (3, 2)],
        make_record("memory", "pool2", status="not applicable", reason="no strided convolution"),
    ]
    rows = _by_method(records)
    assert rows["pool2"].notes == ("memory not applicable (seed 0): no strided convolution",)
    assert rows["pool2"].accuracy is rows["pool2"].saved_bytes is rows["pool2"].time is None
    assert rows["lean"].notes == (
        "train killed (seeds 2, 3): signal 9",
        "not paired, exact is missing (seed 9)",
        "not paired, only exact is there (seeds 2, 3)",
    )
    assert (rows["lean"].seeds, rows["lean"].difference.n) == (3, 2)


def test_diverged_trainings_are_named_and_count(make_record):
    records = _trainings(make_record, "exact") + _trainings(make_record, "naive4", offset=-40, seeds=range(5))
    records += _trainings(make_record, "naive4", offset=-40, noise=1, seeds=(5, 6), test_loss=float("nan"))
    row = _by_method(records)["naive4"]
    assert row.diverged == (5, 6)
    assert row.difference.n == 7
    assert "diverged, loss not finite (seeds 5, 6); the accuracies count" in row.notes


def test_trainings_of_different_length_are_not_paired(make_record):
    records = _trainings(make_record, "exact") + _trainings(make_record, "lean", steps=99)
    with pytest.raises(ValueError, match=r"(?s)mixes trainings.*exact.*\(30, 100, 50\).*lean.*\(99, 100, 50\)"):
        compare(records)


def test_flat_rows_hold_the_figures_in_the_units_of_their_names(make_record, rows):
    row = flat(rows["approx4"])
    assert row["difference_points"] == rows["approx4"].difference.mean
    assert (row["model"], row["seeds"], row["pairs"], row["saved_mib"]) == ("preact_resnet20", 10, 10, None)
    assert flat(compare([make_record("memory")])[0])["held_mib"] == 2
    assert all(isinstance(value, str | int | float | None) for value in row.values())


def test_the_summary_fits_120_columns_at_its_widest(make_record):
    records = []
    for method in METHODS:
        offset, noise = (0, 0) if method == "exact" else (-30, 19)
        records += _trainings(make_record, method, offset, noise)
        sizes = {name: 12_345_678_901 for name in ("saved_bytes", "held_bytes", "peak_bytes")}
        records += [make_record("memory", method, **sizes), make_record("time", method, ratio_high=12.34)]
        records.append(make_record("gradient", method, status="failed", reason="no room for it " * 30))
    text = summary(compare(records))
    assert max(map(len, text.splitlines())) <= 120
    assert all(f"\n{method} " in text for method in METHODS)


def test_the_summary_shows_the_figures_a_dash_for_absent_ones_and_reasons_below(make_record):
    records = [
        *_trainings(make_record, "exact"),
        *_trainings(make_record, "approx4", offset=-0.1, noise=0.05),
        make_record("memory"),
        make_record("memory", "approx4", saved_bytes=2**16),
        make_record("time", "approx4"),
        make_record("train", "pool2", status="not applicable", reason="no convolution in an MLP"),
    ]
    lines = summary(compare(records)).splitlines()
    exact, approx, pool = (next(line for line in lines if line.startswith(m)) for m in ("exact", "approx4", "pool2"))
    assert approx.split()[4:7] == ["-0.10", "±0.03", "equivalent"]
    assert "0.062 (16x)" in approx and "1.15 [1.10, 1.20]" in approx
    assert exact.split()[3:6] == ["10", "-", "-"]
    assert pool.split()[1:] == ["-"] * 8
    assert lines[-1] == "pool2: train not applicable (seed 0): no convolution in an MLP"


def test_a_note_that_several_methods_share_is_said_once(make_record):
    records = [make_record("train", m, status="failed", reason="no room") for m in ("lean", "pool2")]
    assert summary(compare(records)).splitlines()[-1] == "lean, pool2: train failed (seed 0): no room"


def test_the_summary_of_nothing_says_so():
    assert "no records" in summary([])
