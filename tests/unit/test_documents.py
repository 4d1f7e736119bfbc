"""What the documents show runs, and what they list is all there is."""

import ast
import inspect
import json
import re
import runpy
import sys
from importlib import import_module
from pathlib import Path

import pytest
import yaml
from torch.optim import AdamW

from teamtune.algorithms import ATGRPO, GRPO, MAGRPO
from teamtune.callbacks import MemoryPlan, RolloutCallback
from teamtune.command.cli import run
from teamtune.envs import CoopCode, check_env
from teamtune.experience import Rollout, groups_of
from teamtune.experience.ledger import Ledger
from teamtune.inference import Sampling, ScriptedEngine
from teamtune.inference.vllm import VLLMEngine
from teamtune.policies import Policy
from teamtune.rollout import TrajectorySampler, collect
from teamtune.sandbox import Sandbox
from teamtune.tasks import Task
from teamtune.training import TeamModule
from teamtune.training.data import TaskDataModule

ROOT = Path(__file__).parents[2]
README, CONTRIBUTING = ((ROOT / f"{name}.md").read_text() for name in ("README", "CONTRIBUTING"))
SNIPPETS = re.findall(r"^```python\n(.*?)^```", README, re.M | re.S)
EXPERIMENTS = ["003-against-comlrl/run", "smollm2", "study"]
FILES = dict(re.findall(r"^`([\w./]+)`[^\n]*:\n\n```\w+\n(.*?)^```", CONTRIBUTING, re.M | re.S))
"""What CONTRIBUTING shows, by file name."""
TUTORIAL, TROUBLE, METRICS = (
    (ROOT / f"docs/{name}.md").read_text() for name in ("tutorial", "troubleshooting", "metrics")
)
LISTED = dict(re.findall(r"^`([\w./]+)`:\n\n```\w+\n(.*?)^```", TUTORIAL, re.M | re.S))
"""The files that the tutorial shows, by path."""
CHECK = re.search(r"^```python\n(check_env.*?)^```", CONTRIBUTING, re.M | re.S)[1]
TEAM = {"lookout": "team", "opener": "team"}


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


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """CONTRIBUTING's files in the folder where the command is called."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text.replace("base: configs", f"base: {ROOT}/configs"))
        monkeypatch.delitem(sys.modules, Path(name).stem, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_an_environment_takes_sixty_lines_and_an_algorithm_forty():
    lines = {name: text.count("\n") for name, text in FILES.items()}
    assert lines["ranked.py"] <= 40
    environment = ("vault.py", "prompts/all.jinja", "vault.yaml")
    assert sum(lines[name] for name in environment) + CHECK.count("\n") <= 60


def test_the_new_environment_keeps_the_contract_and_needs_both_agents(folder):
    vault = import_module("vault").Vault()
    exec(CHECK, {"check_env": check_env, "Vault": type(vault)})
    said = {"lookout 3 7": "3 7", "opener 3 7": "3 7", "opener ?": "0 0"}
    for silent, solved in ((False, True), (True, False)):
        engine = ScriptedEngine(lambda p, _, s=silent: "" if s and p[0] == "l" else said[p])
        tasks = [Task("t", {"code": "37"})]
        (rollout,) = collect(vault, tasks, TrajectorySampler(), {"team": engine}, TEAM)
        assert (rollout.success, rollout.return_) == ((True, 2.0) if solved else (False, 0.0))


@pytest.mark.parametrize(("winners_only", "last"), [(False, -1.0), (True, 0.0)])
def test_the_new_algorithm_credits_ranks(folder, winners_only, last):
    """Codes half right, fully, not at all, half: returns 0.5, 2, 0, 0.5, ranks 2.5, 1, 4, 2.5."""
    vault, ranked = import_module("vault").Vault(), import_module("ranked")
    algorithm = ranked.Ranked(winners_only=winners_only, num_candidates=4)
    entered = iter(["3 0", "3 7", "0 0", "0 7"])
    engine = ScriptedEngine(lambda prompt, _: "3 7" if prompt[0] == "l" else next(entered))
    tasks = [Task("t", {"code": "37"})]
    rollouts = collect(vault, tasks, algorithm.sampler, {"team": engine}, TEAM)
    algorithm.assign_credit(rollouts)
    assert sorted(r.return_ for r in rollouts) == [0.0, 0.5, 0.5, 2.0]
    credit = {0.0: last, 0.5: 0.0, 2.0: 1.0}
    for rollout in rollouts:
        assert [c.advantage for c in rollout.candidates] == [credit[rollout.return_]] * 2
    learned = algorithm.trainable(groups_of(rollouts))
    assert len(learned) == (2 if winners_only else 4)
    assert algorithm.denominator(learned) == 4 * len(learned)  # "3 7" and its end


@pytest.mark.slow
def test_the_new_team_trains_by_the_new_algorithm_and_a_callback_sees_its_answers(folder):
    """The callback runs after ours: at its hook the step's rollouts are there."""
    options = ["--data.val.count=2", "--data.tasks_per_step=2", "--trainer.max_epochs=1"]
    options += ["--trainer.logger=lightning.pytorch.loggers.CSVLogger"]
    options += ["--trainer.logger.save_dir=csv", "--model.algorithm=ranked.Ranked"]
    run(["fit", "--config", "vault.yaml", *options, "--trainer.callbacks+=longest.LongestAnswer"])
    assert (folder / "outputs/vault/run-001/export/team/model.safetensors").is_file()
    (path,) = folder.rglob("metrics.csv")
    assert "rollout/longest" in path.read_text().splitlines()[0].split(",")


