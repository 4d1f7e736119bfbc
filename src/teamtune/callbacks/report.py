"""The run at a glance: evaluation before training, a learning curve, and a closing table."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import lightning as L
from lightning.pytorch.utilities.rank_zero import rank_zero_only

from teamtune import ranks
from teamtune.callbacks.base import TeamCallback
from teamtune.envs import Environment, TeamWork
from teamtune.tracking import MLflowTracker


@dataclass(frozen=True)
class Row:
    """One evaluation. Success as a share, seconds of wall time."""

    step: int
    name: str
    success: float
    low: float
    high: float
    tasks: int
    tokens: int
    """Generated for training so far; those of evaluations do not count."""
    seconds: float
    share: float | None = None
    """Mean joint reward as a share of the largest, where rewards have levels."""
    tokens_per_task: float = 0.0
    seconds_per_task: float = 0.0
    levels: dict[str, float] = field(default_factory=dict)
    """Mean of every level of the joint reward by name, and their `total`."""
    shares: dict[str, float] = field(default_factory=dict)
    """Groups of levels as shares of their maxima, and pass@k, by name."""
    mean_return: float | None = None
    """Mean return of the evaluation's episodes."""
    trained_tokens: int = 0
    """Of `tokens`, those in answers with an advantage other than 0."""


HEAD = ("", "success", "95 % interval", "tasks", "training tokens", "wall time")
MORE = ("joint reward", "tokens per task", "seconds per task")
LEVEL = "val/level_"


def table(rows: list[Row]) -> str:
    """The rows as a Markdown table."""
    levels = any(r.share is not None for r in rows)
    shares = list(dict.fromkeys(name for r in rows for name in r.shares))
    names = tuple(name.replace("pass_at_", "pass@").replace("_", " ") for name in shares)
    cells = [HEAD + (MORE if levels else ()) + names]
    for r in rows:
        interval = f"{100 * r.low:.1f}–{100 * r.high:.1f} %"
        minutes, seconds = divmod(round(r.seconds), 60)
        cell = (
            f"{r.name} (step {r.step})",
            f"{100 * r.success:.1f} %",
            interval,
            f"{r.tasks:,}",
            f"{r.tokens:,}",
            f"{minutes}:{seconds:02d} min",
        )
        share = "" if r.share is None else f"{100 * r.share:.1f} %"
        more = (share, f"{r.tokens_per_task:.0f}", f"{r.seconds_per_task:.2f}")
        others = tuple(f"{100 * r.shares[s]:.1f} %" if s in r.shares else "" for s in shares)
        cells.append(cell + (more if levels else ()) + others)
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(row, widths)) + " |" for row in cells]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return "\n".join(lines)


