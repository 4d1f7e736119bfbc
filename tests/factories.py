"""Makers of small records and models that several tests share."""

import itertools
import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from teamtune.envs import Reward
from teamtune.experience import Candidate, Group, GroupKey, Joint, Rollout, Score, Turn
from teamtune.inference import Completion
from teamtune.policies import Policy

VOCABULARY = 29
END = 2


def candidate(ids: Sequence[int], advantage: float = 1.0, **settings: Any) -> Candidate:
    """A scored answer of `ids`, sampled with log-prob -1 each; its reward is its advantage."""
    logprobs = settings.pop("sampling_logprobs", (-1.0,) * len(ids))
    reward = settings.pop("reward", advantage)
    completion = Completion(tuple(ids), logprobs, " ".join(map(str, ids)), "stop", 0)
    made = Candidate(completion, "failed", advantage=advantage, return_=reward)
    if reward is not None:
        made.settle(Score(reward, reward, 0.0))
    for name, value in settings.items():
        setattr(made, name, value)
    return made


def redraw(candidate: Candidate, logprobs: Sequence[float]) -> None:
    """Lets its tokens be drawn with other log-probs."""
    candidate.completion = replace(candidate.completion, logprobs=tuple(logprobs))


def joint(picks: Sequence[int], reward: float, agents: Sequence[str], **settings: Any) -> Joint:
    """A joint action for which all agents get the team reward `reward`."""
    return Joint(tuple(picks), None, {a: Reward(team=reward) for a in agents}, 0.0, **settings)


POLICIES = {"left": "a", "right": "b"}
Said = tuple[str, Sequence[int], Sequence[int]]
"""An agent, the ids of its prompt and those of its answer."""


def episode(
    number: int,
    return_: float,
    *steps: tuple[float, Sequence[Said]],
    task: str = "t",
    error: str | None = None,
) -> Rollout:
    """An episode of steps, each of which made some progress; with an error the last one failed."""
    acted: Counter[str] = Counter()
    turns = []
    for progress, said in steps or [(return_, [("left", (7,), (3, END))])]:
        groups = []
        for agent, prompt, ids in said:
            key = GroupKey(task, agent, acted[agent], f"#{number}")
            acted[agent] += 1
            groups.append(
                Group(key, POLICIES[agent], "", tuple(prompt), [candidate(ids, None, reward=0.0)])
            )
        played = joint([0] * len(groups), progress, [s[0] for s in said], carried=True)
        played.progress = progress
        turns.append(Turn(None, groups, [played]))
    if error:
        turns[-1].joints, turns[-1].error = [], error
        for group in turns[-1].groups:
            group.candidates[0].fail(error)
    for turn, later in itertools.pairwise(turns):
        turn.joints[0].opens = later
    return Rollout(task, turns[0], False, return_, error, episode=number)


def rollouts_of(groups: Sequence[Group]) -> list[Rollout]:
    """One rollout per group, of one turn in which every candidate was played alone."""
    return [Rollout(g.key.task, Turn(None, [g], _joints(g))) for g in groups]


def _joints(group: Group) -> list[Joint]:
    return [
        Joint((j,), None, {group.key.agent: Reward(c.reward)}, c.reward)
        for j, c in enumerate(group.candidates)
        if c.reward is not None
    ]


def group(
    prompt: Sequence[int],
    answers: Sequence[Candidate],
    task: str = "task-0",
    agent: str = "planner",
    policy: str = "team",
) -> Group:
    """The candidates `answers` to the prompt ids `prompt`."""
    return Group(GroupKey(task, agent, 0), policy, "", tuple(prompt), list(answers))


def random_group(rng: random.Random, answers: int = 3, flat: bool = False, **key: str) -> Group:
    """Prompt of 2 to 9 ids, answers of 1 to 5 that end with END; advantages of sum 0, or all 0."""
    prompt = [rng.randrange(3, VOCABULARY) for _ in range(rng.randint(2, 9))]
    credit = [0.0] * answers if flat else [rng.uniform(-1, 1) for _ in range(answers)]
    mean = sum(credit) / answers
    candidates = []
    for a in credit:
        ids = [*(rng.randrange(3, VOCABULARY) for _ in range(rng.randint(0, 4))), END]
        logprobs = tuple(rng.uniform(-4.0, -2.5) for _ in ids)
        candidates.append(candidate(ids, a - mean, sampling_logprobs=logprobs))
    return group(prompt, candidates, **key)


def written(path: Path, *rows: Any) -> str:
    """A JSONL file of rows; a text stands for a line as it is."""
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def model_folder(folder: Path, kind: str = "llama", seed: int = 0, tied: bool = False) -> Path:
    """A randomly drawn two-layer model of VOCABULARY ids.

    Its kinds are `llama`, `qwen3`, and with a window of four positions `mistral` (all blocks) and
    `gemma3` (the first).
    """
    import transformers as hf

    sizes: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        "tie_word_embeddings": tied,
        "initializer_range": 0.3,
        "bos_token_id": None,
        "eos_token_id": END,
        "dtype": "float32",
    }
    torch.manual_seed(seed)
    if kind == "qwen3":
        model: Any = hf.Qwen3ForCausalLM(hf.Qwen3Config(**sizes, head_dim=8))
    elif kind == "mistral":
        model = hf.MistralForCausalLM(hf.MistralConfig(**sizes, sliding_window=4))
    elif kind == "gemma3":
        kinds = ["sliding_attention", "full_attention"]
        more = {"head_dim": 8, "query_pre_attn_scalar": 8, "pad_token_id": 0}
        config = hf.Gemma3TextConfig(**sizes, **more, layer_types=kinds, sliding_window=4)
        model = hf.Gemma3ForCausalLM(config)
    else:
        model = hf.LlamaForCausalLM(hf.LlamaConfig(**sizes))
    model.save_pretrained(folder)
    return folder


