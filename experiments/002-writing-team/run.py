"""Runs what experiment 002 compares and gathers its tables and plot.

python experiments/002-writing-team/run.py [run ...]

Runs: magrpo_0 magrpo_1 magrpo_2 parallel single sequential discussion; none named: all. Each is a
`python -m src` command or two: training evaluates on 24 held-out posts as it goes (the curve); its
last checkpoint, like every untrained workflow, is evaluated on 40 posts that nothing was chosen on
(the table). results/<run>.json keeps both.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RESULTS = HERE / "results"
FINAL = "configs/writing/data/tldr_final.jsonl"
PAIR, SINGLE = "configs/writing/smollm2_cpu.yaml", "configs/writing/smollm2_single_cpu.yaml"
TRAINED = {f"magrpo_{seed}": seed for seed in range(3)}
UNTRAINED = {"parallel": PAIR, "single": SINGLE, "sequential": PAIR, "discussion": PAIR}
LEVELS = ("structure", "length_ratio", "unique_ratio", "style", "coherence")


def run(name: str) -> None:
    """Trains what is to be trained, evaluates it on the final posts, and keeps both."""
    results: dict[str, Any] = {}
    config, overlay, checkpoint = f"configs/writing/tldr_{name}.yaml", PAIR, []
    if name in TRAINED:
        config = "configs/writing/tldr_magrpo.yaml"
        folder = command("fit", name, config, PAIR, "--seed_everything", str(TRAINED[name]))
        results["steps"] = logged(f"outputs/002/{name}")
        checkpoint = ["--ckpt_path", str(folder / "checkpoints/last.ckpt")]
    else:
        overlay = UNTRAINED[name]
    posts = ["--data.val.init_args.path", FINAL]
    folder = command("validate", f"{name}_final", config, overlay, *posts, *checkpoint)
    results["final"] = json.loads((folder / "evaluations.json").read_text())[0]
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(json.dumps(results, indent=1) + "\n")


def command(verb: str, name: str, config: str, overlay: str, *options: str) -> Path:
    """`python -m src` with vLLM; returns the folder of this run."""
    root = ROOT / "outputs/002" / name
    parts = [verb, "--config", config, "--config", overlay, "--config", "configs/engine/vllm.yaml"]
    parts += ["--rollout.engine.init_args.kv_cache_gib", "0.4"]
    parts += ["--trainer.default_root_dir", f"outputs/002/{name}", *options]
    subprocess.run([sys.executable, "-m", "src", *parts], cwd=ROOT, check=True)
    return max(root.glob("run-*"))


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
    print("| run | joint reward | " + " | ".join(LEVELS) + " | tokens per post | s per post |")
    print("|" + "---|" * (len(LEVELS) + 4))
    for name in [*UNTRAINED, *TRAINED]:
        if not (RESULTS / f"{name}.json").exists():
            continue
        kept = json.loads((RESULTS / f"{name}.json").read_text())
        points = [p for p in kept.get("steps", []) if "val/return_share" in p]
        if points:
            shares = [100 * p["val/return_share"] for p in points]
            axes.plot([p["step"] for p in points], shares, marker="o", ms=3, label=name)
        final = kept["final"]
        levels = " | ".join(f"{final['levels'][level]:.2f}" for level in LEVELS)
        print(
            f"| {name} | {100 * final['share']:.1f} % | {levels} "
            f"| {final['tokens_per_task']:.0f} | {final['seconds_per_task']:.1f} |"
        )
    axes.axhline(85, lw=1, color="tab:red")
    axes.set(xlabel="rollout step", ylabel="joint reward on held-out posts, % of the largest")
    axes.set_ylim(0, 101)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right", fontsize=8)
    figure.savefig(HERE / "curve.png", dpi=150)


if __name__ == "__main__":
    for chosen in sys.argv[1:] or [*TRAINED, *UNTRAINED]:
        run(chosen)
    gather()
