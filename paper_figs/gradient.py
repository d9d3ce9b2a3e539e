"""The error of the weight gradients by depth, beside the noise of SGD itself (Fig. 4 of Chakrabarti & Moseley 2019)."""

from collections import defaultdict
from statistics import fmean

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from paper_figs import style
from results.compare import Comparison
from results.schema import GradientResult, LayerGradient, Record

ROUNDING = 1e-9  # squared, relative: what float32 leaves of an exact method lies well below
MARKED = 60  # layers; of more the markers run together


def gradient(rows: list[Comparison], records: list[Record]) -> Figure | None:
    """Relative squared error of each convolution kernel's gradient; None where no gradient was measured."""
    layers = {row.method: found for row in rows if (found := _layers(records, row.method))}
    if not layers:
        return None
    figure = style.figure(style.DOUBLE, 2.8)
    axes = figure.subplots()
    shown = {
        method: found for method, found in layers.items() if any(not one.relative_error <= ROUNDING for one in found)
    }
    for method, found in shown.items():
        errors = [one.relative_error or float("nan") for one in found]  # a log axis has no zero
        places = range(1, len(errors) + 1)
        axes.plot(
            places,
            errors,
            style.line(method),
            marker="o" if len(errors) <= MARKED else "",
            color=style.colour(method),
            label=method,
        )
    # Exact gradients of the same batches: the noise beside one method is the noise beside every other.
    noise = [one.sgd_noise for one in next(iter(layers.values()))]
    axes.plot(range(1, len(noise) + 1), noise, "-.", color="0.4", linewidth=1.8, label="SGD noise")
    axes.set(
        yscale="log",
        xlabel="layer, from input to output",
        ylabel="squared error / squared norm\nof the kernel's gradient",
    )
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.legend(loc="outside right center", frameon=False)
    exact = [method for method in layers if method not in shown]
    style.title(figure, rows[0], f"not drawn, below {ROUNDING:g} everywhere: {', '.join(exact)}" if exact else "")
    return figure


def _layers(records: list[Record], method: str) -> list[LayerGradient]:
    """The kernels in the order of the model, errors and noise averaged over the seeds."""
    found: dict[str, list[LayerGradient]] = defaultdict(list)
    for record in records:
        if record.cell.method == method and isinstance(record.result, GradientResult):
            for layer in _kernels(record.result):
                found[layer.name].append(layer)
    return [
        layers[0].model_copy(
            update={field: fmean(getattr(one, field) for one in layers) for field in ("relative_error", "sgd_noise")}
        )
        for layers in found.values()
    ]


def _kernels(result: GradientResult) -> list[LayerGradient]:
    """The convolutions, as in the paper; of a model without any, every parameter."""
    return [
        layer for layer in result.layers if layer.kind.startswith("Conv") and not layer.name.endswith("bias")
    ] or list(result.layers)
