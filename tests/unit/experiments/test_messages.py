"""Messages are shown by where the goal lies; shuffled ones are those of the board before."""

import asyncio
import json

import yaml
from experiments.ablations import ShuffledRelay
from experiments.messages import read, table

from teamtune.envs.relay import Relay
from teamtune.tasks import Task

OPEN = ["....."] * 5


def test_a_situation_has_its_most_frequent_message_and_its_success(tmp_path, monkeypatch):
    monkeypatch.setattr(
        Relay, "task", lambda self, seed: Task("", {"start": [2, 2], "goal": [2 - seed % 2, 3]})
    )
    (tmp_path / "config.yaml").write_text(
        yaml.safe_dump({"data": {"environment": {"init_args": {"size": 5}}}})
    )
    lines = []
    for seed in range(24):  # every other goal is one up and one right; of those a quarter is missed
        said = "R" if seed % 2 == 0 else "U R" if seed % 8 != 7 else "R U"
        group = {"agent": "scout", "candidates": [{"text": said}]}
        rollout = {"task": f"relay-{seed}", "success": said != "R U", "turn": {"groups": [group]}}
        lines.append(json.dumps(rollout))
    (tmp_path / "rollouts.jsonl").write_text("\n".join(lines))
    assert table(read(tmp_path)).splitlines()[2:] == [
        "| 0, 1 | 12 | R | 100% | 1 | 100% |",
        "| -1, 1 | 12 | U R | 75% | 2 | 75% |",
    ]


def test_a_shuffled_message_is_that_of_the_board_before():
    env = ShuffledRelay(size=5, words=["U", "D", "L", "R"])
    heard = []
    for said in ("U U", "R D", "L"):
        state = env.reset(Task("", {"grid": OPEN, "start": [0, 0], "goal": [4, 4]}))
        step = asyncio.run(env.transition(state, {"scout": said}))
        heard.append(step.state.messages)
    assert heard == [((),), (("U", "U"),), (("R", "D"),)]
