"""The plot of a study: the metric against generated tokens, a line per row, a band over seeds."""

from collections.abc import Sequence
from pathlib import Path

from experiments.curves import mean
from experiments.design import Study
from experiments.results import Line


def draw(study: Study, rows: Sequence[Line]) -> Path:
    """Writes `curve.png`: means over seeds, and from the lowest to the highest seed a band.

    A row that was not trained is a dashed line at its value.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for index, row in enumerate(rows):
        color = f"C{index % 10}"
        if not row.trained:
            axes.axhline(100 * mean(row.ends), color=color, lw=1, ls="--", label=row.label)
            continue
        points = list(zip(*row.curves))  # of one evaluation, those of all seeds
        tokens = [mean([t for t, _ in seeds]) for seeds in points]
        values = [[100 * value for _, value in seeds] for seeds in points]
        lows, highs = ([choose(v) for v in values] for choose in (min, max))
        axes.fill_between(tokens, lows, highs, color=color, alpha=0.2, lw=0)
        means = [mean(v) for v in values]
        axes.plot(tokens, means, color=color, marker="o", ms=3, label=row.label)
    if study.threshold is not None:
        axes.axhline(100 * study.threshold, color="gray", lw=0.8, ls=":")
    axes.set(xlabel="tokens generated for training", ylabel=f"{study.metric}, %", ylim=(0, 101))
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, title="mean, lowest to highest seed", title_fontsize=7)
    path = study.folder / "curve.png"
    figure.savefig(path, dpi=150)
    return path