@pytest.mark.slow
def test_the_glossary_lists_what_runs_log(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    csv = {"class_path": "lightning.pytorch.loggers.CSVLogger", "init_args": {"save_dir": "csv"}}
    warm = {"class_path": "WarmStart", "init_args": {"steps": 1, "tasks_per_step": 2}}
    overlay = {
        "base": str(ROOT / "configs/quickstart.yaml"),
        "trainer": {"max_epochs": 1, "logger": csv, "callbacks": [warm]},
        "data": {"tasks_per_step": 2, "val": {"init_args": {"count": 2}}},
        "model": {"algorithm": {"init_args": {"num_candidates": 2, "kl_coef": 0.1}}},
        "rollout": {"evaluation_samples": 2},
    }
    Path("tiny.yaml").write_text(yaml.safe_dump(overlay))
    run(["fit", "--config", "tiny.yaml"])
    (path,) = tmp_path.rglob("metrics.csv")
    names = set(path.read_text().splitlines()[0].split(",")) - {"step"}
    env = CoopCode()
    for prefix in ("rollout", "val"):  # of a team whose rewards have levels
        ledger = Ledger(prefix, env)
        ledger.book([Rollout("t")], 1.0)
        names |= set(ledger.close())
    agents = "|".join(("proposer", "planner"))
    for pattern, name in (
        (r"^team/", "<policy>/"),
        (rf"/({agents})/", "/<agent>/"),
        (rf"/level_({'|'.join(env.maxima)})$", "/level_<level>"),
        (rf"/({'|'.join(env.shares)})$", "/<share>"),
        (r"/pass_at_\d$", "/pass_at_<k>"),
    ):
        names = {re.sub(pattern, name, found) for found in names}
    cells = re.findall(r"^\| (`.*?`) \|", (ROOT / "docs/metrics.md").read_text(), re.M)
    assert sorted(names) == sorted(name for cell in cells for name in re.findall("`(.*?)`", cell))


def test_the_tutorial_shows_the_files_that_the_first_run_uses():
    assert list(LISTED) == ["src/teamtune/envs/doors.py", "configs/first_run.yaml"]
    for path, text in LISTED.items():
        assert text == (ROOT / path).read_text()


def test_the_tutorials_code_takes_about_sixty_lines():
    tree = ast.parse(LISTED["src/teamtune/envs/doors.py"])
    for node in ast.walk(tree):
        if ast.get_docstring(node) if isinstance(node, ast.Module | ast.ClassDef) else None:
            del node.body[0]
    assert len(ast.unparse(tree).replace("\n\n", "\n").splitlines()) <= 60


def test_the_tutorials_check_passes():
    snippets = re.findall(r"^```python\n(.*?)^```", TUTORIAL, re.M | re.S)
    (check,) = [text for text in snippets if "check_env" in text]
    exec(compile(check, "tutorial.md", "exec"), {})


@pytest.mark.slow
def test_a_copy_of_the_tutorials_game_trains(tmp_path, monkeypatch):
    """From the document's own text, as "Your own" says, in fewer steps."""
    doors, config = LISTED.values()
    (tmp_path / "doors.py").write_text(doors)
    (tmp_path / "own.yaml").write_text(config.replace("teamtune.envs.doors.", "doors."))
    monkeypatch.delitem(sys.modules, "doors", raising=False)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    run(["fit", "--config", "own.yaml", "--trainer.max_epochs=20", "--trainer.logger=false"])
    done = tmp_path / "outputs/first_run/run-001"
    assert (done / "learning_curve.png").is_file()
    curve = [row["success"] for row in json.loads((done / "evaluations.json").read_text())]
    assert curve[-1] > 0.5 > curve[0]  # a guess is right in a quarter


def test_every_name_in_the_page_on_trouble_exists():
    """Metrics are in the glossary; keys are arguments of what a configuration names."""
    parts = [ATGRPO, MAGRPO, GRPO, Policy, VLLMEngine, Sampling, Sandbox, TaskDataModule]
    parts += [RolloutCallback, MemoryPlan, TeamModule, AdamW]
    keys = {
        name
        for part in parts
        for base in part.__mro__
        if "__init__" in vars(base)
        for name in inspect.signature(base).parameters
    }
    classes = {part.__name__ for part in parts}
    named = set(re.findall(r"`([^`\n]+)`", TROUBLE)) - {"rollouts.html"}
    metrics = {name for name in named if "/" in name}
    assert len(metrics) > 8
    assert all(f"`{name}`" in METRICS for name in metrics)
    assert {name.split(".")[-1] for name in named - metrics} <= keys | classes
    for path in re.findall(r"\]\(([^)]+)\)", TROUBLE + TUTORIAL + README):
        assert path.startswith("http") or any(
            (ROOT / folder / path).exists() for folder in ("docs", ".")
        )
