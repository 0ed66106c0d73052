"""Writes a language model of random weights with a tokenizer of bytes, for servers of other projects.

It runs in the environment of such a server, which has torch and transformers:
``python tiny_model.py FOLDER``.
"""

from __future__ import annotations

import sys

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

END = "<end>"
TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def write(folder: str) -> None:
    """Writes the model and its tokenizer into a folder."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    bytewise = Tokenizer(models.BPE(vocab={one: place for place, one in enumerate(alphabet)}, merges=[]))
    bytewise.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytewise.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bytewise, eos_token=END, pad_token=END)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=32768,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = LlamaForCausalLM(config)
    # All tokens are about equally likely, and a quarter of them ends an answer: answers have a few bytes.
    with torch.no_grad():
        model.lm_head.weight.mul_(0.1)
    model.generation_config = GenerationConfig(
        do_sample=True, eos_token_id=[*range(0, len(tokenizer), 4)], pad_token_id=tokenizer.pad_token_id
    )
    model.save_pretrained(folder)


if __name__ == "__main__":
    write(sys.argv[1])
