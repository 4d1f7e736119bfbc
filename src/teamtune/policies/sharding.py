"""A policy's weights over several ranks, by torch's `fully_shard` (FSDP2)."""

from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


def shard(scorer: nn.Module, mesh: DeviceMesh, dtype: torch.dtype) -> None:
    """Shards a policy's scorer in place: each transformer block, then what is left.

    Args:
        scorer: A TokenScorer.
        mesh: One axis of ranks.
        dtype: Number format in which gathered weights compute; masters keep theirs.
    """
    options: dict[str, Any] = {
        "mesh": mesh,
        "reshard_after_forward": True,
        "mp_policy": MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32),
    }
    lm: Any = scorer.lm
    for block in lm.get_decoder().layers:
        fully_shard(block, **options)
    fully_shard(scorer, **options)
