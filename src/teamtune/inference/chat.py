"""Chat formats turn messages into token ids and sampled ids back into text, once, in one place."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol

from teamtune.envs import Message
from teamtune.errors import ConfigError


class ChatFormat(Protocol):
    """A tokenizer together with its template."""

    stop_ids: frozenset[int]

    def encode(self, messages: Sequence[Message]) -> list[int]:
        """The prompt's ids, up to where the answer begins."""

    def encode_answer(self, text: str) -> list[int]:
        """The ids of an answer with its end token, as the model should have sampled them."""

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of an answer, without special tokens."""


class HFChat:
    """The chat template of a Hugging Face tokenizer."""

    def __init__(self, model: str, template_args: dict[str, Any] | None = None):
        """
        Args:
            model: Folder or hub name that has the tokenizer.
            template_args: Further variables for the template, e.g. `enable_thinking: false`.

        Raises:
            ConfigError: The tokenizer has no chat template.
        """
        from transformers import AutoTokenizer, GenerationConfig

        self.tokenizer: Any = AutoTokenizer.from_pretrained(model)
        if not self.tokenizer.chat_template:
            raise ConfigError(
                f"model: {model!r} has no chat template; agents are prompted by messages, so "
                "choose an instruction-tuned model or add a chat_template to its tokenizer"
            )
        self.template_args = template_args or {}
        stop = {self.tokenizer.eos_token_id}
        try:
            ends = GenerationConfig.from_pretrained(model).eos_token_id
        except OSError:  # a folder may come without a generation config
            ends = None
        stop.update(ends if isinstance(ends, list) else [ends])
        self.stop_ids = frozenset(i for i in stop if i is not None)
        # Short answers of small models repeat; looking them up saves much of a rollout's time.
        self._decode = lru_cache(maxsize=16384)(
            lambda ids: self.tokenizer.decode(ids, skip_special_tokens=True)
        )

    def encode(self, messages: Sequence[Message]) -> list[int]:
        text = self.tokenizer.apply_chat_template(
            list(messages), add_generation_prompt=True, tokenize=False, **self.template_args
        )
        return self._ids(text)

    def encode_answer(self, text: str) -> list[int]:
        return [*self._ids(text), self.tokenizer.eos_token_id]

    def decode(self, token_ids: Sequence[int]) -> str:
        return self._decode(tuple(token_ids))

    def _ids(self, text: str) -> list[int]:
        if self.tokenizer.is_fast:  # past the wrapper, which takes most of a short text's time
            return self.tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).ids
        return self.tokenizer.encode(text, add_special_tokens=False)


class CharChat:
    """One token per character; messages are their contents, joined by newlines. Reversible."""

    stop_ids: frozenset[int] = frozenset({0})

    def encode(self, messages: Sequence[Message]) -> list[int]:
        return [ord(character) for character in "\n".join(m["content"] for m in messages)]

    def encode_answer(self, text: str) -> list[int]:
        return [*(ord(character) for character in text), 0]

    def decode(self, token_ids: Sequence[int]) -> str:
        return "".join(chr(i) for i in token_ids if i)
