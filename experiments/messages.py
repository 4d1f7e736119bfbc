"""What the messages of a Relay team mean: a table of message against situation.

python -m src predict --config <run folder>/config.yaml --ckpt_path <run folder>
python -m experiments.messages <the folder that it names>

A situation is where the goal lies, seen from the actor: rows down, columns right. One line each, of
those with at least ten boards: the message that is heard most often, on how many of the boards, how
many different ones there are, and how often the team reaches the goal.
"""

import json
import sys
from collections import Counter, defaultdict
from pathlib import Path

import yaml

from teamtune.envs.relay import Relay

Said = dict[tuple[int, int], list[tuple[str, bool]]]
FEWEST = 10
"""Boards of a situation that is shown."""


def read(folder: Path) -> Said:
    """First messages and successes by situation, of the rollouts that `predict` has written."""
    config = yaml.safe_load((folder / "config.yaml").read_text())
    env = Relay(**config["data"]["environment"]["init_args"])
    said: Said = defaultdict(list)
    for line in (folder / "rollouts.jsonl").read_text().splitlines():
        rollout = json.loads(line)
        data = env.task(int(rollout["task"].removeprefix("relay-"))).data
        (down, right), (row, column) = data["goal"], data["start"]
        texts = [group["candidates"][0]["text"] for group in rollout["turn"]["groups"]]
        heard = " / ".join(" ".join(env.channel.carried(text) or "-") for text in texts)
        said[down - row, right - column].append((heard, rollout["success"]))
    return said


def table(said: Said) -> str:
    """Markdown, the nearest goals first."""
    lines = ["| goal: down, right | boards | heard most often | on | different | solved |"]
    lines.append("|---|---|---|---|---|---|")
    for down, right in sorted(said, key=lambda at: (abs(at[0]) + abs(at[1]), at)):
        found = said[down, right]
        if len(found) >= FEWEST:
            messages = Counter(message for message, _ in found)
            [(first, times)] = messages.most_common(1)
            solved = sum(success for _, success in found) / len(found)
            cells = [f"{down}, {right}", str(len(found)), first, f"{times / len(found):.0%}"]
            lines.append(f"| {' | '.join([*cells, str(len(messages)), f'{solved:.0%}'])} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(read(Path(sys.argv[1]))))
