"""What a constructor may be given is said by its types, which the command checks."""

import jsonargparse
import pytest

from teamtune.envs import TLDR, CoopCode, PlanPath
from teamtune.envs.plan_path import DetourTasks, NoisySolver


@pytest.mark.parametrize(
    ("made", "given"),
    [
        (PlanPath, {"size": 0}),
        (PlanPath, {"obstacle_probability": 1.1}),
        (PlanPath, {"max_moves": 0}),
        (PlanPath, {"first_role": "scout"}),
        (NoisySolver, {"noise": -0.1}),
        (NoisySolver, {"sure_moves": -1}),
        (NoisySolver, {"length": 0}),
        (DetourTasks, {"detour_share": 2}),
        (DetourTasks, {"count": 0}),
        (CoopCode, {"feedback": "all"}),
        (CoopCode, {"turns": 0}),
        (TLDR, {"workflow": "chorus"}),
        (TLDR, {"min_words": 0}),
        (TLDR, {"style_cap": 0}),
        (TLDR, {"success_share": 0}),
        (TLDR, {"weights": {"style": -1}}),
        (TLDR, {"weights": {"style": "nan"}}),
    ],
)
def test_values_out_of_range_are_refused_by_their_type(made, given):
    parser = jsonargparse.ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(made, "env")
    required = {"first_seed": 0} if made is DetourTasks else {}
    parser.parse_object({"env": required})
    with pytest.raises(jsonargparse.ArgumentError, match=next(iter(given))):
        parser.parse_object({"env": required | given})
