"""A resumed run goes on with the settings that the configuration has now.

A checkpoint gives an optimizer its memory. Its learning rate and other settings are the saved ones
only where the configuration has not changed, and its schedule is walked anew to where it stood, so
that what a user changes is what a run from the start would have come to.
"""

import inspect
import warnings
from collections.abc import Iterable
from typing import Any

from lightning.pytorch.callbacks import Callback, Checkpoint
from torch.optim import Optimizer

from teamtune.policies import Policy
from teamtune.training.fingerprint import settings


def configure(
    policy: Policy, optimizer: Optimizer, schedule: Any, steps: int, before: dict[str, Any]
) -> dict[str, tuple[Any, Any]]:
    """Brings a restored optimizer and its fresh schedule to what `policy` says; bit for bit.

    Args:
        policy: The optimizer's.
        optimizer: With its state, and its settings as they were saved.
        schedule: Its own; None without one.
        steps: Steps that the schedule has taken.
        before: The settings of a fresh optimizer when the run was saved.

    Returns:
        The settings that were changed, each as (before, now).
    """
    planned = policy.optimizer_factory(policy.trainable_parameters())
    configured = [settings(group) for group in planned.param_groups]
    if schedule is not None:
        assert policy.scheduler_factory is not None
        plan = policy.scheduler_factory(planned)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of an optimizer that takes no steps
            for _ in range(steps):
                plan.step()
        schedule.load_state_dict(plan.state_dict())
    for group, new, start in zip(optimizer.param_groups, planned.param_groups, configured):
        taken = {name for name in start if start[name] != before.get(name)}
        if group.pop("initial_lr", None) is not None or schedule is not None:
            now = settings(new)
            taken |= {"lr"} | {name for name in now if now[name] != start.get(name)}
        group.update({name: new[name] for name in taken})
        if "fused" in taken:  # such a step counts on the parameters' device
            optimizer.load_state_dict(optimizer.state_dict())
    first = configured[0]
    return {n: (before.get(n), first[n]) for n in first if first[n] != before.get(n)}


def keep_settings(callbacks: Iterable[Callback], states: dict[str, Any]) -> None:
    """Leaves callbacks the settings of now: what their saved states would overwrite is replaced.

    Args:
        callbacks: As constructed. Those of checkpoints keep what they saved: where their files are.
        states: By `state_key`, as a checkpoint has them; changed in place.
    """
    for callback in callbacks:
        state = states.get(callback.state_key)
        if isinstance(state, dict) and not isinstance(callback, Checkpoint):
            for name in inspect.signature(type(callback)).parameters:
                if name in state and hasattr(callback, name):  # such as a patience
                    state[name] = getattr(callback, name)
