"""What a set of rollouts tells, as (sum, count) pairs that add up over ranks."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from teamtune.experience.records import Rollout

Sums = dict[str, tuple[float, int]]


def summarize(rollouts: Sequence[Rollout], prefix: str, levels: Sequence[str] = ()) -> Sums:
    """Outcome, rewards per agent, stop reasons, failures and lengths under `<prefix>/`.

    A task with a prompt too long for the engine's context is `too_long`; what was asked with that
    prompt, or at once with it, has not `failed`. Rewards of unjudged steps are left out.

    Args:
        rollouts: The episodes.
        prefix: What the names begin with.
        levels: Those of the environment's rewards; a broken off episode has earned 0 at each.
    """
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0])

    def add(name: str, value: float) -> None:
        entry = sums[f"{prefix}/{name}"]
        entry[0] += value
        entry[1] += 1

    for rollout in rollouts:
        add("success", float(rollout.success))
        add("return", rollout.return_)
        add("broken_off", float(rollout.error is not None))
        add("too_long", float(rollout.too_long))
        for level in levels:
            add(f"level_{level}", rollout.levels.get(level, 0.0))
        for group in rollout.groups:
            agent = group.key.agent
            add(f"{agent}/spread", group.spread)
            for c in group.candidates:
                add("failed", float(c.reward is None and not c.excused))
                for reason in ("stop", "length"):
                    add(f"stop_{reason}", float(c.stop_reason == reason))
                add("completion_tokens", len(c.token_ids))
                if c.reward_local is not None and c.reward_team is not None:
                    add(f"{agent}/malformed", float(c.malformed))
                    if c.judged:
                        add(f"{agent}/reward_local", c.reward_local)
                        add(f"{agent}/reward_team", c.reward_team)
    return {name: (value, int(count)) for name, (value, count) in sums.items()}


def merged(parts: Iterable[Mapping[str, tuple[float, int]]]) -> dict[str, float]:
    """Means over all ranks' sums; a name that some ranks lack is a mean over the others."""
    total: dict[str, tuple[float, int]] = {}
    for part in parts:
        for name, (value, count) in part.items():
            old = total.get(name, (0.0, 0))
            total[name] = (old[0] + value, old[1] + count)
    return {name: value / count for name, (value, count) in sorted(total.items()) if count}
