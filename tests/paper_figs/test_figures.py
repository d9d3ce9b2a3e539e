"""The figures show every method and figure of the records, at their printed size, the same bytes every time."""

import gc
import math

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from paper_figs import style
from paper_figs.curves import curves
from paper_figs.figures import FIGURES, draw
from results.compare import METHODS, compare

GROUP = "digits-laptop_digits_preact_resnet20_b32"


@pytest.fixture(scope="module")
def figures(records):
    with style.theme():
        yield {name: plot(compare(records), records) for name, plot in FIGURES.items()}


@pytest.fixture(scope="module")
def drawn(records, tmp_path_factory):
    folder = tmp_path_factory.mktemp("first")
    files, missing = draw(records, folder)
    return folder, files, missing


def _texts(figure: Figure) -> list[Text]:
    return [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]


def _placed(figure: Figure) -> list[Text]:
    """All but the tick labels of axes with numbers, which matplotlib also keeps beyond the ends and does not draw."""
    found = [figure._suptitle, *(text for legend in figure.legends for text in legend.get_texts())]
    for axes in figure.axes:
        found += [axes.xaxis.label, axes.yaxis.label, *axes.texts]
        found += [label for label in axes.get_yticklabels() if label.get_text() in METHODS]
    return [text for text in found if text.get_text()]


def _words(figure: Figure) -> str:
    return "\n".join(text.get_text() for text in _texts(figure))


def test_every_figure_is_drawn_as_png_and_pdf_with_a_clear_name(drawn):
    folder, files, missing = drawn
    expected = {f"{name}_{GROUP}.{suffix}" for name in FIGURES for suffix in ("png", "pdf")}
    assert {path.name for path in files} == expected == {path.name for path in folder.iterdir()}
    assert missing == []


def test_png_files_have_the_printed_width_and_are_not_blank(drawn):
    for path in drawn[1]:
        if path.suffix == ".png":
            with Image.open(path) as image:
                assert image.width in (round(style.COLUMN * style.DPI), round(style.DOUBLE * style.DPI))
                assert len(np.unique(np.asarray(image.convert("L")))) > 20


def test_the_same_records_give_the_same_bytes(drawn, records, tmp_path):
    draw(list(reversed(records)), tmp_path)
    for path in drawn[1]:
        assert path.read_bytes() == (tmp_path / path.name).read_bytes(), path.name


@pytest.mark.parametrize("name", FIGURES)
def test_no_text_is_smaller_than_7_points_or_leaves_the_page(figures, name):
    figure = figures[name]
    figure.draw_without_rendering()
    page = figure.bbox
    assert all(text.get_fontsize() >= 7 for text in _texts(figure))
    for text in _placed(figure):
        box = text.get_window_extent()
        assert page.x0 <= box.x0 and box.x1 <= page.x1 and page.y0 <= box.y0 and box.y1 <= page.y1, text


@pytest.mark.parametrize("name", FIGURES)
def test_every_method_is_named_in_every_figure(figures, name):
    words = _words(figures[name])
    absent = {"difference": {"exact"}, "time": {"exact"}}.get(name, set())
    assert [method for method in METHODS if method not in absent and method not in words] == []


@pytest.mark.parametrize(
    ("name", "labels"),
    {
        "accuracy": ["test accuracy (%)"],
        "difference": ["accuracy, difference to exact (points)"],
        "memory": ["saved for backward (MiB)", "held after forward (MiB)", "peak in one step (MiB)"],
        "time": ["step time, method / exact"],
        "gradient": ["layer, from input to output"],
        "curves": ["step", "step"],
    }.items(),
)
def test_axes_say_what_they_show_and_in_which_unit(figures, name, labels):
    assert [axes.get_xlabel() for axes in figures[name].axes] == labels
    if name == "curves":
        assert [axes.get_ylabel() for axes in figures[name].axes] == ["training loss (nats)", "test accuracy (%)"]


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_says_what_was_measured(figures, name):
    assert "preact_resnet20 on digits (digits, laptop), batch 32" in figures[name].get_suptitle()


def test_accuracy_shows_every_seed_and_the_mean(figures, records):
    axes = figures["accuracy"].axes[0]
    rows = compare(records)
    shown = [sorted(float(x) for x, _ in collection.get_offsets()) for collection in axes.collections[::2]]
    points = [points for points in shown if len(points) == 4]
    assert points == [pytest.approx(sorted(row.accuracies.values())) for row in rows]
    means = [float(container.lines[0].get_xdata()[0]) for container in axes.containers]
    assert means == pytest.approx([row.accuracy.mean for row in rows])
    assert "n = 4 seeds" in figures["accuracy"].get_suptitle()


def test_memory_bars_are_in_mib(figures, records):
    rows = compare(records)
    for axes, name in zip(figures["memory"].axes, ("saved_bytes", "held_bytes", "peak_bytes"), strict=True):
        widths = [bar.get_width() for container in axes.containers for bar in container]
        assert widths == pytest.approx([getattr(row, name) / 1024**2 for row in rows])


