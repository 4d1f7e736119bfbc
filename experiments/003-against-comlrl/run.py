"""One step of MAGRPO here and in the authors' library comlrl 1.4.3: time, tokens and memory.

python -m experiments.study experiments/003-against-comlrl

Both train two SmolLM2-135M-Instruct on the same posts with the same prompts, group size, lengths
and learning rate, one after the other. comlrl gets a virtual environment of its own under
outputs/003. The first step of either is left out of the times: loading and first calls.
"""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
OUTPUT = ROOT / "outputs" / "003"
POSTS = ROOT / "configs/writing/data/tldr_train.jsonl"
MODEL = ROOT / "models" / "smollm2"
STEPS, POSTS_PER_STEP, GENERATIONS, NEW_TOKENS, LEARNING_RATE = 2, 4, 8, 96, 1.0e-5


def theirs() -> list[dict[str, float]]:
    """A stamp per step of comlrl, and its peak memory."""
    python = OUTPUT / "venv" / "bin" / "python"
    if not python.exists():
        venv.create(OUTPUT / "venv", with_pip=True)
        packages = ["torch==2.13.0", "comlrl==1.4.3", "jinja2"]
        subprocess.run([python, "-m", "pip", "install", "-q", *packages], check=True)
    sizes = [STEPS, POSTS_PER_STEP, GENERATIONS, NEW_TOKENS, LEARNING_RATE]
    command = [python, HERE / "comlrl_side.py", MODEL, POSTS, *sizes]
    out, memory = measured([str(part) for part in command])
    stamps = [json.loads(line) for line in out.splitlines() if line.startswith('{"seconds"')]
    return [{**stamp, "memory": memory} for stamp in stamps]


def ours() -> list[dict[str, float]]:
    """The same of `python -m src fit`."""
    folder = f"outputs/003/{os.getpid()}"
    command = [sys.executable, "-m", "src", "fit"]
    for config in ("writing/tldr_magrpo", "writing/smollm2_cpu", "engine/vllm"):
        command += ["--config", f"configs/{config}.yaml"]
    for key, value in {
        "trainer.default_root_dir": folder,
        "trainer.max_epochs": STEPS,
        "trainer.limit_val_batches": 0,
        "data.tasks_per_step": POSTS_PER_STEP,
        "model.algorithm.init_args.num_candidates": GENERATIONS,
        "model.algorithm.init_args.pairing": "aligned",
        "rollout.sampling.max_tokens": NEW_TOKENS,
        "rollout.engine.init_args.kv_cache_gib": 0.4,
        "model.policies.first.init_args.optimizer.init_args.lr": LEARNING_RATE,
        "model.policies.second.init_args.optimizer.init_args.lr": LEARNING_RATE,
    }.items():
        command += [f"--{key}", str(value)]
    _, memory = measured(command)
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{ROOT / 'mlflow.db'}")
    experiments = [e.experiment_id for e in client.search_experiments()]
    where = f"params.`trainer.default_root_dir` = '{folder}'"
    run = client.search_runs(experiments, where)[0].info.run_id
    tokens = [m.value for m in client.get_metric_history(run, "rollout/total_tokens")]
    ends = [m.timestamp / 1000 for m in client.get_metric_history(run, "time/update")]
    return [{"seconds": e, "tokens": t, "memory": memory} for e, t in zip(ends, tokens)]


def measured(command: list[str]) -> tuple[str, float]:
    """What a command prints, and its peak resident memory in GiB; it has to succeed."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        out = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command[0]} ended with {process.returncode}\n{out}")
    return out, usage.ru_maxrss / 2**20


def report(stamps: dict[str, list[dict[str, float]]]) -> None:
    """Prints the table."""
    print("| | seconds per step | generated tokens per second, end to end | peak memory, GiB |")
    print("|---|---|---|---|")
    pace = {}
    for name, rows in stamps.items():
        seconds = rows[-1]["seconds"] - rows[0]["seconds"]
        tokens = rows[-1]["tokens"] - rows[0]["tokens"]
        pace[name] = seconds / (len(rows) - 1)
        print(f"| {name} | {pace[name]:.1f} | {tokens / seconds:.1f} | {rows[0]['memory']:.1f} |")
    print(f"\n{pace['comlrl 1.4.3'] / pace['teamtune']:.1f} times as fast per step")


if __name__ == "__main__":
    OUTPUT.mkdir(parents=True, exist_ok=True)
    results: dict[str, list[dict[str, float]]] = {}
    for name, side in {"comlrl 1.4.3": theirs, "teamtune": ours}.items():
        results[name] = side()
        (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    report(results)
