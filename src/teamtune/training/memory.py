"""The memory that training takes on a rank, from shapes alone: known before anything is loaded.

Weights, optimizers and engines of all policies lie there all the time. Policies are stepped one
after another, so that of gradients and activations only the largest of them counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from teamtune.inference.pretrained import outline

MASTER = 4
"""Bytes of a master weight, of its gradient, and of each number its optimizer remembers."""
GIB = 2**30
Precision = Literal["float32", "bfloat16", "autocast"]
"""In which the blocks compute: `autocast` leaves what is between them in float32."""


@dataclass(frozen=True)
class Shape:
    """What of a causal LM its memory depends on, in numbers rather than bytes."""

    weights: int
    inner: int
    """Of them in the blocks; the others are embedding, head and last norm."""
    layers: int
    hidden: int
    intermediate: int
    query: int
    """Width of the queries of all heads together."""
    key: int
    """The same of the keys, and of the values."""
    vocabulary: int
    norms: bool
    """Whether queries and keys are normalized."""

    @classmethod
    def of(cls, config: Any) -> "Shape":
        """Of a model's configuration, as transformers reads it."""
        lm, text = outline(config), config.get_text_config()
        blocks = lm.get_decoder().layers
        width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
        return cls(
            weights=sum(p.numel() for p in lm.parameters()),
            inner=sum(p.numel() for p in blocks.parameters()),
            layers=len(blocks),
            hidden=text.hidden_size,
            intermediate=text.intermediate_size,
            query=text.num_attention_heads * width,
            key=text.num_key_value_heads * width,
            vocabulary=text.vocab_size,
            norms=any("q_norm" in name for name, _ in blocks.named_modules()),
        )

    def per_token(self, precision: Precision) -> tuple[int, int, int]:
        """Bytes of a token: in what a block keeps for its backward pass, in that pass's own
        tensors, and between two blocks."""
        size = 4 if precision == "float32" else 2
        between = 2 if precision == "bfloat16" else 4
        # A norm keeps its input and its normalized output; what follows keeps its own input.
        norms = 2 * (4 + between) * self.hidden
        inputs = (5 if precision == "autocast" else 2) * size * self.hidden  # a copy per matrix
        attention = 4 * size * self.query + self.norms * (4 + size) * (self.query + self.key)
        feed_forward = 4 * size * self.intermediate
        working = size * self.intermediate + 2 * between * self.hidden
        return norms + inputs + attention + feed_forward, working, between * self.hidden


@dataclass(frozen=True)
class Learner:
    """A trained policy."""

    shape: Shape
    trained: int
    """Weights that are optimized."""
    remembered: float
    """Numbers per weight that its optimizer keeps."""
    scratch: float
    """Numbers per weight that a step makes for itself."""
    copies: int
    """Of all weights: 2 with a reference, 0 where the base beneath an adapter is another's."""
    token_budget: int
    head_chunk: int
    head_kept: float
    """Bytes of logits that the head may keep for its backward pass."""
    checkpointing: bool

    def kept(self, precision: Precision, checkpointing: bool) -> tuple[float, float]:
        """Bytes that a micro-batch's forward pass keeps, and those of a block's backward pass."""
        block, working, between = self.shape.per_token(precision)
        last = 3 * between  # the last norm, and the states that the head reads
        if not checkpointing:
            return self.token_budget * (self.shape.layers * block + last), (
                self.token_budget * working
            )
        return self.token_budget * (self.shape.layers * between + last), (
            self.token_budget * (block + working)
        )

    def head(self, precision: Precision) -> float:
        """Bytes of a chunk's logits, with their gradients, of the head's own gradient, and of what
        is kept of other chunks."""
        size = 4 if precision == "float32" else 2
        others = 4.0 * self.shape.vocabulary * max(0, self.token_budget - self.head_chunk)
        chunk = self.shape.vocabulary * (16.0 * self.head_chunk + size * self.shape.hidden)
        return chunk + min(self.head_kept, others)

    def gathered(self, precision: Precision, ranks: int) -> float:
        """Bytes of weights in the form in which they compute: two blocks at a time, the rest
        always; with autocast a copy of all."""
        if ranks == 1 and precision != "bfloat16":  # only shards compute in a format of their own
            return 2.0 * self.shape.weights if precision == "autocast" else 0.0
        size = 4 if precision == "float32" else 2
        block = self.shape.inner / self.shape.layers
        outer = self.shape.weights - self.shape.inner
        return 2 * size * (outer + block) + size * block  # gradients before they are reduced


