"""The command on two ranks, started by Lightning and by torchrun, does what one process does."""

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from factories import checkpoint, logged, team_config
from teamtune.command.cli import run

ROOT = Path(__file__).parents[2]
OVERLAY = ["--config", str(ROOT / "configs/hardware/fsdp2.yaml")]
ADAMW = {"init_args": {"eps": 1e-5}}
"""AdamW's own 1e-8 turns a gradient that is rounding alone into a whole step of lr."""
SETTINGS: dict[str, Any] = {
    "trainer": {"max_epochs": 2},
    "model": {
        "epochs": 2,
        "minibatch_tasks": 2,
        "policies": {
            "a": {"init_args": {"token_budget": 150, "optimizer": ADAMW}},
            "b": {"init_args": {"optimizer": ADAMW}},
        },
        "algorithm": {"init_args": {"kl_coef": 0.05}},
    },
}
LOOSE = {"rtol": 0.0, "atol": 1e-6}


def started(command: list[str], **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", **env},
        capture_output=True,
        text=True,
        timeout=600,
    )


@dataclass
class Runs:
    """Folders of four runs of two steps, all of the same team."""

    one: Path
    """One process."""
    two: Path
    """Two ranks, started by Lightning."""
    one_then_two: Path
    """Two ranks, started by torchrun, from one process's checkpoint after step 1; MLflow."""
    two_then_one: Path
    """One process, from the two ranks' checkpoint after step 1."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    names = ("one", "two", "one_then_two", "two_then_one")
    folders = Runs(*(tmp_path_factory.mktemp(name) for name in names))
    after_one = "outputs/run-001/checkpoints/step-000001.ckpt"

    run(["fit", *team_config(folders.one, **SETTINGS)])
    fit = ["-m", "src", "fit"]
    done = started([sys.executable, *fit, *team_config(folders.two, **SETTINGS), *OVERLAY])
    assert done.returncode == 0, done.stderr

    database = folders.one_then_two / "mlflow.db"
    tracker = {
        "class_path": "teamtune.tracking.MLflowTracker",
        "init_args": {
            "tracking_uri": f"sqlite:///{database}",
            "artifact_location": str(folders.one_then_two / "artifacts"),
        },
    }
    mlflow = {**SETTINGS, "trainer": {"max_epochs": 2, "logger": tracker}}
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    resumed = [*team_config(folders.one_then_two, **mlflow), *OVERLAY]
    resumed += ["--ckpt_path", str(folders.one / after_one)]
    done = started([sys.executable, *torchrun, *fit, *resumed])
    assert done.returncode == 0, done.stderr

    resumed = [*team_config(folders.two_then_one, **SETTINGS)]
    run(["fit", *resumed, "--ckpt_path", str(folders.two / after_one)])
    return folders


def close(own: dict[str, Any], other: dict[str, Any]) -> None:
    """Weights and optimizer states of two checkpoints agree."""
    assert own["state_dict"].keys() == other["state_dict"].keys()
    for name, value in own["state_dict"].items():
        torch.testing.assert_close(other["state_dict"][name], value, **LOOSE)
    for mine, theirs in zip(own["optimizer_states"], other["optimizer_states"], strict=True):
        assert mine["param_groups"] == theirs["param_groups"]
        assert mine["state"].keys() == theirs["state"].keys() and mine["state"]
        for index, entry in mine["state"].items():
            for name, value in entry.items():
                torch.testing.assert_close(theirs["state"][index][name], value, **LOOSE)
    assert own["lr_schedulers"] == other["lr_schedulers"]


@pytest.mark.slow
@pytest.mark.parametrize("other", ["two", "one_then_two", "two_then_one"])
def test_weights_and_optimizers_equal_those_of_one_process(runs: Runs, other: str):
    own, found = checkpoint(runs.one, 2), checkpoint(getattr(runs, other), 2)
    close(own, found)
    for key in ("rollout_step", "training_tokens", "versions", "policy_map"):
        assert own["team"][key] == found["team"][key]
    assert own["team"]["versions"] == {"a": 8, "b": 8} and own["team"]["training_tokens"] > 200
    moved = own["state_dict"]["policies.b.scorer.lm.lm_head.weight"]
    before = checkpoint(runs.one, 1)["state_dict"]["policies.b.scorer.lm.lm_head.weight"]
    assert (moved - before).abs().max() > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(("other", "first"), [("two", 0), ("two_then_one", 1)])
def test_metrics_equal_those_of_one_process(runs: Runs, other: str, first: int):
    def since(metrics: dict[tuple[int, str], float]) -> dict[tuple[int, str], float]:
        """From the rollout of step `first` + 1 on; rollouts are logged before their update."""
        return {k: v for k, v in metrics.items() if k[0] >= first and (k[0] > first or k in start)}

    whole = logged(runs.one)
    start = {k for k in whole if k[0] == first and (first == 0 or k[1].startswith("rollout/"))}
    own, found = since(whole), since(logged(getattr(runs, other)))
    assert own.keys() == found.keys()
    assert found == pytest.approx(own, abs=1e-5)
    assert {"a/loss", "b/grad_norm", "a/ref_kl", "rollout/tokens", "val/success"} <= {
        name for _, name in own
    }


@pytest.mark.slow
def test_a_checkpoint_of_two_ranks_is_one_file_with_whole_tensors(runs: Runs):
    folder = runs.two / "outputs/run-001/checkpoints"
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["last.ckpt", *(f"step-{step:06d}.ckpt" for step in (1, 2))]
    own, other = checkpoint(runs.one, 1), checkpoint(runs.two, 1)
    assert own.keys() == other.keys()
    assert all(type(value) is torch.Tensor for value in other["state_dict"].values())
    shapes = {name: value.shape for name, value in own["state_dict"].items()}
    assert shapes == {name: value.shape for name, value in other["state_dict"].items()}


@pytest.mark.slow
def test_rank_zero_alone_makes_the_folder_and_the_mlflow_run(runs: Runs):
    from mlflow.tracking import MlflowClient

    for folder in (runs.two, runs.one_then_two):
        assert [p.name for p in (folder / "outputs").iterdir()] == ["run-001"]
    client = MlflowClient(f"sqlite:///{runs.one_then_two / 'mlflow.db'}")
    (experiment,) = [e for e in client.search_experiments() if e.name == "teamtune"]
    (only,) = client.search_runs([experiment.experiment_id])
    assert only.info.status == "FINISHED"
    own = logged(runs.one)
    for name in ("a/loss", "b/grad_norm", "val/tasks"):
        assert only.data.metrics[name] == pytest.approx(own[2, name], abs=1e-5)
    history = client.get_metric_history(only.info.run_id, "a/loss")
    assert [metric.step for metric in history] == [2]


@pytest.mark.slow
def test_exported_policies_load_and_are_the_trained_ones(runs: Runs):
    from transformers import AutoModelForCausalLM

    trained = checkpoint(runs.two, 2)["state_dict"]
    for name in "ab":
        model = AutoModelForCausalLM.from_pretrained(runs.two / f"outputs/run-001/export/{name}")
        for key, value in model.state_dict().items():
            torch.testing.assert_close(value, trained[f"policies.{name}.scorer.lm.{key}"], **LOOSE)


FAILING = """
import lightning as L

