"""What teams are measured by: success, pass@k, the levels of a joint reward, what generation costs.

Metrics add up over batches and ranks; their names are fit for MLflow.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

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
        self.add_state("successes", torch.tensor(0), "sum")
        self.add_state("trials", torch.tensor(0), "sum")

    def update(self, outcomes: list[bool]) -> None:
        """Counts the outcomes of further episodes."""
        self.successes += sum(outcomes)
        self.trials += len(outcomes)

    def compute(self) -> dict[str, float]:
        """`success`, its 95 % interval `success_low` and `success_high`, and `episodes`."""
        won, total = int(self.successes), int(self.trials)
        low, high = wilson_interval(won, total)
        return {
            "success": won / total if total else 0.0,
            "success_low": low,
            "success_high": high,
            "episodes": float(total),
        }


def pass_at_k(n: int, c: int, k: int) -> float:
    """Chance that one or more of `k` samples pass, from `n` samples of which `c` passed; unbiased.

    1 - C(n - c, k) / C(n, k) (Chen et al., 2021), exact in whole numbers.

    Raises:
        ValueError: Not 1 <= k <= n, or not 0 <= c <= n.
    """
    if not 1 <= k <= n:
        raise ValueError(f"k: got {k}, allowed: 1 to n = {n}")
    if not 0 <= c <= n:
        raise ValueError(f"c: got {c}, allowed: 0 to n = {n}")
    return 1 - math.comb(n - c, k) / math.comb(n, k)


class PassAtK(Metric):
    """Mean of the unbiased pass@k over tasks, as `pass_at_<k>`."""

    full_state_update = False
    sums: Tensor
    tasks: Tensor

    def __init__(self, ks: Sequence[int] = (1,)) -> None:
        """
        Args:
            ks: The numbers of samples; each task needs the largest of them at least.
        """
        super().__init__()
        self.ks = tuple(ks)
        self.add_state("sums", torch.zeros(len(self.ks), dtype=torch.float64), "sum")
        self.add_state("tasks", torch.tensor(0), "sum")

    def update(self, passed: Sequence[Sequence[bool]]) -> None:
        """Counts further tasks, each by which of its samples passed."""
        for samples in passed:
            values = [pass_at_k(len(samples), sum(samples), k) for k in self.ks]
            self.sums += torch.tensor(values, dtype=torch.float64, device=self.sums.device)
            self.tasks += 1

    def compute(self) -> dict[str, float]:
        """By name; empty before the first task."""
        total = int(self.tasks)
        return (
            {f"pass_at_{k}": float(s) / total for k, s in zip(self.ks, self.sums)} if total else {}
        )


class JointReturn(Metric):
    """Mean of every level of a joint reward, and of groups of levels, as shares of their maxima.

    With coding teams `test_pass_ratio` is the share of the level that counts passed tests, and
    `cooperation` that of the levels for a helper which is called and matters.
    """

    full_state_update = False
    sums: Tensor
    episodes: Tensor

    def __init__(
        self, maxima: Mapping[str, float], groups: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        """
        Args:
            maxima: The largest value of each level, by name; their sum is the reachable total.
            groups: Names for levels taken together, each a share of their common maximum.

        Raises:
            ValueError: A negative maximum, maxima that are all 0, or a group whose levels are
                unknown or cannot earn anything, or with the name of a level.
        """
        super().__init__()
        if any(not value >= 0 for value in maxima.values()) or not sum(maxima.values()):
            raise ValueError(f"maxima: got {dict(maxima)}, allowed: 0 or more, one above 0")
        for name, levels in (groups or {}).items():
            if name in maxima or not sum(maxima.get(level, 0) for level in levels):
                raise ValueError(
                    f"groups.{name}: got {list(levels)}, allowed: some of {list(maxima)} that can "
                    "earn something, under a name of their own"
                )
            unknown = [level for level in levels if level not in maxima]
            if unknown:
                raise ValueError(f"groups.{name}: unknown {unknown}, allowed: {list(maxima)}")
        self.maxima = dict(maxima)
        self.groups = {name: tuple(levels) for name, levels in (groups or {}).items()}
        self.add_state("sums", torch.zeros(len(self.maxima), dtype=torch.float64), "sum")
        self.add_state("episodes", torch.tensor(0), "sum")

    def update(self, levels: Iterable[Mapping[str, float]]) -> None:
        """Adds the levels of further joint answers; other keys, such as `total`, are ignored."""
        for episode in levels:
            values = [episode[name] for name in self.maxima]
            self.sums += torch.tensor(values, dtype=torch.float64, device=self.sums.device)
            self.episodes += 1

    def compute(self) -> dict[str, float]:
        """`level_<name>` (mean value), each group's share, `total` and `return_share`.

        Empty before the first joint answer.
        """
        count = int(self.episodes)
        if not count:
            return {}
        means = dict(zip(self.maxima, (self.sums / count).tolist()))
        total = sum(means.values())
        shares = {
            group: sum(means[name] for name in names) / sum(self.maxima[name] for name in names)
            for group, names in self.groups.items()
        }
        return {
            **{f"level_{name}": mean for name, mean in means.items()},
            **shares,
            "total": total,
            "return_share": total / sum(self.maxima.values()),
        }


class GenerationCost(Metric):
    """Tokens and seconds per task; rows are only comparable beside them.

    Seconds are those of the slowest rank, scoring included.
    """

    full_state_update = False
    tokens: Tensor
    seconds: Tensor
    tasks: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("tokens", torch.tensor(0), "sum")
        self.add_state("tasks", torch.tensor(0), "sum")
        self.add_state("seconds", torch.tensor(0.0, dtype=torch.float64), "max")

    def update(self, tokens: int, seconds: float, tasks: int) -> None:
        """Adds what generating for `tasks` further tasks took, all agents and turns together."""
        self.tokens += tokens
        self.tasks += tasks
        self.seconds += seconds

    def compute(self) -> dict[str, float]:
        """`tasks`, `tokens`, those and seconds per task, tokens per second; empty before any."""
        tokens, seconds, tasks = int(self.tokens), float(self.seconds), int(self.tasks)
        if not tasks:
            return {}
        return {
            "tasks": float(tasks),
            "tokens": float(tokens),
            "tokens_per_task": tokens / tasks,
            "seconds_per_task": seconds / tasks,
            "tokens_per_second": tokens / seconds if seconds else 0.0,
        }
