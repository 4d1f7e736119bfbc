"""The peak of an update's resident memory in this process, printed beside the planned one.

    python tests/measured_memory.py

Needs MALLOC_MMAP_THRESHOLD_=65536 in the environment: each tensor's memory goes back when it is
freed, which makes the peak that of what lives.
"""

import gc
import random
import tempfile
from pathlib import Path

import torch

from factories import candidate, group
from teamtune.algorithms import ATGRPO
from teamtune.policies import Policy, TinyLlama
from teamtune.training import MultiOptimizerLoop
from teamtune.training.memory import Learner, Shape, plan

CPU = torch.device("cpu")
PROMPT, ANSWER, K = 64, 64, 3
ROW = PROMPT + K * (ANSWER - 1)


def resident(what: str) -> int:
    """VmRSS or VmHWM of this process in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(what))
    return int(line.split()[1]) * 1024


def measure(
    checkpointing: bool, hidden: int, layers: int, words: int, tokens: int
) -> tuple[int, float]:
    """Bytes at the peak of two steps of two micro-batches each, and what was planned."""
    recipe = TinyLlama([f"{{1..{words}}}"], hidden, layers, max(1, hidden // 64), 3 * hidden, 1024)
    policy = Policy(
        recipe,
        lambda p: torch.optim.AdamW(p, lr=1e-4, fused=True),
        token_budget=tokens,
        head_chunk=512,
        gradient_checkpointing=checkpointing,
    )
    with tempfile.TemporaryDirectory() as folder:
        policy.prepare(Path(folder), True, 0)
        rng = random.Random(0)

        def ids(count: int) -> tuple[int, ...]:
            return tuple(rng.randrange(3, words) for _ in range(count))

        groups = [
            group(ids(PROMPT), [candidate(ids(ANSWER), (-1.0) ** k) for k in range(K)], task=str(i))
            for i in range(2 * (tokens // ROW))
        ]
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        before = resident("VmRSS")
        policy.build(None, False)
    optimizers = {"team": policy.optimizer_factory(policy.trainable_parameters())}
    loop = MultiOptimizerLoop(ATGRPO(max_mismatch=None), epochs=2)
    loop.run({"team": policy}, optimizers, {"team": groups}, 1.0, 0, CPU)
    peak = resident("VmHWM") - before
    shape = Shape.of(recipe.config())
    kept = policy.head_kept_gib * 2**30
    learner = Learner(shape, shape.weights, 2.0, 0.0, 1, tokens, 512, kept, checkpointing)
    return peak, plan([learner], 0.0, "float32", 1, 1).peak


if __name__ == "__main__":
    torch.set_num_threads(1)
    for checkpointing in (True, False):  # what is loaded once
        measure(checkpointing, 64, 1, 100, 300)
    for case in ((True, 256, 2, 8000, 1024), (True, 256, 3, 500, 3000), (False, 256, 2, 500, 3000)):
        print(*measure(*case))
