"""Every shipped configuration composes, through the real command; the README's example runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from teamtune.command.cli import run

ROOT = Path(__file__).parents[2]
CONFIGS = sorted(ROOT.glob("configs/**/*.yaml"))


def files_of(config: Path) -> list[Path]:
    """The files of the command in a header, as far as the file itself."""
    own = str(config.relative_to(ROOT))
    before = re.search(rf"--config (\S+) --config {re.escape(own)}", config.read_text())
    return [ROOT / before[1], config] if before else [config]


def named(config: Path) -> str:
    return f"{config.parent.name}/{config.stem}"


@pytest.mark.parametrize("config", CONFIGS, ids=named)
def test_the_configuration_is_complete_and_has_no_unknown_key(config, capsys):
    files = files_of(config)
    with pytest.raises(SystemExit) as end:
        run(
            ["fit", *(part for path in files for part in ("--config", str(path))), "--print_config"]
        )
    assert end.value.code in (0, None)
    shown = yaml.safe_load(capsys.readouterr().out)
    for path in files:
        assert set(yaml.safe_load(path.read_text())) <= {*shown, "base"}
    assert set(shown["model"]["policy_map"].values()) == set(shown["model"]["policies"])
    assert shown["trainer"]["devices"] and shown["data"]["tasks_per_step"] >= 2
    if shown["trainer"]["accelerator"] == "gpu":
        trained = [p["init_args"] for p in shown["model"]["policies"].values()]
        assert all(p["optimizer"]["init_args"]["fused"] for p in trained if p["trainable"])


def test_a_variant_shows_the_values_of_what_it_lies_over(capsys):
    config = ROOT / "configs/plan_path/at_grpo_specialized_qwen3_8b.yaml"
    with pytest.raises(SystemExit):
        run(["fit", "--config", str(config), "--print_config"])
    shown = yaml.safe_load(capsys.readouterr().out)
    assert shown["data"]["environment"]["init_args"]["obstacle_probability"] == 0.22
    assert set(shown["model"]["policies"]) == {"tool", "planner"}
    for policy in shown["model"]["policies"].values():
        assert policy["init_args"]["model"] == "Qwen/Qwen3-8B"
        assert policy["init_args"]["optimizer"]["init_args"]["lr"] == 1e-6
    assert shown["trainer"]["default_root_dir"].endswith("specialized_qwen3_8b")


@pytest.mark.parametrize("config", CONFIGS, ids=named)
def test_the_header_says_what_a_reader_needs(config):
    header = "".join(
        line for line in config.read_text().splitlines(keepends=True) if line.startswith("#")
    ).lower()
    shown = re.findall(r"--config (\S+\.yaml)", config.read_text())
    assert shown and all((ROOT / path).is_file() for path in shown)
    assert "hardware" in header or "gpu" in header
    assert "expect" in header


def test_the_example_in_the_readme_runs():
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[1]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT / "src", capture_output=True, text=True, check=True
    )
    assert "plan-path-0 | proposer | turn 0" in done.stdout


def test_the_short_run_stands_before_the_long_one_near_the_top_of_the_readme():
    head = (ROOT / "README.md").read_text().splitlines()[:55]
    runs = [line.strip() for line in head if line.startswith("    python -m src")]
    assert runs == [
        f"python -m src fit --config configs/{n}.yaml" for n in ("first_run", "quickstart")
    ]
