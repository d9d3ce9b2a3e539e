"""Training curves: the mean over seeds with a band from the lowest to the highest."""

import math

import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paper_figs import style
from results.compare import Comparison
from results.schema import Record, TrainResult

PANELS = {"train_loss": "training loss (nats)", "test_accuracy": "test accuracy (%)"}


def curves(rows: list[Comparison], records: list[Record]) -> Figure | None:
    """Training loss and test accuracy by step; None where no training kept its curve."""
    points = _points(records)
    rows = [row for row in rows if row.method in set(points["method"])]
    if not rows:
        return None
    figure = style.figure(style.DOUBLE, 2.9)
    for axes, (name, label) in zip(figure.subplots(1, 2), PANELS.items(), strict=True):
        for row in reversed(rows):  # exact on top
            _line(axes, points[points["method"] == row.method], name, row)
        axes.set(xlabel="step", ylabel=label, xlim=(0, points["step"].max()))
    _limit_loss(figure.axes[0], points)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="outside right center", frameon=False)
    style.title(figure, rows[0], "mean, band from lowest to highest seed")
    return figure


def _points(records: list[Record]) -> pd.DataFrame:
    columns = ["method", "seed", "step", *PANELS]
    return pd.DataFrame(
        [
            (record.cell.method, record.cell.seed, point.step, point.train_loss, point.test_accuracy)
            for record in records
            if isinstance(record.result, TrainResult)
            for point in record.result.curve
        ],
        columns=columns,
    )


def _line(axes: Axes, points: pd.DataFrame, name: str, row: Comparison) -> None:
    """Up to the step at which a seed diverges: a mean over the others would hide it."""
    points = points.dropna(subset=[name]) if name == "test_accuracy" else points
    whole = points[name].map(math.isfinite).groupby(points["step"]).transform("all").astype(bool)
    label = (
        f"{row.method} (n = {row.seeds})"
        if not row.diverged
        else f"{row.method} (n = {row.seeds}, {len(row.diverged)} diverged)"
    )
    sns.lineplot(
        points[whole], x="step", y=name, ax=axes, color=style.colour(row.method), linestyle=style.line(row.method),
        errorbar=("pi", 100), err_kws={"linewidth": 0, "alpha": 0.12}, label=label, legend=False,
    )  # fmt: skip


def _limit_loss(axes: Axes, points: pd.DataFrame) -> None:
    """What explodes leaves the panel at the top, so that the other curves stay readable."""
    exact = points[points["method"] == "exact"]["train_loss"]
    if len(exact) and math.isfinite(exact.max()):
        axes.set_ylim(top=min(axes.get_ylim()[1], 1.5 * exact.max()))
