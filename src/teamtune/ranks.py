"""The few collectives of an update; each is the identity in a single process."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def world_size() -> int:
    """How many processes train together."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """This process's number among them."""
    return dist.get_rank() if world_size() > 1 else 0


def summed(values: Tensor) -> Tensor:
    """The sum over ranks, elementwise."""
    if world_size() > 1:
        values = values.clone()
        dist.all_reduce(values)
    return values


def largest(value: float, device: torch.device) -> float:
    """The maximum over ranks."""
    if world_size() == 1:
        return value
    tensor = torch.tensor(value, dtype=torch.float64, device=device)
    dist.all_reduce(tensor, dist.ReduceOp.MAX)
    return float(tensor)


def gathered(value: Any) -> list[Any]:
    """Every rank's value, in the order of ranks."""
    if world_size() == 1:
        return [value]
    values: list[Any] = [None] * world_size()
    dist.all_gather_object(values, value)
    return values
