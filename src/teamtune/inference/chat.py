"""Chat formats turn messages into token ids and sampled ids back into text, once, in one place.

What messages say is data: a control token's name inside it is encoded as the text that it is.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol

from jinja2 import TemplateError

from teamtune.envs import Message
from teamtune.errors import ConfigError
from teamtune.inference.pretrained import read_config, read_generation_config, read_tokenizer

BREAK = "\U0010fffd"
"""Stands inside the names of control tokens in data while a template is filled in; private use."""
SYSTEM = "teamtune"
PROBE = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "words"}]


class ChatFormat(Protocol):
    """A tokenizer together with its template."""

    stop_ids: frozenset[int]

    def encode(self, messages: Sequence[Message]) -> list[int]:
        """The prompt's ids, up to where the answer begins."""

    def encode_answer(self, text: str) -> list[int]:
        """The ids of an answer with its end token, as the model should have sampled them."""

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of an answer, without special tokens."""

    def unknown_words(self, text: str) -> list[str]:
        """The words of a prompt or an answer that ids cannot tell, each once."""


class HFChat:
    """The chat template of a Hugging Face tokenizer."""

    def __init__(self, model: str, template_args: dict[str, Any] | None = None):
        """
        Args:
            model: Folder or hub name that has the tokenizer.
            template_args: Further variables for the template, e.g. `enable_thinking: false`.

        Raises:
            ConfigError: The model has no chat template or one that fails, no end token, or a
                tokenizer that is not its own.
        """
        config = read_config(model)
        self.tokenizer: Any = read_tokenizer(model)
        if not self.tokenizer.chat_template:
            raise ConfigError(
                f"model: {model!r} has no chat template; agents are prompted by messages, so "
                "choose an instruction-tuned model or add a chat_template to its tokenizer"
            )
        self.template_args = template_args or {}
        self.stop_ids = _end_tokens(model, config, self.tokenizer)
        if not self.stop_ids:
            raise ConfigError(f"model: {model!r} names no end token (eos_token_id)")
        end = self.tokenizer.eos_token_id
        self._end = min(self.stop_ids) if end is None else end
        added = self.tokenizer.added_tokens_decoder.values()
        names = sorted((t.content for t in added if t.special), key=len, reverse=True)
        self._control = re.compile("|".join(re.escape(name) for name in names) or "(?!)")
        # Short answers of small models repeat; looking them up saves much of a rollout's time.
        self._decode = lru_cache(maxsize=16384)(
            lambda ids: self.tokenizer.decode(ids, skip_special_tokens=True)
        )
        self._try_template(model)
        self._check_size(model, config.get_text_config().vocab_size)

    def encode(self, messages: Sequence[Message]) -> list[int]:
        return self._ids(self._fill(messages))

    def encode_answer(self, text: str) -> list[int]:
        return [*self._ids(self._as_text(text)), self._end]

    def decode(self, token_ids: Sequence[int]) -> str:
        return self._decode(tuple(token_ids))

    def unknown_words(self, text: str) -> list[str]:
        unknown = self.tokenizer.unk_token_id
        words = dict.fromkeys(text.split())
        return [word for word in words if unknown in self._ids(self._as_text(word))]

    def _fill(self, messages: Sequence[Message]) -> str:
        """The template around messages, in which no control token is but the template's own."""
        told = [{**m, "content": self._as_text(m["content"])} for m in messages]
        if not self._has_system:
            told = _without_system(told)
        return self.tokenizer.apply_chat_template(
            told, add_generation_prompt=True, tokenize=False, **self.template_args
        )

    def _as_text(self, text: str) -> str:
        """`text` with a break in every name of a control token, which makes it two pieces."""
        broken = self._control.sub(lambda name: name[0][0] + BREAK + name[0][1:], text)
        return broken if broken == text else self._as_text(broken)  # names may overlap

    def _ids(self, text: str) -> list[int]:
        return [i for piece in text.split(BREAK) for i in self._piece(piece)]

    def _piece(self, text: str) -> list[int]:
        if self.tokenizer.is_fast:  # past the wrapper, which takes most of a short text's time
            return self.tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).ids
        return self.tokenizer.encode(text, add_special_tokens=False)

    def _try_template(self, model: str) -> None:
        """Finds out whether the template has a system role, and whether it works at all."""
        for self._has_system in (True, False):
            try:
                if SYSTEM in self._fill(PROBE):
                    return
                reason = "it leaves out what users say"
            except (TemplateError, TypeError, ValueError) as error:
                reason = " ".join(str(error).split())
        raise ConfigError(f"model: the chat template of {model!r} fails: {reason}")

    def _check_size(self, model: str, size: int) -> None:
        """Ids that the embedding has not must not be reachable: by data, or by the template."""
        names = {i: name for name, i in self.tokenizer.get_vocab().items() if i >= size}
        used = {i for i in names if not self._control.fullmatch(names[i])}
        used |= set(names) & set(self.encode(PROBE))
        if used:
            raise ConfigError(
                f"model: the tokenizer of {model!r} has the token {names[min(used)]!r} with the "
                f"id {min(used)}, allowed: less than {size}, the size of the model's vocabulary"
            )


class CharChat:
    """One token per character; messages are their contents, joined by newlines. Reversible."""

    stop_ids: frozenset[int] = frozenset({0})

    def encode(self, messages: Sequence[Message]) -> list[int]:
        return [ord(character) for character in "\n".join(m["content"] for m in messages)]

    def encode_answer(self, text: str) -> list[int]:
        return [*(ord(character) for character in text), 0]

    def decode(self, token_ids: Sequence[int]) -> str:
        return "".join(chr(i) for i in token_ids if i)

    def unknown_words(self, text: str) -> list[str]:
        return []


def _without_system(messages: list[Message]) -> list[Message]:
    """The same, what the system says being the beginning of the first other message."""
    said = [m["content"] for m in messages if m["role"] == "system"]
    first, *others = [m for m in messages if m["role"] != "system"] or [{"role": "user"}]
    contents = [*said, first["content"]] if "content" in first else said
    return [{**first, "content": "\n\n".join(contents)}, *others]


def _end_tokens(model: str, config: Any, tokenizer: Any) -> frozenset[int]:
    """Every end token that one of the places names from which transformers takes them."""
    named = [config, config.get_text_config(), tokenizer, read_generation_config(model)]
    found: set[int] = set()
    for place in named:
        ends = getattr(place, "eos_token_id", None)
        found.update(ends if isinstance(ends, list) else [] if ends is None else [ends])
    return frozenset(found)
