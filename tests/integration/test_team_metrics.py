"""What a coding team's evaluation tells: levels, shares and pass@k, in files and in the table."""

import json
from pathlib import Path

import pytest

from command_line import Config, finish, start, write_team
from teamtune.envs import CoopCode
from teamtune.tasks import Task

PROMPT = 'def same(x):\n    """x\n\n    >>> same(1)\n    1\n    """\n'
CHECK = "def check(candidate):\n    assert candidate({0}) == {0}\n"
ROLES = ("helper", "main")


def coding(config: Config) -> None:
    """Two coding roles, whose prompts are one word long, with rows of their own."""
    config["trainer"]["max_epochs"] = 1
    config["data"] |= {
        "environment": {
            "class_path": "teamtune.envs.coop_code.CoopCode",
            "init_args": {"workflow": "parallel", "prompts": "roles"},
        },
        "train": rows("train.jsonl"),
        "val": rows("val.jsonl"),
    }
    config["model"]["algorithm"]["class_path"] = "teamtune.algorithms.MAGRPO"
    config["model"]["policy_map"] = dict.fromkeys(ROLES, "team")
    config["rollout"]["evaluation_samples"] = 2
    config["rollout"]["sampling"]["max_tokens"] = 40


def rows(path: str) -> Config:
    fields = {name: name for name in ("prompt", "entry_point", "test")}
    return {
        "class_path": "teamtune.tasks.DatasetTasks",
        "init_args": {"path": path, "fields": fields},
    }


def write_coding_team(folder: Path) -> None:
    write_team(folder, coding)
    (folder / "roles").mkdir()
    for role in ROLES:
        (folder / "roles" / f"{role}.jinja").write_text("at\n")
    for name, first in (("train", 1), ("val", 7)):
        tasks = [
            {"prompt": f"# {i}\n{PROMPT}", "entry_point": "same", "test": CHECK.format(i)}
            for i in range(first, first + 2)
        ]
        text = "".join(json.dumps(task) + "\n" for task in tasks)
        (folder / f"{name}.jsonl").write_text(text)
    env = CoopCode("parallel", prompts=str(folder / "roles"))
    state = env.reset(Task("t", tasks[0]))
    said = [text for role in ROLES for text in env.sample_actions(state, role)]
    (folder / "words.txt").write_text("at " + " ".join(said))


@pytest.mark.parametrize("command", ["fit", "validate"])
def test_levels_shares_and_pass_at_k_are_told_by_fit_and_validate_alike(tmp_path, command):
    write_coding_team(tmp_path)
    code, output, errors = finish(start(tmp_path, command, "--config", "config.yaml"))
    assert code == 0, errors
    (path,) = tmp_path.rglob("evaluations.json")
    (row,) = json.loads(path.read_text())
    levels = ["helper", "entry_point", "syntax", "tests", "calls_helper", "adds_work", "total"]
    assert set(row["levels"]) == set(levels)
    shares = ["structure", "test_pass_ratio", "cooperation", "pass_at_1", "pass_at_2"]
    assert set(row["shares"]) == set(shares)
    assert row["levels"]["total"] == pytest.approx(4.0 * row["share"])
    assert "pass@2" in output and "cooperation" in output
