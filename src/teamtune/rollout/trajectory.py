"""Trajectory sampling: one answer per agent and turn, as a team is used after training."""

from dataclasses import replace

from teamtune.inference import RolloutEngine, Sampling
from teamtune.rollout.tree import TreeSampler


class TrajectorySampler(TreeSampler):
    """A single path without branches; the default sampling is greedy decoding, as in evaluation."""

    def __init__(self, max_turns: int = 4, sampling: Sampling | None = None):
        """
        Args:
            max_turns: How often each agent acts at most.
            sampling: How to draw tokens; None takes each engine's default at temperature 0.
        """
        super().__init__(num_candidates=1, max_turns=max_turns, sampling=sampling)

    def sampling_for(self, engine: RolloutEngine) -> Sampling:
        return self.sampling or replace(engine.sampling, temperature=0.0, top_p=1.0, top_k=0)
