"""FSDP2 for teams: every policy is sharded over all ranks, checkpoints do not depend on the layout.

A checkpoint is one file with whole tensors, written by rank zero, exactly as a single process would
write it: what one process saved, any number of ranks resume, and the other way round.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Literal

import torch
from lightning.pytorch.core.optimizer import LightningOptimizer
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

from teamtune.ranges import Positive


class FSDP2Strategy(ModelParallelStrategy):
    """Shards each policy over all ranks (torch's `fully_shard`); master weights stay float32."""

    def __init__(
        self,
        param_dtype: Literal["float32", "bfloat16"] = "float32",
        process_group_backend: str | None = None,
        timeout_minutes: Positive = 120.0,
    ):
        """
        Args:
            param_dtype: Number format in which gathered weights compute; masters stay float32.
            process_group_backend: `nccl` or `gloo`; None chooses by device.
            timeout_minutes: How long ranks wait for each other; longer than the longest rollout.
        """
        super().__init__(
            save_distributed_checkpoint=False,
            process_group_backend=process_group_backend,
            timeout=timedelta(minutes=timeout_minutes),
        )
        self.param_dtype: torch.dtype = getattr(torch, param_dtype)
        """What `Policy.build` is told."""

    def setup_environment(self) -> None:
        # The base class would put all ranks of a node on the tensor-parallel axis, unsharded.
        self._tensor_parallel_size = 1
        self._data_parallel_size = self.num_nodes * self.num_processes
        super().setup_environment()
        assert self.lightning_module is not None
        self.lightning_module._device_mesh = self.device_mesh["data_parallel"]

    def lightning_module_state_dict(self) -> dict[str, Any]:
        assert self.model is not None
        return {name: self._whole(value) for name, value in self.model.state_dict().items()}

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        if isinstance(optimizer, LightningOptimizer):
            optimizer = optimizer._optimizer
        state = optimizer.state_dict()
        whole = {
            index: {name: self._whole(value) for name, value in entry.items()}
            for index, entry in state["state"].items()
        }
        return {"state": whole, "param_groups": state["param_groups"]}

    def load_checkpoint(
        self, checkpoint_path: Any, weights_only: bool | None = None
    ) -> dict[str, Any]:
        path = self.broadcast(checkpoint_path)  # mapped, so that ranks of a machine share its pages
        return torch.load(path, map_location="cpu", mmap=True, weights_only=True)

    @torch.no_grad()
    def load_model_state_dict(self, checkpoint: Mapping[str, Any], strict: bool = True) -> None:
        assert self.model is not None
        own = self.model.state_dict()
        given = checkpoint["state_dict"]
        if strict and own.keys() != given.keys():
            raise ValueError(f"weights differ: {sorted(own.keys() ^ given.keys())[:5]}")
        for name, value in own.items():
            if value.shape != given[name].shape:
                shapes = f"{tuple(given[name].shape)}, allowed: {tuple(value.shape)}"
                raise ValueError(f"{name} in the checkpoint: got shape {shapes}")
            value.copy_(_like(value, given[name]))

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        for optimizer, state in zip(self.optimizers, checkpoint["optimizer_states"]):
            parameters = [p for group in optimizer.param_groups for p in group["params"]]
            placed = {
                index: {
                    name: _like(parameters[index], value)
                    if isinstance(value, Tensor) and value.shape == parameters[index].shape
                    else value
                    for name, value in entry.items()
                }
                for index, entry in state["state"].items()
            }
            optimizer.load_state_dict({**state, "state": placed})

    def save_checkpoint(
        self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any = None
    ) -> None:
        if self.is_global_zero:
            self.checkpoint_io.save_checkpoint(checkpoint, filepath, storage_options)

    def _whole(self, value: Any) -> Any:
        """`value` gathered on the CPU of rank zero; nothing elsewhere, where nothing is written."""
        if isinstance(value, DTensor):
            value = value.full_tensor()
        if not isinstance(value, Tensor):
            return value
        return value.detach().cpu() if self.is_global_zero else None

    @property
    def lightning_restore_optimizer(self) -> bool:
        return True


def _like(own: Tensor, value: Tensor) -> Tensor:
    """A copy of `value`, which every rank has read, laid out as `own`: each rank keeps its part."""
    value = value.to(own.device, copy=True)
    if not isinstance(own, DTensor):
        return value
    return distribute_tensor(value, own.device_mesh, own.placements, src_data_rank=None)
