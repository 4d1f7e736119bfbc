"""Runs what experiment 002 compares and gathers its tables and plot.

python experiments/002-writing-team/run.py [run ...]      runs: magrpo_0 magrpo_1 magrpo_2 single
                                                          sequential discussion; none named: all
Every run is one `python -m src` command. What it logs to MLflow about held-out posts, rollouts and
time is kept by step in results/<run>.json. The untrained pair, which is the parallel workflow, is
step 0 of each training run.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RESULTS = HERE / "results"
PAIR, SINGLE = "configs/writing/smollm2_cpu.yaml", "configs/writing/smollm2_single_cpu.yaml"
TRAINED = {f"magrpo_{seed}": seed for seed in range(3)}
BASELINES = {"single": SINGLE, "sequential": PAIR, "discussion": PAIR}
LEVELS = ("structure", "length_ratio", "unique_ratio", "style", "coherence")


def run(name: str) -> None:
    """One run through the command; keeps what it logs about the held-out posts."""
    folder = f"outputs/002/{name}"
    if name in TRAINED:
        command = ["fit", "--config", "configs/writing/tldr_magrpo.yaml", "--config", PAIR]
        command += ["--seed_everything", str(TRAINED[name])]
    else:
        command = ["validate", "--config", f"configs/writing/tldr_{name}.yaml"]
        command += ["--config", BASELINES[name]]
    command += ["--config", "configs/engine/vllm.yaml", "--trainer.default_root_dir", folder]
    subprocess.run([sys.executable, "-m", "src", *command], cwd=ROOT, check=True)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(logged(folder), indent=1) + "\n")


def logged(folder: str) -> list[dict[str, float]]:
    """The newest run's metrics under val/, and the time of each phase, one entry per step."""
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{ROOT / 'mlflow.db'}")
    newest = client.search_runs(
        [e.experiment_id for e in client.search_experiments()],
        f"params.`trainer.default_root_dir` = '{folder}'",
        order_by=["start_time DESC"],
        max_results=1,
    )[0]
    steps: dict[int, dict[str, float]] = {}
    for key in newest.data.metrics:
        if key.startswith(("val/", "time/", "rollout/")):
            for point in client.get_metric_history(newest.info.run_id, key):
                steps.setdefault(point.step, {})[key] = point.value
    return [{"step": step, **values} for step, values in sorted(steps.items())]


def gather() -> None:
    """Prints the tables and draws the plot of the runs that have results."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    rows: list[tuple[str, dict[str, Any]]] = []
    for name in [*BASELINES, *TRAINED]:
        path = RESULTS / f"{name}.json"
        if not path.exists():
            continue
        points = [p for p in json.loads(path.read_text()) if "val/return_share" in p]
        shares = [100 * p["val/return_share"] for p in points]
        if name in TRAINED:
            axes.plot([p["step"] for p in points], shares, marker="o", ms=3, label=name)
            rows.append((f"untrained pair (step 0 of {name})", points[0]))
        else:
            axes.axhline(shares[-1], ls="--", lw=1, color="0.5")
            axes.annotate(name, (0, shares[-1]), fontsize=8, va="bottom")
        rows.append((name, points[-1]))
    print("| run | joint reward | " + " | ".join(LEVELS) + " | tokens per post | s per post |")
    print("|" + "---|" * (len(LEVELS) + 4))
    for label, point in rows:
        levels = " | ".join(f"{point[f'val/level_{level}']:.2f}" for level in LEVELS)
        print(
            f"| {label} | {100 * point['val/return_share']:.1f} % | {levels} "
            f"| {point['val/tokens_per_task']:.0f} | {point['val/seconds_per_task']:.1f} |"
        )
    axes.axhline(85, lw=1, color="tab:red")
    axes.set(xlabel="rollout step", ylabel="joint reward on held-out posts, % of the largest")
    axes.set_ylim(0, 101)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right", fontsize=8)
    figure.savefig(HERE / "curve.png", dpi=150)


if __name__ == "__main__":
    for chosen in sys.argv[1:] or [*TRAINED, *BASELINES]:
        run(chosen)
    gather()
