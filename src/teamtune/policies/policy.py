"""A policy: the weights behind one or several agents, and how they are optimized."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import lightning as L
import torch
from lightning.pytorch.utilities.rank_zero import rank_zero_warn
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from teamtune.errors import ConfigError
from teamtune.inference.chat import HFChat
from teamtune.inference.pretrained import (
    SAFE,
    check_weights,
    copy_generation_config,
    load,
    outline,
    read_config,
    read_tokenizer,
)
from teamtune.policies.adapter import LoRA, switched_off, whole
from teamtune.policies.attention import register
from teamtune.policies.scorer import TokenScorer, check_scorable
from teamtune.policies.tiny import TinyLlama
from teamtune.ranges import NonNegative, Positive, PositiveInt
from teamtune.seeds import derive_seed

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    from teamtune.experience.packing import PackedBatch

OptimizerCallable = Callable[[Iterable], Optimizer]
LRSchedulerCallable = Callable[[Optimizer], LRScheduler]


class Policy(L.LightningModule):
    """One causal LM with fp32 master weights, trained in full or through a LoRA adapter.

    `__init__` holds configuration only; `build` loads the weights, so that a strategy can shard
    them.
    """

    def __init__(
        self,
        model: str | TinyLlama,
        optimizer: OptimizerCallable = lambda p: torch.optim.AdamW(p, lr=1e-6, weight_decay=0.0),
        scheduler: LRSchedulerCallable | None = None,
        max_grad_norm: Positive = 1.0,
        token_budget: PositiveInt = 16384,
        head_chunk: PositiveInt = 1024,
        head_kept_gib: NonNegative = 0.5,
        gradient_checkpointing: bool = False,
        attention: Literal["visible", "sdpa", "eager"] = "visible",
        lora: LoRA | None = None,
        trainable: bool = True,
    ):
        """
        Args:
            model: Hugging Face folder or hub name, or a recipe for a tiny model.
            optimizer: From parameters to an optimizer; stepped once per minibatch.
            scheduler: From the optimizer to a schedule that advances once per rollout step.
            max_grad_norm: The gradient's norm is clipped to this.
            token_budget: Most tokens of a micro-batch, padding included.
            head_chunk: Response tokens per pass through the head.
            head_kept_gib: Room for what the head's backward pass needs of a micro-batch, in GiB;
                chunks beyond it are computed twice.
            gradient_checkpointing: Recompute the blocks in the backward pass to save memory.
            attention: `visible` computes what a packed row lets its tokens see, in memory that
                grows with a row's length; `sdpa` and `eager` are those of transformers, behind a
                mask that grows with its square.
            lora: Trains an adapter and leaves the weights; null trains all weights.
            trainable: Whether the weights are optimized. Those of a frozen policy are in its engine
                alone, and no other argument but `model` has an effect.

        Raises:
            ConfigError: A learning rate that is not positive, or an option that has no effect.
        """
        super().__init__()
        check_optimizer(optimizer)
        for name, value in (("lora", lora), ("scheduler", scheduler)):
            if value is not None and not trainable:
                raise ConfigError(f"{name}: no effect with trainable: false, allowed: null")
        self.source = model
        self.optimizer_factory = optimizer
        self.scheduler_factory = scheduler
        self.max_grad_norm = max_grad_norm
        self.token_budget = token_budget
        self.head_chunk = head_chunk
        self.head_kept_gib = head_kept_gib
        self.gradient_checkpointing = gradient_checkpointing
        self.attention = attention
        self.lora = lora
        self.trainable = trainable
        self.adapter_seed = 0
        self.folder: str | None = model if isinstance(model, str) else None
        """Where configuration and tokenizer lie, once known."""
        self.version = 0
        """Optimizer steps so far; engines carry the version whose weights they hold."""
        self.scorer: TokenScorer | None = None
        self.reference: TokenScorer | None = None
        """A frozen copy, where one is needed and training is not through an adapter."""

    def check(self) -> None:
        """Reads all of a model's folder; raises ConfigError for what cannot be used or trained.

        The message begins with an argument of this class. Nothing is written.
        """
        if isinstance(self.source, str):
            HFChat(self.source)
            check_weights(self.source)
        if self.trainable:
            check_scorable(self.config())
            if self.lora is not None:
                self.shapes()

    def config(self) -> Any:
        """The model's configuration, as transformers reads it."""
        if isinstance(self.source, TinyLlama):
            return self.source.config()
        return read_config(self.source)

    def shapes(self) -> dict[str, torch.Size]:
        """Every weight's shape by its name in the scorer, without loading or drawing any."""
        if not self.trainable:
            return {}
        lm = outline(self.config())
        if self.lora is not None:
            with torch.device("meta"):
                self.lora.attach(lm, 0)
        return {f"lm.{name}": tensor.shape for name, tensor in lm.state_dict().items()}

    def prepare(self, folder: Path, write: bool, seed: int) -> None:
        """Makes the model's folder where the model is a recipe (`write`: on one rank)."""
        self.adapter_seed = derive_seed(seed, "adapter", folder.name)
        if isinstance(self.source, TinyLlama):
            if write and self.folder is None:
                self.source.build(folder, seed)
            self.folder = str(folder)

    def build(
        self,
        mesh: "DeviceMesh | None",
        with_reference: bool,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Loads the weights once; of a frozen policy there are none to load.

        Args:
            mesh: The ranks that share the weights; None keeps them whole.
            with_reference: Whether a frozen copy is needed.
            dtype: Number format in which shared weights compute; the masters stay float32.
        """
        if self.scorer is not None or not self.trainable:
            return
        self.scorer = self._load(mesh, dtype)
        if self.gradient_checkpointing:
            self.scorer.lm.gradient_checkpointing_enable({"use_reentrant": False})
        if with_reference and self.lora is None:
            self.reference = self._load(mesh, dtype).requires_grad_(False)

    def share_base(self, other: "Policy") -> None:
        """Takes the weights beneath the adapter from another policy with the same ones."""
        assert self.scorer is not None and other.scorer is not None
        for own, owner in zip(_plain(self.scorer.lm), _plain(other.scorer.lm), strict=True):
            for name, parameter in own.named_parameters(recurse=False):
                if not parameter.requires_grad:
                    setattr(own, name, getattr(owner, name))

    def _load(self, mesh: "DeviceMesh | None", dtype: torch.dtype) -> TokenScorer:
        assert self.folder is not None, "prepare() comes first"
        register()
        lm = load(self.folder, torch.float32, self.attention)
        used = lm.config.get_text_config()._attn_implementation
        if used != self.attention:
            rank_zero_warn(
                f"{self.source}: attention {self.attention} does not compute that of a "
                f"{type(lm).__name__}; {used} does, behind a mask as large as a row squared"
            )
        if self.lora is not None:
            self.lora.attach(lm, self.adapter_seed)
        kept = self.head_kept_gib * 2**30
        scorer = TokenScorer(_without_dropout(lm).train(), self.head_chunk, kept)
        if mesh is not None:
            from teamtune.policies.sharding import shard

            shard(scorer, mesh, dtype)
        return scorer

    def forward(
        self, batch: "PackedBatch", temperature: float = 1.0, entropy: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Log-probs and entropies [N] of the response tokens, see TokenScorer."""
        assert self.scorer is not None
        return self.scorer(batch, temperature, entropy)

    @torch.no_grad()
    def reference_logprobs(self, batch: "PackedBatch", temperature: float) -> Tensor:
        """[N] log-probs under the policy as it was when training began."""
        if self.lora is not None:
            assert self.scorer is not None
            with switched_off(self.scorer.lm):
                return self.scorer(batch, temperature)[0]
        assert self.reference is not None
        return self.reference(batch, temperature)[0]

    @torch.no_grad()
    def set_reference(self) -> None:
        """Makes the present weights the reference, where one is kept."""
        if self.reference is not None and self.scorer is not None:
            for old, new in zip(self.reference.parameters(), self.scorer.parameters()):
                old.copy_(new)

    def trainable_parameters(self) -> list[nn.Parameter]:
        """What the optimizer steps; of a frozen policy nothing."""
        if not self.trainable:
            return []
        assert self.scorer is not None
        return [p for p in self.scorer.parameters() if p.requires_grad]

    def full_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Every weight by its Hugging Face name, gathered where sharded; all ranks must iterate.

        An adapter is added to the weights beneath it.
        """
        assert self.scorer is not None
        weights = self.scorer.lm.state_dict()
        if self.lora is not None:
            yield from self.lora.merged(weights)
        else:
            yield from ((name, whole(tensor)) for name, tensor in weights.items())

    def export(self, folder: Path, write: bool) -> None:
        """Writes a plain Hugging Face folder (`write`: on one rank; all ranks must call).

        Not for a frozen policy: the folder it came from is that.
        """
        if not self.trainable:
            return
        weights = {name: tensor.cpu().contiguous() for name, tensor in self.full_weights()}
        if write:
            from transformers import AutoModelForCausalLM

            assert self.folder is not None and self.scorer is not None
            plain: Any = AutoModelForCausalLM.from_config(self.scorer.lm.config, **SAFE)
            plain.load_state_dict(weights)
            plain.save_pretrained(folder)
            read_tokenizer(self.folder).save_pretrained(folder)
            copy_generation_config(self.folder, folder)


def check_optimizer(optimizer: OptimizerCallable) -> None:
    """Raises ConfigError where an optimizer refuses its settings or its rate is not positive."""
    try:
        groups = optimizer([nn.Parameter(torch.zeros(1))]).param_groups
    except ValueError as error:
        raise ConfigError(f"optimizer.init_args: {error}") from error
    rate = min(float(group["lr"]) for group in groups)
    if not rate > 0:
        raise ConfigError(f"optimizer.init_args.lr: got {rate}, allowed: more than 0")


def _plain(lm: nn.Module) -> list[nn.Module]:
    """The modules that a model has without its adapter as well, in their order."""
    return [module for name, module in lm.named_modules() if ".lora_" not in name]


def _without_dropout(lm: nn.Module) -> nn.Module:
    """Dropout would make the trainer score another policy than the one that sampled."""
    module: Any
    for module in lm.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        for name, value in list(vars(module).items()):
            if "drop" in name and isinstance(value, float):  # a function's argument in forward
                setattr(module, name, 0.0)
    return lm