@dataclass(frozen=True)
class Plan:
    """Bytes on a rank."""

    masters: float
    optimizer: float
    gradients: float
    activations: float
    other_activations: float
    """With checkpointing where there is none, and the other way round."""
    checkpointing: bool
    head: float
    gathered: float
    scratch: float
    engines: float
    loading: float
    """On the host, by all its ranks together."""
    saving: float

    @property
    def peak(self) -> float:
        """The most that is there at a time; a step's own tensors come after a backward pass."""
        update = self.activations + self.head + self.gathered
        lasting = self.masters + self.optimizer + self.engines + self.gradients
        return lasting + max(update, self.scratch)

    def __str__(self) -> str:
        how = ("with", "without") if self.checkpointing else ("without", "with")
        return (
            f"memory per rank, GiB: masters {_gib(self.masters)}, optimizer "
            f"{_gib(self.optimizer)}, gradients {_gib(self.gradients)}, activations "
            f"{_gib(self.activations)} {how[0]} checkpointing ({_gib(self.other_activations)} "
            f"{how[1]}), head {_gib(self.head)}, weights as they compute {_gib(self.gathered)}, "
            f"engines {_gib(self.engines)}; peak {_gib(self.peak)}; on the host "
            f"{_gib(self.loading)} to load, {_gib(self.saving)} to save"
        )


def plan(
    learners: Sequence[Learner], engines: float, precision: Precision, ranks: int, local_ranks: int
) -> Plan:
    """What a rank takes.

    Args:
        learners: All that are trained.
        engines: Bytes of the rank's engines.
        precision: Of the update.
        ranks: Those that share the weights.
        local_ranks: Those on one host.
    """
    heaviest = max(learners, key=lambda p: _update(p, precision, ranks))
    kept, working = heaviest.kept(precision, heaviest.checkpointing)
    other = sum(heaviest.kept(precision, not heaviest.checkpointing))
    masters = MASTER * sum(p.shape.weights * p.copies + _adapter(p) for p in learners)
    optimizer = MASTER * sum(p.remembered * p.trained for p in learners)
    return Plan(
        masters=masters / ranks,
        optimizer=optimizer / ranks,
        gradients=MASTER * max(p.trained for p in learners) / ranks,
        activations=kept + working,
        other_activations=other,
        checkpointing=heaviest.checkpointing,
        # A block's backward pass comes after the head's: what is larger than its room counts.
        head=max(0.0, heaviest.head(precision) - working),
        gathered=heaviest.gathered(precision, ranks),
        scratch=MASTER * max(p.scratch * p.trained for p in learners) / ranks,
        engines=engines,
        loading=MASTER * local_ranks * max(p.shape.weights for p in learners),
        saving=masters + optimizer,
    )


def _update(learner: Learner, precision: Precision, ranks: int) -> float:
    return (
        sum(learner.kept(precision, learner.checkpointing))
        + learner.gathered(precision, ranks)
        + MASTER * learner.trained / ranks
    )


def _adapter(learner: Learner) -> int:
    """Weights of an adapter, which are beside those of the model."""
    return learner.trained if learner.trained < learner.shape.weights else 0


def _gib(size: float) -> str:
    return f"{size / GIB:.2g}" if size < 10 * GIB else f"{size / GIB:.1f}"