class FailsOnRankOne(L.Callback):
    def on_train_batch_end(self, trainer, pl_module, *args):
        if trainer.global_rank == 1 and pl_module.rollout_step == 2:
            raise RuntimeError("rank one gave up")
"""


@pytest.mark.slow
def test_the_installed_script_runs_and_a_rank_that_fails_ends_the_other(tmp_path: Path):
    """One task over two ranks, so that rank one has none; it fails after the second step."""
    (tmp_path / "failing.py").write_text(FAILING)
    script = tmp_path / "teamtune"  # what pip writes for the entry point of pyproject.toml
    script.write_text("import sys\nfrom teamtune.command.cli import main\n\nsys.exit(main())\n")
    args = team_config(tmp_path, data={"tasks_per_step": 1}, trainer={"max_epochs": 50})
    fails = ["--trainer.callbacks+=failing.FailsOnRankOne"]
    path = os.pathsep.join([str(ROOT / "src"), str(tmp_path)])
    began = time.monotonic()
    done = started([sys.executable, str(script), "fit", *args, *OVERLAY, *fails], PYTHONPATH=path)
    assert done.returncode != 0 and "rank one gave up" in done.stderr
    assert time.monotonic() - began < 400
    assert checkpoint(tmp_path, 1)["team"]["rollout_step"] == 1
    assert len(list(tmp_path.glob("outputs/run-001/checkpoints/step-*.ckpt"))) <= 2
