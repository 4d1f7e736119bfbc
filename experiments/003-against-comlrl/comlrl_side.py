"""The authors' trainer on the benchmark's task; runs in the virtual environment that run.py makes.

python comlrl_side.py <model folder> <posts.jsonl> <steps> <posts per step> <G> <new tokens> <lr>

Prints one JSON line per optimizer step: wall time in seconds since the start of the first one, and
the tokens generated so far, up to each end of text. Imports this project's TLDR for the prompts and
the reward, and nothing else of it.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from comlrl.trainers.reinforce import MAGRPOConfig, MAGRPOTrainer
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer

from teamtune.envs.writing import TLDR
from teamtune.tasks import Task

folder, posts = sys.argv[1:3]
steps, posts_per_step, generations, new_tokens = map(int, sys.argv[3:7])
env = TLDR()
tokenizer = AutoTokenizer.from_pretrained(folder)
# The library takes the first padding token for the end of the prompt. SmolLM2 pads with <|im_end|>,
# which ends the system message already; with it a "completion" would begin inside the prompt.
tokenizer.pad_token = "<|endoftext|>"


def agent() -> Any:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    return model


class Timed(MAGRPOTrainer):
    """Stamps each update; changes nothing."""

    tokens = 0

    def _generate_completions(self, *args: Any, **kwargs: Any) -> Any:
        out = super()._generate_completions(*args, **kwargs)
        self.tokens += sum(out["response_lens"])  # the end of text included, padding not
        return out

    def _drain_ready_buffers(self, ready_agents: list[int]) -> None:
        super()._drain_ready_buffers(ready_agents)
        if ready_agents:
            stamp = {"seconds": time.monotonic() - began, "tokens": self.tokens}
            print(json.dumps(stamp), flush=True)


def prompt_of(role: str) -> Any:
    def render(item: dict[str, Any]) -> str:
        messages = env.observe(env.reset(Task(item["id"], {"prompt": item["prompt"]})), role)
        return str(
            tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        )

    return render


def reward(firsts: list[str], seconds: list[str]) -> list[float]:
    return [env.joint_reward(a, b)["total"] for a, b in zip(firsts, seconds)]


rows = [json.loads(line) for line in Path(posts).read_text().splitlines()][: steps * posts_per_step]
trainer = Timed(
    agents=[agent() for _ in env.pair],
    num_agents=2,
    tokenizer=[tokenizer, tokenizer],
    reward_func=reward,
    formatters=[prompt_of(role) for role in env.pair],
    train_dataset=Dataset.from_list([{"id": str(i), **row} for i, row in enumerate(rows)]),
    args=MAGRPOConfig(
        num_train_epochs=1,
        agent_learning_rate=float(sys.argv[7]),
        num_generations=generations,
        max_new_tokens=new_tokens,
        temperature=0.7,
        top_p=1.0,
        top_k=0,
        num_turns=1,
        rollout_buffer_size=posts_per_step,
        advantage_normalization=False,
        eval_interval=0,
        early_termination_threshold=None,
        agent_devices="cpu",
    ),
)
began = time.monotonic()
trainer.train()
