"""Watches for agents that nothing trains: an answer that is never better than another one."""

from collections.abc import Mapping

PATIENCE = 10
"""Steps in a row before it is said."""


class Silence:
    """Counts, by agent, the steps in a row in which none of its candidates had an advantage."""

    def __init__(self) -> None:
        self.steps: dict[str, int] = {}

    def observe(self, credited: Mapping[str, bool]) -> list[str]:
        """A step's agents, and whether any of their candidates was credited; what to say of it."""
        told = []
        for agent, heard in credited.items():
            self.steps[agent] = 0 if heard else self.steps.get(agent, 0) + 1
            if self.steps[agent] == PATIENCE:
                told.append(
                    f"agent {agent!r} has learned nothing for {PATIENCE} steps: all candidates of "
                    "each of its groups were worth the same. If they differ in what happens later "
                    "only, take an algorithm that looks there (MAGRPO, GRPO) or reward the agent "
                    "itself; if they are all equal, raise rollout.sampling.temperature or "
                    "entropy_coef; if all fail or all succeed, change the tasks"
                )
        return told
