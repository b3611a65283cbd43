"""Makes tests/fixtures/gguf: small GGUF files and what they hold.

Needs PyPI gguf 0.19 (writes the files and dequantises), numpy, torch,
safetensors. Expected tensors have Hugging Face names, row order and f32.
Blocks of the K types are random bytes with tame scales; the package cannot
make them from values.

    python tests/oracle/gguf_files.py tests/fixtures/gguf
"""

import pathlib
import sys

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Q
from gguf import quants
from safetensors.torch import save_file

rng = np.random.default_rng(3)


def blocks(kind, rows, columns):
    """Random blocks: every code occurs, the f16 scales are ordinary numbers."""
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    data = rng.integers(0, 256, (rows, columns // elements, size), dtype=np.uint8)
    places = {Q.Q8_0: [0], Q.Q4_0: [0], Q.Q4_1: [0, 2], Q.Q4_K: [0, 2], Q.Q6_K: [208]}
    for at in places[kind]:
        scale = rng.uniform(-0.1, 0.1, data.shape[:2]).astype(np.float16)
        data[..., at:at + 2] = scale[..., None].view(np.uint8)
    return data.reshape(rows, -1)


def tensor(kind, shape):
    """Stored array and its f32 values."""
    if kind in (Q.F32, Q.F16, Q.BF16):
        values = rng.standard_normal(shape).astype(np.float32)
        stored = quants.quantize(values, kind)
    else:
        rows = int(np.prod(shape[:-1]))
        stored = blocks(kind, rows, shape[-1]).reshape(*shape[:-1], -1)
    return stored, quants.dequantize(stored, kind).reshape(shape)


def unpermute(values, heads):
    """Where llama.cpp's converter took the rows from, by its own formula."""
    order = np.arange(values.shape[0])
    moved = (order.reshape(heads, 2, len(order) // heads // 2)
             .swapaxes(1, 2).reshape(-1))
    result = np.empty_like(values)
    result[moved] = values
    return result


class Model:
    def __init__(self, path, arch):
        self.path, self.writer = path, gguf.GGUFWriter(path, arch)
        self.expected = {}

    def add(self, name, target, kind, shape, heads=0):
        stored, values = tensor(kind, shape)
        self.writer.add_tensor(name, stored, raw_dtype=kind)
        self.expected[target] = unpermute(values, heads) if heads else values

    def experts(self, name, target, kind, shape):
        stored, values = tensor(kind, shape)
        self.writer.add_tensor(name, stored, raw_dtype=kind)
        for e, value in enumerate(values):
            self.expected[target.format(e=e)] = value

    def finish(self):
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()
        save_file({k: torch.from_numpy(np.ascontiguousarray(v))
                   for k, v in self.expected.items()},
                  self.path.with_suffix(".safetensors"))


def attention(m, layer, heads, kv_heads, dim, hidden, kinds, permuted):
    p, b = f"model.layers.{layer}.self_attn.", f"blk.{layer}.attn_"
    q = heads if permuted else 0
    k = kv_heads if permuted else 0
    m.add(b + "q.weight", p + "q_proj.weight", kinds[0], (heads * dim, hidden), q)
    m.add(b + "k.weight", p + "k_proj.weight", kinds[1], (kv_heads * dim, hidden), k)
    m.add(b + "v.weight", p + "v_proj.weight", kinds[2], (kv_heads * dim, hidden))
    m.add(b + "output.weight", p + "o_proj.weight", kinds[3], (hidden, heads * dim))


def norms(m, layer, hidden):
    p = f"model.layers.{layer}."
    m.add(f"blk.{layer}.attn_norm.weight", p + "input_layernorm.weight", Q.F32, (hidden,))
    m.add(f"blk.{layer}.ffn_norm.weight", p + "post_attention_layernorm.weight", Q.F32, (hidden,))


def common(w, hidden, heads, kv_heads, ffn):
    w.add_context_length(512)
    w.add_embedding_length(hidden)
    w.add_block_count(1)
    w.add_feed_forward_length(ffn)
    w.add_head_count(heads)
    w.add_head_count_kv(kv_heads)
    w.add_layer_norm_rms_eps(1e-5)


def llama(path):
    m = Model(path, "llama")
    common(m.writer, 256, 2, 1, 8)
    m.writer.add_key_length(4)
    m.writer.add_rope_freq_base(500000.0)
    m.writer.add_tokenizer_model("gpt2")
    m.writer.add_token_list(["a", "b", "c", "\u00e9", "<s>", "</s>"])
    m.writer.add_bos_token_id(4)
    m.writer.add_eos_token_id(5)
    m.writer.add_custom_alignment(64)
    m.add("token_embd.weight", "model.embed_tokens.weight", Q.Q4_1, (6, 256))
    m.add("output_norm.weight", "model.norm.weight", Q.F32, (256,))
    m.add("output.weight", "lm_head.weight", Q.Q8_0, (6, 256))
    attention(m, 0, 2, 1, 4, 256, (Q.BF16, Q.Q8_0, Q.Q4_0, Q.F16), True)
    m.add("blk.0.attn_q.bias", "model.layers.0.self_attn.q_proj.bias", Q.F32, (8,), 2)
    norms(m, 0, 256)
    p = "model.layers.0.mlp."
    m.add("blk.0.ffn_gate.weight", p + "gate_proj.weight", Q.Q4_K, (8, 256))
    m.add("blk.0.ffn_up.weight", p + "up_proj.weight", Q.Q6_K, (8, 256))
    m.add("blk.0.ffn_down.weight", p + "down_proj.weight", Q.F32, (256, 8))
    m.finish()


def qwen3_moe(path):
    m = Model(path, "qwen3moe")
    common(m.writer, 32, 4, 2, 64)
    m.writer.add_key_length(8)
    m.writer.add_expert_count(3)
    m.writer.add_expert_used_count(2)
    m.writer.add_expert_feed_forward_length(8)
    m.add("token_embd.weight", "model.embed_tokens.weight", Q.F16, (5, 32))
    m.add("output_norm.weight", "model.norm.weight", Q.F32, (32,))
    attention(m, 0, 4, 2, 8, 32, (Q.F16, Q.F32, Q.F16, Q.Q8_0), False)
    for x in "qk":
        m.add(f"blk.0.attn_{x}_norm.weight",
              f"model.layers.0.self_attn.{x}_norm.weight", Q.F32, (8,))
    norms(m, 0, 32)
    p = "model.layers.0.mlp."
    m.add("blk.0.ffn_gate_inp.weight", p + "gate.weight", Q.F32, (3, 32))
    for g, n in (("gate", "gate_proj"), ("up", "up_proj")):
        m.experts(f"blk.0.ffn_{g}_exps.weight", p + "experts.{e}." + n + ".weight",
                  Q.Q8_0, (3, 8, 32))
    m.experts("blk.0.ffn_down_exps.weight", p + "experts.{e}.down_proj.weight",
              Q.F16, (3, 32, 8))
    m.finish()


out = pathlib.Path(sys.argv[1])
out.mkdir(parents=True, exist_ok=True)
llama(out / "llama.gguf")
qwen3_moe(out / "qwen3_moe.gguf")
