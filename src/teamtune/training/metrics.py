"""Success rates that add up over batches and ranks."""

import math

import torch
from torch import Tensor
from torchmetrics import Metric

Z95 = 1.959963984540054


def wilson_interval(successes: int, trials: int, z: float = Z95) -> tuple[float, float]:
    """Wilson's score interval for a share, (low, high); (0, 1) for no trials."""
    if trials == 0:
        return 0.0, 1.0
    share, z2 = successes / trials, z * z
    center = (share + z2 / (2 * trials)) / (1 + z2 / trials)
    half = z * math.sqrt(share * (1 - share) / trials + z2 / (4 * trials**2)) / (1 + z2 / trials)
    return max(0.0, center - half), min(1.0, center + half)


class SuccessRate(Metric):
    """Share of episodes that the environment calls solved; failed episodes count as unsolved."""

    full_state_update = False
    successes: Tensor
    trials: Tensor

    def __init__(self) -> None:
        super().__init__()
        zero = torch.tensor(0, dtype=torch.long)
        self.add_state("successes", zero.clone(), dist_reduce_fx="sum")
        self.add_state("trials", zero.clone(), dist_reduce_fx="sum")

    def update(self, outcomes: list[bool]) -> None:
        """Counts the outcomes of further episodes."""
        self.successes += sum(outcomes)
        self.trials += len(outcomes)

    def compute(self) -> dict[str, float]:
        """`success`, its 95 % interval `success_low` and `success_high`, and `tasks`."""
        won, total = int(self.successes), int(self.trials)
        low, high = wilson_interval(won, total)
        return {
            "success": won / total if total else 0.0,
            "success_low": low,
            "success_high": high,
            "tasks": float(total),
        }
