"""LoRA: a low-rank update beside every linear layer of the blocks, through peft.

The weights beneath stay as they were, so that the policy without its adapter is the reference.
Engines and exports get base + update as plain weights; the base itself is never written to.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from teamtune.errors import ConfigError
from teamtune.ranges import Positive, PositiveInt

_BASE, _A, _B = ".base_layer", ".lora_A.default.weight", ".lora_B.default.weight"


@dataclass(frozen=True)
class LoRA:
    """W + alpha / rank * B A, of which B and A are trained (arXiv 2106.09685)."""

    rank: PositiveInt = 16
    """Rows of A and columns of B."""
    alpha: Positive = 32.0
    """The update is scaled by alpha / rank."""

    def attach(self, lm: nn.Module, seed: int) -> None:
        """Adds the update to `lm` in place, 0 at first, A drawn by `seed`; only it is trainable.

        Raises:
            ConfigError: A layer that is not a plain linear one, such as the experts of a mixture.
        """
        from peft import LoraConfig, inject_adapter_in_model
        from peft.tuners.tuners_utils import BaseTunerLayer

        config = LoraConfig(r=self.rank, lora_alpha=self.alpha, target_modules="all-linear")  # type: ignore[arg-type]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            inject_adapter_in_model(config, lm)
        for name, module in lm.named_modules():
            if (
                isinstance(module, BaseTunerLayer)
                and type(module.get_base_layer()) is not nn.Linear
            ):
                kind = type(module.get_base_layer()).__name__
                raise ConfigError(f"lora: {name} is {kind}, allowed: models of torch.nn.Linear")
        for name, parameter in lm.named_parameters():
            parameter.requires_grad_(name.endswith((_A, _B)))

    def merged(self, weights: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        """Plain weights by the names of a model without adapter; all ranks must iterate."""
        for name, weight in weights.items():
            if name.endswith((_A, _B)):
                continue
            layer, _, kind = name.rpartition(_BASE)
            if layer and kind == ".weight":
                update = whole(weights[layer + _B]) @ whole(weights[layer + _A])
                yield layer + kind, whole(weight) + self.alpha / self.rank * update
            else:
                yield name.replace(_BASE, ""), whole(weight)


@contextmanager
def switched_off(lm: nn.Module) -> Iterator[None]:
    """`lm` computes without its adapters inside."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    layers = [module for module in lm.modules() if isinstance(module, BaseTunerLayer)]
    for layer in layers:
        layer.enable_adapters(False)
    try:
        yield
    finally:
        for layer in layers:
            layer.enable_adapters(True)


def whole(tensor: Tensor) -> Tensor:
    """A detached tensor, gathered where it is sharded; then all ranks must call."""
    tensor = tensor.detach()
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
