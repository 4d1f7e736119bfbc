"""Models made on the spot: a small Llama with a word-level tokenizer and a chat template.

They stand in for a pre-trained model where none can be downloaded; any tool that loads Llama loads
them.
"""

import itertools
import re
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from teamtune.errors import ConfigError
from teamtune.ranges import NonNegative, PositiveInt

if TYPE_CHECKING:
    from transformers import LlamaConfig

SPECIAL = ("<pad>", "<unk>", "<eos>")
TEMPLATE = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)")


def expand(pattern: str) -> list[str]:
    """The words that a pattern stands for: `{a,b}` is a choice, `{1..3}` a range of numbers."""
    parts = _BRACES.split(pattern)
    choices = []
    for i, part in enumerate(parts):
        span = _RANGE.fullmatch(part) if i % 2 else None
        if span:
            choices.append([str(n) for n in range(int(span[1]), int(span[2]) + 1)])
        else:
            choices.append(part.split(",") if i % 2 else [part])
    return ["".join(word) for word in itertools.product(*choices)]


class TinyLlama:
    """A recipe for a Llama of a few million parameters with randomly drawn weights."""

    def __init__(
        self,
        vocabulary: str | list[str],
        hidden_size: PositiveInt = 128,
        num_layers: PositiveInt = 3,
        num_heads: PositiveInt | None = None,
        intermediate_size: PositiveInt = 384,
        context_length: PositiveInt = 256,
        tie_embeddings: bool = False,
        initializer_range: NonNegative = 0.06,
    ):
        """
        Args:
            vocabulary: The words that prompts and answers are made of, with braces as in a shell:
                `{U,D}{0..2}` stands for U0 U1 U2 D0 D1 D2. Or a text file with words.
            hidden_size: Width of the residual stream.
            num_layers: Transformer blocks.
            num_heads: Attention heads; they divide the width. Null takes heads of a width of 32,
                which every engine can run.
            intermediate_size: Width of the feed-forward layers.
            context_length: Longest prompt and answer together, in tokens.
            tie_embeddings: Whether the head shares its weights with the embedding.
            initializer_range: Standard deviation of the drawn weights.

        Raises:
            ConfigError: The vocabulary cannot be read, or the heads do not divide the width.
        """
        self.vocabulary = vocabulary
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.num_heads = num_heads or max(1, hidden_size // 32)
        self.intermediate_size = intermediate_size
        self.context_length = context_length
        self.tie_embeddings = tie_embeddings
        self.initializer_range = initializer_range
        if hidden_size % self.num_heads:
            raise ConfigError(
                f"num_heads: got {self.num_heads}, allowed: a divisor of {hidden_size}"
            )
        self.words()

    def words(self) -> list[str]:
        """The vocabulary, special tokens first, each word once."""
        if isinstance(self.vocabulary, str):
            try:
                words = Path(self.vocabulary).read_text("utf-8").split()
            except OSError as error:
                raise ConfigError(f"vocabulary: cannot read {self.vocabulary!r}") from error
        else:
            words = [word for pattern in self.vocabulary for word in expand(pattern)]
        return list(dict.fromkeys([*SPECIAL, *words]))

    def config(self) -> "LlamaConfig":
        """The model's configuration."""
        from transformers import LlamaConfig

        return LlamaConfig(
            vocab_size=len(self.words()),
            hidden_size=self.hidden_size,
            num_hidden_layers=self.num_layers,
            num_attention_heads=self.num_heads,
            num_key_value_heads=self.num_heads,
            intermediate_size=self.intermediate_size,
            max_position_embeddings=self.context_length,
            tie_word_embeddings=self.tie_embeddings,
            initializer_range=self.initializer_range,
            pad_token_id=0,
            bos_token_id=None,
            eos_token_id=2,
            dtype="float32",
        )

    def build(self, folder: Path, seed: int) -> None:
        """Writes a Hugging Face folder; equal seeds give equal weights, random state is kept."""
        from tokenizers import Tokenizer
        from tokenizers.models import WordLevel
        from tokenizers.pre_tokenizers import WhitespaceSplit
        from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

        words = self.words()
        backend = Tokenizer(WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
        backend.pre_tokenizer = WhitespaceSplit()
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=backend, pad_token="<pad>", unk_token="<unk>", eos_token="<eos>"
        )
        tokenizer.chat_template = TEMPLATE
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = LlamaForCausalLM(self.config())
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
