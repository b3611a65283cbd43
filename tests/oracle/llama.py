#!/usr/bin/env python3
"""Writes tests/fixtures/llama: a tiny Llama checkpoint with awkward sizes and
what Hugging Face transformers computes from it, in float64.

  python3 tests/oracle/llama.py tests/fixtures/llama

Needs torch, transformers, safetensors. Two documents are run apart and
concatenated, which is what packing must equal. Losses are summed over the
labels of both documents.
"""
import json
import os
import sys

import torch
import transformers
from safetensors.torch import save_file


def main(out):
    torch.manual_seed(20260)
    config = transformers.LlamaConfig(
        vocab_size=97, hidden_size=42, intermediate_size=72,
        num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=2,
        head_dim=10, rms_norm_eps=1e-5, rope_theta=10000.0,
        max_position_embeddings=64, tie_word_embeddings=False,
        attention_bias=False, mlp_bias=False,
        attn_implementation="eager")
    model = transformers.LlamaForCausalLM(config).to(torch.float32)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "norm" in name:
                p.copy_(1 + 0.1 * torch.randn_like(p))
            else:
                p.copy_(torch.randn_like(p) * 0.3 / p.shape[-1] ** 0.25)
    weights = {k: v.detach().clone().contiguous()
               for k, v in model.state_dict().items()
               if "rotary" not in k}
    os.makedirs(out, exist_ok=True)
    meta = {"generator": "tests/oracle/llama.py", "torch": torch.__version__,
            "transformers": transformers.__version__, "format": "pt"}
    save_file(weights, os.path.join(out, "model.safetensors"), metadata=meta)
    with open(os.path.join(out, "config.json"), "w") as f:
        json.dump({
            "architectures": ["LlamaForCausalLM"], "model_type": "llama",
            "vocab_size": 97, "hidden_size": 42, "intermediate_size": 72,
            "num_hidden_layers": 3, "num_attention_heads": 6,
            "num_key_value_heads": 2, "head_dim": 10, "hidden_act": "silu",
            "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
            "max_position_embeddings": 64, "tie_word_embeddings": False,
            "attention_bias": False, "mlp_bias": False,
            "torch_dtype": "float32"}, f, indent=1, sort_keys=True)
        f.write("\n")

    model = model.double()
    lengths = [13, 6]
    ids = [torch.randint(0, 97, (n,)) for n in lengths]
    logits, total = [], 0
    labels = []
    for doc in ids:
        y = model(input_ids=doc[None]).logits[0]
        logits.append(y.detach())
        label = torch.cat([doc[1:], torch.tensor([-100])])
        labels.append(label)
        total = total + torch.nn.functional.cross_entropy(
            y, label, reduction="sum", ignore_index=-100)
    total.backward()
    golden = {
        "ids": torch.cat(ids).to(torch.int32),
        "labels": torch.cat(labels).to(torch.int32),
        "cu_seqlens": torch.tensor([0, 13, 19], dtype=torch.int32),
        "logits": torch.cat(logits).float(),
        "loss": total.detach().double().reshape(1),
    }
    for name, p in model.named_parameters():
        golden["grad." + name] = p.grad.float().contiguous()
    save_file(golden, os.path.join(out, "golden.safetensors"), metadata=meta)
    print("loss", total.item())


if __name__ == "__main__":
    main(sys.argv[1])
