"""Every command that the README shows, shortened; what this machine cannot run is composed."""

import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from teamtune.command.cli import run

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
COMMANDS = [
    shlex.split(line, comments=True)
    for line in re.findall(r"^    python -m src (.*)$", README, re.M)
]
TINY = ("configs/first_run.yaml", "configs/quickstart.yaml")
OVERLAYS = ("configs/engine/vllm.yaml", "configs/hardware/fsdp2.yaml")
"""Those need vLLM or two devices."""
SHORT = {
    "trainer": {
        "max_epochs": 1,
        "callbacks": [{"class_path": "WarmStart", "init_args": {"steps": 1, "tasks_per_step": 2}}],
    },
    "data": {"tasks_per_step": 2, "val": {"init_args": {"count": 2}}},
    "model": {"algorithm": {"init_args": {"num_candidates": 2}}},
}


def runs_here(command: list[str]) -> bool:
    return any(name in command for name in TINY) and not any(name in command for name in OVERLAYS)


def files(command: list[str]) -> list[str]:
    return [value for key, value in pairwise(command) if key == "--config"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where `configs` is the README's and outputs are the test's."""
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    (tmp_path / "short.yaml").write_text(yaml.safe_dump(SHORT))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_readme_shows_commands_of_every_kind():
    assert {command[0] for command in COMMANDS} == {"fit", "validate", "predict"}
    assert {name for command in COMMANDS for name in files(command)} >= {*TINY, *OVERLAYS}


@pytest.mark.slow
def test_the_commands_run_in_their_order(folder):
    """A checkpoint named in one is that of an earlier one."""
    shown = [command for command in COMMANDS if runs_here(command)]
    for command in shown:
        last = max(i for i, part in enumerate(command) if part in TINY)
        run([*command[: last + 1], "--config", "short.yaml", *command[last + 1 :]])
    assert len(shown) >= 7
    for name in ("first_run", "quickstart"):
        done = folder / "outputs" / name / "run-001"
        assert (done / "learning_curve.png").is_file() and (done / "result.md").is_file()
    assert list(folder.glob("outputs/quickstart/run-*/rollouts.jsonl"))


@pytest.mark.parametrize(
    "command", [c for c in COMMANDS if not runs_here(c) and files(c)], ids=" ".join
)
def test_the_other_commands_compose(command, folder, capsys):
    with pytest.raises(SystemExit) as end:
        run([*command, "--print_config"])
    assert end.value.code in (0, None)
    assert set(yaml.safe_load(capsys.readouterr().out)) >= {"model", "data", "trainer"}


@pytest.mark.parametrize("command", [c for c in COMMANDS if not files(c)], ids=" ".join)
def test_help_is_printed(command, folder, capsys):
    with pytest.raises(SystemExit) as end:
        run(command)
    assert end.value.code in (0, None)
    assert "usage" in capsys.readouterr().out.lower()


@pytest.mark.slow
@pytest.mark.vllm
def test_the_command_with_vllm_runs(folder):
    pytest.importorskip("vllm")
    (command,) = [c for c in COMMANDS if files(c) == ["configs/quickstart.yaml", OVERLAYS[0]]]
    run([*command, "--config", "short.yaml"])
    assert (folder / "outputs/quickstart/run-001/result.md").is_file()