def test_time_has_a_line_at_1_and_the_intervals_of_the_records(figures):
    axes = figures["time"].axes[0]
    assert any(list(line.get_xdata()) == [1, 1] for line in axes.lines)
    bars = [container for container in axes.containers if hasattr(container, "has_xerr")]
    segments = [container.lines[2][0].get_segments()[0][:, 0].tolist() for container in bars]
    assert segments == [pytest.approx([0.98 + rank / 10, 1.05 + rank / 10]) for rank in range(1, 13)]


def test_gradient_shows_the_kernels_on_a_log_scale_beside_the_noise(figures):
    axes = figures["gradient"].axes[0]
    lines = {line.get_label(): list(line.get_ydata()) for line in axes.lines}
    assert axes.get_yscale() == "log"
    assert lines["SGD noise"] == pytest.approx([0.6, 0.7, 0.8])
    assert lines["checkpoint"] == pytest.approx([1, 1 / 2, 1 / 3])
    assert "exact" not in lines and "exact, lean, approx8" in figures["gradient"].get_suptitle()


def test_curves_show_mean_and_band_over_the_seeds(figures):
    loss, accuracy = figures["curves"].axes
    means = next(line for line in loss.lines if line.get_color() == style.colour("exact"))
    expected = [2.3 * math.exp(-step / 20) + 0.015 for step in range(5, 31, 5)]
    assert list(means.get_ydata()) == pytest.approx(expected)
    band = loss.collections[-1].get_paths()[0].vertices  # exact is drawn last
    assert {5.0, 30.0} <= set(band[:, 0])
    assert band[band[:, 0] == 30][:, 1].max() == pytest.approx(2.3 * math.exp(-1.5) + 0.03)
    assert band[band[:, 0] == 30][:, 1].min() == pytest.approx(2.3 * math.exp(-1.5))
    assert list(accuracy.lines[0].get_xdata()) == [10, 20, 30]
    assert "exact (n = 4)" in _words(figures["curves"])


def test_a_curve_ends_where_a_seed_diverges_and_says_so(make_record):
    def point(step: int, loss: float) -> dict[str, float]:
        return {"step": step, "epoch": 1, "train_loss": loss}

    good = make_record("train", curve=(point(1, 2.0), point(2, 1.0), point(3, 0.5)))
    losses = (point(1, 4.0), point(2, math.inf), point(3, math.nan))
    bad = make_record("train", seed=1, train_loss=math.nan, curve=losses)
    with style.theme():
        figure = curves(compare([good, bad]), [good, bad])
    assert list(figure.axes[0].lines[0].get_xydata().flat) == [1, 3.0]
    assert "exact (n = 2, 1 diverged)" in _words(figure)


def test_differences_far_from_exact_leave_the_margin_visible(make_record):
    records = [make_record("train", seed=seed, test_accuracy=60 + seed) for seed in range(3)]
    records += [make_record("train", "lean", seed, test_accuracy=60.1 + seed) for seed in range(3)]
    with style.theme():
        near = FIGURES["difference"](compare(records), records)
    records += [make_record("train", "naive4", seed, test_accuracy=10.0) for seed in range(3)]
    with style.theme():
        far = FIGURES["difference"](compare(records), records)
    assert near.axes[0].get_xscale() == "linear"
    assert far.axes[0].get_xscale() == "symlog" and "logarithmic beyond ±1" in far.axes[0].get_xlabel()


def test_figures_without_data_are_not_drawn_and_named(make_record, tmp_path):
    files, missing = draw([make_record("memory"), make_record("memory", "lean", held_bytes=None)], tmp_path)
    assert [path.suffix for path in files] == [".png", ".pdf"]
    assert missing == [f"{name}_{GROUP}" for name in FIGURES if name != "memory"]


def test_a_single_run_is_drawn_without_an_interval(make_record, tmp_path):
    records = [
        make_record("train"),
        make_record("train", "lean"),
        make_record("time", "lean", ratio_low=math.nan, ratio_high=math.nan),
    ]
    files, _ = draw(records, tmp_path)
    assert [path.name.split("_")[0] for path in files[::2]] == ["accuracy", "difference", "time"]


def test_every_group_has_files_of_its_own_whatever_its_name(make_record, tmp_path):
    models = ("timm/resnet50.a1_in1k", "timm/resnet50.a2_in1k")
    files, _ = draw([make_record("memory", model=model) for model in models], tmp_path)
    assert [path.name for path in files if path.suffix == ".png"] == [
        "memory_digits-laptop_digits_timm-resnet50.a1_in1k_b32.png",
        "memory_digits-laptop_digits_timm-resnet50.a2_in1k_b32.png",
    ]


def test_nothing_stays_open_and_the_settings_of_the_caller_come_back(make_record, tmp_path):
    before = dict(plt.rcParams)
    draw([make_record("memory")], tmp_path)
    gc.collect()
    assert plt.get_fignums() == []
    assert dict(plt.rcParams) == before


def test_methods_keep_their_colour_and_no_two_share_one():
    assert tuple(style.COLOURS) == METHODS
    assert len(set(style.COLOURS.values())) == len(METHODS)
    unknown = style.colour("pool2+approx4")
    assert unknown == style.colour("pool2+approx4") == to_hex(unknown)
    assert len({style.colour(f"method{number}") for number in range(30)}) > 10
