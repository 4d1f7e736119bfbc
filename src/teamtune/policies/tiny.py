"""Models made on the spot: a small Llama with a word-level tokenizer and a chat template.

They stand in for a pre-trained model where none can be downloaded; any tool that loads Llama loads
them.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from teamtune.errors import ConfigError

if TYPE_CHECKING:
    from transformers import LlamaConfig

SPECIAL = ("<pad>", "<unk>", "<eos>")
TEMPLATE = "{% for message in messages %}{{ message['content'] }} {% endfor %}"


class TinyLlama:
    """A recipe for a Llama of a few million parameters with randomly drawn weights."""

    def __init__(
        self,
        vocabulary: str,
        hidden_size: int = 128,
        num_layers: int = 3,
        num_heads: int = 4,
        intermediate_size: int = 384,
        context_length: int = 256,
        tie_embeddings: bool = True,
    ):
        """
        Args:
            vocabulary: Text file with the words that prompts and answers are made of, separated by
                white space; `plan_path` takes the words of Plan-Path's compact prompts.
            hidden_size: Width of the residual stream.
            num_layers: Transformer blocks.
            num_heads: Attention heads; they divide the width.
            intermediate_size: Width of the feed-forward layers.
            context_length: Longest prompt and answer together, in tokens.
            tie_embeddings: Whether the head shares its weights with the embedding.

        Raises:
            ConfigError: The vocabulary cannot be read, or the heads do not divide the width.
        """
        self.vocabulary = vocabulary
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.num_heads = num_heads
        self.intermediate_size = intermediate_size
        self.context_length = context_length
        self.tie_embeddings = tie_embeddings
        if hidden_size % num_heads:
            raise ConfigError(f"num_heads: got {num_heads}, allowed: a divisor of {hidden_size}")
        self.words()

    def words(self) -> list[str]:
        """The vocabulary, special tokens first, each word once."""
        try:
            text = Path(self.vocabulary).read_text()
        except OSError as error:
            raise ConfigError(f"vocabulary: cannot read {self.vocabulary!r}") from error
        return list(dict.fromkeys([*SPECIAL, *text.split()]))

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
            pad_token_id=0,
            bos_token_id=None,
            eos_token_id=2,
            dtype="float32",
        )

    def build(self, folder: Path, seed: int) -> None:
        """Writes a Hugging Face folder; equal seeds give equal weights. Global random state is kept."""
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
        (folder / "vocabulary.json").write_text(json.dumps(words))
