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


def base_of(config: Path) -> list[Path]:
    """What an overlay is laid over in the command of its header; nothing for a whole one."""
    text = config.read_text()
    if "policy_map:" in text:
        return []
    own = re.escape(str(config.relative_to(ROOT)))
    return [ROOT / re.search(rf"--config (\S+) --config {own}", text)[1]]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_configuration_is_complete_and_has_no_unknown_key(config, capsys):
    files = [part for path in [*base_of(config), config] for part in ("--config", str(path))]
    with pytest.raises(SystemExit) as end:
        run(["fit", *files, "--print_config"])
    assert end.value.code in (0, None)
    parsed = yaml.safe_load(capsys.readouterr().out)
    given = yaml.safe_load(config.read_text())
    for section in given:
        assert section in parsed
    assert parsed["model"]["algorithm"]["class_path"].endswith("GRPO")


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_header_says_what_a_reader_needs(config):
    header = "".join(
        line for line in config.read_text().splitlines(keepends=True) if line.startswith("#")
    ).lower()
    assert "--config" in header
    assert "hardware" in header or "gpu" in header
    assert "expect" in header


def test_the_example_in_the_readme_runs():
    code = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[1]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT / "src", capture_output=True, text=True, check=True
    )
    assert "plan-path-0 | proposer | turn 0" in done.stdout


def test_the_commands_stand_in_the_first_fifteen_lines_of_the_readme():
    head = (ROOT / "README.md").read_text().splitlines()[:15]
    assert any("python -m src fit --config configs/quickstart.yaml" in line for line in head)
    assert any("pytest" in line for line in head)
