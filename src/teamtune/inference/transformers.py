"""Generation with plain transformers: no dependency but torch, the same bits in every equal run.

All requests that are ready are drained before each decoding step. Samples of one request are one
row of the batch for as long as they agree, the prompt included; new requests join the running
batch, finished rows leave it. No threads, no timers.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from teamtune.errors import ConfigError
from teamtune.inference.chat import HFChat
from teamtune.inference.engine import Completion, Dtype, Sampling, longest
from teamtune.inference.pretrained import load, weight_bytes
from teamtune.inference.queue import QueuedEngine, Request
from teamtune.inference.sampling import draw, uniforms
from teamtune.ranges import PositiveInt


@dataclass(eq=False)
class _Row:
    """A beginning that some samples of a request have in common."""

    request: Request
    samples: list[int]
    ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()


class _Batch:
    """Running rows with left-padded keys and values, [rows, heads, length, width] per layer."""

    def __init__(self, rows: list[_Row], keys: list[Tensor], values: list[Tensor], mask: Tensor):
        self.rows, self.keys, self.values, self.mask = rows, keys, values, mask

    def join(self, other: "_Batch") -> "_Batch":
        length = max(self.mask.shape[1], other.mask.shape[1])
        return _Batch(
            self.rows + other.rows,
            [_stack(a, b, length) for a, b in zip(self.keys, other.keys)],
            [_stack(a, b, length) for a, b in zip(self.values, other.values)],
            torch.cat([_pad(self.mask, 1, length), _pad(other.mask, 1, length)]),
        )

    def branch(self, parents: list[int], rows: list[_Row]) -> "_Batch":
        """`rows`, each of which continues one of `parents`; no columns that only others needed."""
        if parents == list(range(len(self.rows))):
            return _Batch(rows, self.keys, self.values, self.mask)
        index = torch.tensor(parents, device=self.mask.device)
        mask = self.mask[index]
        first = int(mask.any(0).to(torch.uint8).argmax())
        return _Batch(
            rows,
            [k[index, :, first:] for k in self.keys],
            [v[index, :, first:] for v in self.values],
            mask[:, first:],
        )


def _pad(x: Tensor, dim: int, length: int) -> Tensor:
    shape = list(x.shape)
    shape[dim] = length - shape[dim]
    return torch.cat([x.new_zeros(shape), x], dim) if shape[dim] else x


def _stack(a: Tensor, b: Tensor, length: int) -> Tensor:
    return torch.cat([_pad(a, 2, length), _pad(b, 2, length)])


class TransformersEngine(QueuedEngine):
    """Continuous batching over a Hugging Face causal LM in this process."""

    def __init__(
        self,
        model: str,
        sampling: Sampling | None = None,
        max_batch_rows: PositiveInt = 4096,
        dtype: Dtype = "float32",
        device: str = "auto",
        template_args: dict[str, Any] | None = None,
    ):
        """
        Args:
            model: Folder or hub name with the model's configuration, tokenizer and weights.
            sampling: Default sampling.
            max_batch_rows: Most samples in the making at once; further requests wait.
            dtype: Number format of the weights.
            device: `auto` takes the current GPU where there is one.
            template_args: Further variables for the chat template.

        Raises:
            ConfigError: The model has no chat template, or cannot be loaded.
        """
        super().__init__()
        self.chat = HFChat(model, template_args)
        self.sampling = sampling or Sampling()
        if device == "auto":
            device = f"cuda:{torch.cuda.current_device()}" if torch.cuda.is_available() else "cpu"
        self.model = load(model, getattr(torch, dtype)).to(device).eval().requires_grad_(False)
        self.context_length = longest(self.model.config)
        self.max_batch_rows = max_batch_rows
        self._batch: _Batch | None = None

    @classmethod
    def check_model(cls, model: Any, sampling: Sampling, **settings: Any) -> None:
        super().check_model(model, sampling, **settings)
        device = settings.get("device", "auto")
        if device.startswith("cuda") and not torch.cuda.is_available():
            raise ConfigError(f"device: got {device}, but there is no GPU, allowed: auto, cpu")

    @classmethod
    def memory(
        cls, model: Any, sampling: Sampling, samples: int, gpu: int | None, **settings: Any
    ) -> float:
        """The cache is that of answers of full length, without their prompts."""
        dtype, text = settings.get("dtype", "float32"), model.get_text_config()
        width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
        token = 2 * text.num_hidden_layers * text.num_key_value_heads * width
        rows = min(samples, settings.get("max_batch_rows", 4096))
        cache = rows * sampling.max_tokens * token * getattr(torch, dtype).itemsize
        return weight_bytes(model, dtype) + cache

    def load_weights(self, named_tensors: Iterable[tuple[str, Tensor]], version: int) -> None:
        self._abandon()
        own = self.model.state_dict()
        missing = set(own)
        for name, tensor in named_tensors:
            if name not in own:
                raise ValueError(f"the engine's model has no weight {name!r}")
            own[name].copy_(tensor)
            missing.discard(name)
        given = {own[name].data_ptr() for name in own.keys() - missing}
        missing = {name for name in missing if own[name].data_ptr() not in given}
        if missing:
            raise ValueError(f"weights were not given: {', '.join(sorted(missing)[:5])}")
        self.version = version

    def close(self) -> None:
        self._abandon()
        if hasattr(self, "model"):
            del self.model

    @torch.inference_mode()
    def _step(self, waiting: list[Request]) -> bool:
        if self._batch is not None:
            logits, batch = self._decode(self._batch)
            self._batch = self._append(batch, logits)
        fresh = self._take(waiting)
        if fresh:
            logits, batch = self._prefill(fresh)
            started = self._append(batch, logits)
            if started is not None:
                self._batch = started if self._batch is None else self._batch.join(started)
        return self._batch is not None or bool(waiting)

    def _take(self, waiting: list[Request]) -> list[Request]:
        """The first of those that wait, as many as there is room for, but at least one at once."""
        running = sum(len(row.samples) for row in self._batch.rows) if self._batch else 0
        taken: list[Request] = []
        while waiting and (not running or running + waiting[0].n <= self.max_batch_rows):
            running += waiting[0].n
            taken.append(waiting.pop(0))
        return taken

    def _drop(self) -> None:
        if self._batch is None:
            return
        kept = [i for i, row in enumerate(self._batch.rows) if not row.request.over]
        rows = [self._batch.rows[i] for i in kept]
        self._batch = self._batch.branch(kept, rows) if kept else None

    def _prefill(self, requests: list[Request]) -> tuple[Tensor, _Batch]:
        from transformers import DynamicCache

        device = self.model.device
        length = max(len(r.prompt_ids) for r in requests)
        ids = torch.zeros(len(requests), length, dtype=torch.long)
        mask = torch.zeros(len(requests), length, dtype=torch.long)
        for i, request in enumerate(requests):
            ids[i, length - len(request.prompt_ids) :] = torch.tensor(request.prompt_ids)
            mask[i, length - len(request.prompt_ids) :] = 1
        mask = mask.to(device)
        output = self.model(
            input_ids=ids.to(device),
            attention_mask=mask,
            position_ids=(mask.cumsum(1) - 1).clamp(min=0),
            past_key_values=DynamicCache(),
            use_cache=True,
            logits_to_keep=1,
        )
        layers = output.past_key_values.layers
        rows = [_Row(request, list(range(request.n))) for request in requests]
        keys, values = [layer.keys for layer in layers], [layer.values for layer in layers]
        return output.logits[:, -1], _Batch(rows, keys, values, mask)

    def _decode(self, batch: _Batch) -> tuple[Tensor, _Batch]:
        from transformers import DynamicCache

        cache = DynamicCache()
        for i, pair in enumerate(zip(batch.keys, batch.values)):
            cache.update(*pair, i)
        last = torch.tensor([[row.ids[-1]] for row in batch.rows], device=self.model.device)
        mask = torch.cat([batch.mask, batch.mask.new_ones(len(batch.rows), 1)], 1)
        output = self.model(
            input_ids=last,
            attention_mask=mask,
            position_ids=mask.sum(1, keepdim=True) - 1,
            past_key_values=cache,
            use_cache=True,
        )
        layers = output.past_key_values.layers
        keys, values = [layer.keys for layer in layers], [layer.values for layer in layers]
        return output.logits[:, -1], _Batch(batch.rows, keys, values, mask)

    def _append(self, batch: _Batch, logits: Tensor) -> _Batch | None:
        """Draws each sample's next token and answers finished requests; the rows that go on."""
        owners = [i for i, row in enumerate(batch.rows) for _ in row.samples]
        samples = [k for row in batch.rows for k in row.samples]
        branches: dict[tuple[int, int], _Row] = {}
        for i, k, token, logprob in zip(owners, samples, *self._draw(batch.rows, owners, logits)):
            row = batch.rows[i]
            if (i, token) not in branches:
                branches[i, token] = _Row(
                    row.request, [], (*row.ids, token), (*row.logprobs, logprob)
                )
            branches[i, token].samples.append(k)
        parents, rows = [], []
        for (i, token), row in branches.items():
            stopped = token in self.chat.stop_ids
            if stopped or len(row.ids) >= row.request.sampling.max_tokens:
                self._finish(row, stopped)
            else:
                parents.append(i)
                rows.append(row)
        return batch.branch(parents, rows) if rows else None

    def _draw(
        self, rows: list[_Row], owners: list[int], logits: Tensor
    ) -> tuple[list[int], list[float]]:
        """A token and its log-prob for each sample, in the order of the rows that own them."""
        seeds = np.array([row.request.seed + k for row in rows for k in row.samples])
        uniform = uniforms(seeds, np.array([len(rows[i].ids) for i in owners]))
        of_sample = [rows[i].request.sampling for i in owners]
        ids = torch.empty(len(owners), dtype=torch.long, device=logits.device)
        logprobs = torch.empty(len(owners), device=logits.device)
        for s in set(of_sample):
            at = torch.tensor([j for j, other in enumerate(of_sample) if other == s])
            part = logits[torch.tensor(owners)[at]]
            ids[at], logprobs[at] = draw(part, uniform[at], s.temperature, s.top_p, s.top_k)
        return ids.tolist(), logprobs.tolist()

    def _finish(self, row: _Row, stopped: bool) -> None:
        completion = Completion(
            token_ids=row.ids,
            logprobs=row.logprobs,
            text=self.chat.decode(row.ids),
            stop_reason="stop" if stopped else "length",
            version=self.version,
        )
        row.request.answer(row.samples, completion)
