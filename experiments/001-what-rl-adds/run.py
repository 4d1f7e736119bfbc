"""Runs what experiment 001 compares and gathers its table and plot.

python experiments/001-what-rl-adds/run.py [run ...]      runs: team_0 team_1 team_2 no_first_role
                                                          full_expert; none named: all of them
Every run is one `python -m src fit`; its evaluations are kept in results/<run>.json.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RESULTS = HERE / "results"
OVERLAYS = {
    "team_0": [],
    "team_1": ["--seed_everything", "1"],
    "team_2": ["--seed_everything", "2"],
    "no_first_role": ["--config", str(HERE / "no_first_role.yaml")],
    "full_expert": ["--config", str(HERE / "full_expert.yaml")],
}
LABELS = {
    "team_0": "AT-GRPO, seed 0",
    "team_1": "AT-GRPO, seed 1",
    "team_2": "AT-GRPO, seed 2",
    "no_first_role": "AT-GRPO without the first role, seed 0",
    "full_expert": "cloning the full expert for the same time, seed 0",
}


def train(name: str) -> None:
    """One run through the command; keeps its evaluations."""
    config = ["--config", "configs/quickstart.yaml"]
    folder = ["--trainer.default_root_dir", f"outputs/001/{name}"]
    command = [sys.executable, "-m", "src", "fit", *config, *OVERLAYS[name], *folder]
    subprocess.run(command, cwd=ROOT, check=True)
    last = max((ROOT / "outputs" / "001" / name).glob("run-*"))
    RESULTS.mkdir(exist_ok=True)
    shutil.copy(last / "evaluations.json", RESULTS / f"{name}.json")


def gather() -> None:
    """Prints the table and draws the plot of the runs that have results."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    axes = figure.add_subplot()
    lines = [
        "| run | after the warm start | at the end (95 % interval) | training tokens | minutes |"
    ]
    lines.append("|---|---|---|---|---|")
    for name, label in LABELS.items():
        path = RESULTS / f"{name}.json"
        if not path.exists():
            continue
        rows = json.loads(path.read_text())
        if name == "full_expert":  # what follows the cloning is one step of AT-GRPO, left out
            rows = rows[:1]
        first, last = rows[0], rows[-1]
        start = "" if first is last else f"{100 * first['success']:.1f} %"
        interval = f"{100 * last['low']:.1f}–{100 * last['high']:.1f}"
        lines.append(
            f"| {label} | {start} | {100 * last['success']:.1f} % ({interval}) "
            f"| {last['tokens']:,} | {last['seconds'] / 60:.1f} |"
        )
        minutes = [row["seconds"] / 60 for row in rows]
        axes.plot(minutes, [100 * row["success"] for row in rows], marker="o", ms=3, label=label)
    axes.set(xlabel="minutes", ylabel="success on held-out boards, %", ylim=(0, 101))
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right", fontsize=8)
    figure.savefig(HERE / "curve.png", dpi=150)
    print("\n".join(lines))


if __name__ == "__main__":
    for run in sys.argv[1:] or OVERLAYS:
        train(run)
    gather()
