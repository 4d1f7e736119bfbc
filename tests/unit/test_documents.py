"""What the documents show runs."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SNIPPETS = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
EXPERIMENTS = ["001-what-rl-adds/run", "002-writing-team/run", "003-against-comlrl/run", "smollm2"]


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_the_readmes_python_prints_groups_with_credit(snippet, capsys):
    exec(compile(snippet, "README.md", "exec"), {})
    out = capsys.readouterr().out
    assert re.search(r"^plan-path-0 \| proposer \| turn 0 \| policy team$", out, re.M)
    assert re.search(r"^  \* [+-]\d\.\d{3} A [+-]\d\.\d{3} \[stop\] '[UDLR]'$", out, re.M)


def test_the_readme_shows_python():
    assert len(SNIPPETS) == 1


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_experiments_load(name):
    assert runpy.run_path(str(ROOT / f"experiments/{name}.py"), run_name="loaded")["__doc__"]
