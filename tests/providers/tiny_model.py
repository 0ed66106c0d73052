"""Writes a tiny llama model with random weights as a GGUF file.

Runs in the virtual environment of llama-cpp-python: ``python tiny_model.py FILE``.
"""

from __future__ import annotations

import sys

import gguf
import numpy as np

WIDTH, HEADS, LAYERS, FEED_FORWARD, CONTEXT = 64, 4, 2, 128, 8192
TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"


def vocabulary() -> tuple[list[bytes], list[float], list[int]]:
    """The tokens of a byte-level SentencePiece vocabulary, with scores and types."""
    tokens = [b"<unk>", b"<s>", b"</s>", *(f"<0x{byte:02X}>".encode() for byte in range(256))]
    pieces = ["\u2581", *map(chr, range(33, 127))]
    scores = [0.0] * len(tokens) + [-float(rank) for rank in range(len(pieces))]
    kinds = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL]
    kinds += [gguf.TokenType.BYTE] * 256 + [gguf.TokenType.NORMAL] * len(pieces)
    return tokens + [piece.encode() for piece in pieces], scores, [int(kind) for kind in kinds]


def main(path: str) -> None:
    """Writes the model."""
    draw = np.random.default_rng(7)
    tokens, scores, kinds = vocabulary()
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores(scores)
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template(TEMPLATE)

    def weights(name: str, *shape: int) -> None:
        writer.add_tensor(name, (draw.standard_normal(shape) * 0.05).astype(np.float32))

    def norm(name: str) -> None:
        writer.add_tensor(name, np.ones(WIDTH, dtype=np.float32))

    weights("token_embd.weight", len(tokens), WIDTH)
    norm("output_norm.weight")
    weights("output.weight", len(tokens), WIDTH)
    for layer in range(LAYERS):
        norm(f"blk.{layer}.attn_norm.weight")
        norm(f"blk.{layer}.ffn_norm.weight")
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            weights(f"blk.{layer}.{part}.weight", WIDTH, WIDTH)
        weights(f"blk.{layer}.ffn_gate.weight", FEED_FORWARD, WIDTH)
        weights(f"blk.{layer}.ffn_up.weight", FEED_FORWARD, WIDTH)
        weights(f"blk.{layer}.ffn_down.weight", WIDTH, FEED_FORWARD)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main(sys.argv[1])