def draw_curve(rows: list[Row], path: Path) -> None:
    """Success on held-out tasks against rollout steps, with its interval, as a PNG.

    Where rewards have levels, their total as a share of the largest goes beside it.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    steps = [r.step for r in rows]
    axes.fill_between(steps, [r.low for r in rows], [r.high for r in rows], alpha=0.2, lw=0)
    axes.plot(steps, [r.success for r in rows], marker="o", ms=3, label="success")
    shares = [r.share for r in rows if r.share is not None]
    if len(shares) == len(rows):
        axes.plot(steps, shares, marker="s", ms=3, label="joint reward, share")
        axes.legend()
    axes.set(xlabel="rollout step", ylabel="success on held-out tasks", ylim=(0, 1.02))
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=150)


def _evaluate(trainer: L.Trainer) -> None:
    """Runs the validation loop out of turn, in the middle of `fit`."""
    if trainer.enable_validation:
        trainer.validating = True
        trainer.fit_loop.epoch_loop.val_loop.run()
        trainer.training = True


def _levels(metrics: dict[str, float]) -> dict[str, float]:
    levels = {k[len(LEVEL) :]: v for k, v in metrics.items() if k.startswith(LEVEL)}
    return levels | {"total": metrics["val/total"]} if levels else {}


def _shares(metrics: dict[str, float], env: Environment[Any]) -> dict[str, float]:
    """Levels that the environment takes together, and pass@k."""
    named = list(env.shares) if isinstance(env, TeamWork) else []
    sampled = [k.removeprefix("val/") for k in metrics if k.startswith("val/pass_at_")]
    return {name: metrics[f"val/{name}"] for name in named + sampled}


class Report(TeamCallback):
    """Evaluates before the first step, draws the learning curve and prints the closing table."""

    def __init__(self, evaluate_first: bool = True):
        """
        Args:
            evaluate_first: Whether to evaluate before the first rollout step.
        """
        self.evaluate_first = evaluate_first
        self.rows: list[Row] = []
        self.trained_tokens = 0

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *_: Any) -> None:
        credited = (c for r in self.team.rollouts for c in r.candidates if c.credited)
        self.trained_tokens += sum(ranks.gathered(sum(len(c.token_ids) for c in credited)))

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self.evaluate_first and self.team.rollout_step == 0:
            _evaluate(trainer)

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        team = self.team
        metrics = {k: float(v) for k, v in trainer.callback_metrics.items()}
        name = type(team.algorithm).__name__
        if team.rollout_step == 0:
            name = "warm start" if team.state.warm_started else "untrained"
        fitting = trainer.state.fn == "fit"
        earlier = [r for r in self.rows if r.step == team.rollout_step]
        # Evaluating a checkpoint again takes nothing from, and adds nothing to, the run's own time.
        seconds, per_task = team.state.seconds, metrics["val/seconds_per_task"]
        if earlier and not fitting:
            seconds, per_task = earlier[0].seconds, earlier[0].seconds_per_task
        self.rows = [r for r in self.rows if r.step != team.rollout_step]
        self.rows.append(
            Row(
                team.rollout_step,
                name,
                metrics["val/success"],
                metrics["val/success_low"],
                metrics["val/success_high"],
                round(metrics["val/tasks"]),
                team.state.training_tokens,
                seconds,
                metrics.get("val/return_share"),
                metrics["val/tokens_per_task"],
                per_task,
                _levels(metrics),
                _shares(metrics, self.data.environment),
                metrics["val/return"],
                self.trained_tokens,
            )
        )
        if fitting:
            self._write(self.rows)
            self._draw(trainer, metrics["val/return"])
        else:
            self._write(self.rows[-1:])
            self._print(self.rows[-1:])

    on_test_end = on_validation_end

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Evaluates after the last step, if that is not due anyway, before it is saved."""
        evaluated = self.rows and self.rows[-1].step == self.team.rollout_step
        if self.team.rollout_step == trainer.max_epochs and not evaluated:
            _evaluate(trainer)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self.rows:
            self._print([self.rows[0], *self.rows[-1:]] if len(self.rows) > 1 else self.rows)

    @rank_zero_only
    def _write(self, rows: list[Row]) -> None:
        text = json.dumps([asdict(r) for r in rows], indent=1)
        (self.team.run_dir / "evaluations.json").write_text(text + "\n", "utf-8")

    @rank_zero_only
    def _draw(self, trainer: L.Trainer, last_return: float) -> None:
        """The curve as a picture, and for MLflow, which sorts charts by name, as a description."""
        path = self.team.run_dir / "learning_curve.png"
        draw_curve(self.rows, path)
        text = f"{table(self.rows)}\n\n`val/return` {last_return:.3f}; files: {self.team.run_dir}"
        for logger in trainer.loggers:
            if isinstance(logger, MLflowTracker):
                logger.log_file(path)
                logger.describe(text)

    @rank_zero_only
    def _print(self, rows: list[Row]) -> None:
        text = table(rows)
        (self.team.run_dir / "result.md").write_text(text + "\n", "utf-8")
        self.team.print(f"\n{text}\n\nfiles: {self.team.run_dir}")

    def state_dict(self) -> dict[str, Any]:
        rows = [asdict(r) for r in self.rows]
        return {"rows": rows, "trained_tokens": self.trained_tokens}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.rows = [Row(**r) for r in state_dict["rows"]]
        self.trained_tokens = state_dict["trained_tokens"]