def built_policy(
    folder: Path, reference: bool = False, mesh: Any = None, **settings: Any
) -> Policy:
    """A policy of the model in `folder`, its weights loaded; plain SGD unless given otherwise."""
    settings = {"optimizer": lambda p: torch.optim.SGD(p, lr=0.1), "max_grad_norm": 1e9} | settings
    policy = Policy(str(folder), **settings)
    policy.build(mesh, reference)
    return policy


def plain_logits(policy: Policy, ids: Sequence[int]) -> torch.Tensor:
    """[len(ids), vocabulary], by the model alone, its own attention and mask."""
    assert policy.scorer is not None
    lm = policy.scorer.lm
    own = lm.config._attn_implementation
    lm.set_attn_implementation("eager")
    try:
        return lm(input_ids=torch.tensor([ids])).logits[0]
    finally:
        lm.set_attn_implementation(own)


MOVES_PROMPT = """\
{{ "L" if role == "planner" else "R" }}{{ " U" * row }} L{{ " D" * column }} R
{{ " U" * goal_row }} L{{ " D" * goal_column }}
{% for line in grid %}{% for c in line %} {{ "U" if c == "." else "D" }}{% endfor %}{% endfor %}
 L {{ proposals[0] | join(" ") if proposals and proposals[0] else "" }}
"""


def team_config(folder: Path, shared: bool = False, **sections: Any) -> list[str]:
    """Writes a small Plan-Path team to `folder`; returns the command's arguments that name it.

    Prompts and answers are made of the four moves alone, so that an untrained model finds moves.
    `sections` are laid over the configuration, e.g. `data={"tasks_per_step": 2}`.
    """
    import yaml

    from teamtune.command.overlays import merge

    (folder / "prompts").mkdir(parents=True, exist_ok=True)
    (folder / "prompts" / "all.jinja").write_text(MOVES_PROMPT)
    (folder / "words.txt").write_text("U D L R")

    def made(path: str, **init_args: Any) -> dict[str, Any]:
        return {"class_path": path, "init_args": init_args}

    def policy() -> dict[str, Any]:
        model = {"vocabulary": str(folder / "words.txt"), "hidden_size": 32, "num_layers": 2}
        model |= {"num_heads": 2, "intermediate_size": 64, "context_length": 80}
        return made(
            "teamtune.policies.Policy",
            model=made("teamtune.policies.TinyLlama", **model),
            optimizer=made("torch.optim.AdamW", lr=2.0e-3, weight_decay=0.0),
            scheduler=made(
                "torch.optim.lr_scheduler.LinearLR", start_factor=1.0, end_factor=0.1, total_iters=8
            ),
        )

    board = {"size": 5, "obstacle_probability": 0.1, "max_moves": 3, "first_role": "proposer"}
    config: dict[str, Any] = {
        "seed_everything": 3,
        "trainer": {
            "accelerator": "cpu",
            "devices": 1,
            "max_epochs": 4,
            "check_val_every_n_epoch": 2,
            "default_root_dir": str(folder / "outputs"),
            "logger": made("lightning.pytorch.loggers.CSVLogger", save_dir=str(folder / "csv")),
        },
        "data": {
            "environment": made("teamtune.envs.PlanPath", prompts=str(folder / "prompts"), **board),
            "train": made("teamtune.tasks.GeneratedTasks", first_seed=1000),
            "val": made("teamtune.tasks.GeneratedTasks", first_seed=0, count=1),
            "tasks_per_step": 3,
        },
        "model": {
            "algorithm": made("teamtune.algorithms.ATGRPO", num_candidates=4, max_turns=2),
            "policies": {"a": policy()} if shared else {"a": policy(), "b": policy()},
            "policy_map": {"proposer": "a", "planner": "a" if shared else "b"},
        },
        "rollout": {
            "engine": made("teamtune.inference.TransformersEngine"),
            "sampling": {"temperature": 1.0, "max_tokens": 4},
        },
        "checkpoint": {"every_n_steps": 1, "keep": 100},
        "traces": {"every_n_steps": 1, "num_tasks": 100},
    }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(merge(config, sections), sort_keys=False))
    return ["--config", str(path)]


def logged(folder: Path) -> dict[tuple[int, str], float]:
    """What CSVLogger kept under `folder`, by rollout step and metric, without times."""
    import csv

    found = {}
    for path in sorted(folder.glob("csv/**/metrics.csv")):
        with path.open() as file:
            for row in csv.DictReader(file):
                for name, value in row.items():
                    if (
                        value
                        and name != "step"
                        and "time/" not in name
                        and "per_second" not in name
                        and "seconds_per" not in name
                    ):
                        found[int(row["step"]), name] = float(value)
    return found


def checkpoint(folder: Path, step: int) -> dict[str, Any]:
    """The newest run's checkpoint after `step`."""
    run = sorted(folder.glob("outputs/run-*"))[-1]
    return torch.load(run / f"checkpoints/step-{step:06d}.ckpt", weights_only=True)
