#!/usr/bin/env python3
"""Writes tests/fixtures/<family> for every dense family: a tiny checkpoint with
awkward sizes and what Hugging Face transformers computes from it in float64.

  python3 tests/oracle/dense.py tests/fixtures [family ...]

Needs torch, transformers, peft, safetensors. The model is the one that transformers
loads from the folder, so config.json and names are checked as well. It computes
norms, softmax and rotary angles in float32 whatever its dtype is; here these are
float64 too. Two documents are run apart and concatenated, which is what packing
must equal. Losses are summed over the labels of both documents.

golden.safetensors also has how far transformers in bfloat16 is from that over
eight other pairs of documents (bf16.ids, bf16.labels), as relative 2-norms over
all together: bf16.logits, and bf16.gradients of all parameters.

peft_all_linear.txt has the name and shape of every tensor that PEFT saves for
rank 3 on "all-linear".
"""
import contextlib
import json
import os
import sys

import peft
import torch
import transformers
from safetensors.torch import save_file
from transformers import modeling_rope_utils

LENGTHS = [71, 18]
NUM_BF16 = 8

FAMILIES = {
    # Biases everywhere, llama3 frequencies, the older spelling of rope.
    "llama": dict(
        architectures=["LlamaForCausalLM"], model_type="llama",
        vocab_size=53, hidden_size=30, intermediate_size=46,
        num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=2,
        head_dim=10, hidden_act="silu", rms_norm_eps=1e-5,
        max_position_embeddings=256, rope_theta=500.0,
        rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0,
                          high_freq_factor=4.0,
                          original_max_position_embeddings=32),
        attention_bias=True, mlp_bias=True, tie_word_embeddings=False,
        torch_dtype="float32"),
    # A window shorter than the first document and longer than the second.
    "mistral": dict(
        architectures=["MistralForCausalLM"], model_type="mistral",
        vocab_size=59, hidden_size=28, intermediate_size=50,
        num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=3,
        head_dim=6, hidden_act="silu", rms_norm_eps=1e-5,
        max_position_embeddings=256, attention_dropout=0.0,
        rope_parameters=dict(rope_type="linear", rope_theta=1000.0,
                             factor=2.5),
        sliding_window=19, tie_word_embeddings=False, dtype="bfloat16"),
    # Windows from a layer on, yarn.
    "qwen2": dict(
        architectures=["Qwen2ForCausalLM"], model_type="qwen2",
        vocab_size=61, hidden_size=26, intermediate_size=44,
        num_hidden_layers=4, num_attention_heads=9, num_key_value_heads=3,
        head_dim=8, hidden_act="silu", rms_norm_eps=1e-6,
        max_position_embeddings=128, attention_dropout=0.0, rope_theta=1000.0,
        rope_scaling=dict(type="yarn", factor=4.0,
                          original_max_position_embeddings=32),
        use_sliding_window=True, sliding_window=23, max_window_layers=2,
        tie_word_embeddings=False, torch_dtype="bfloat16"),
    # Windows by the list of layers, a tied head.
    "qwen3": dict(
        architectures=["Qwen3ForCausalLM"], model_type="qwen3",
        vocab_size=67, hidden_size=34, intermediate_size=38,
        num_hidden_layers=3, num_attention_heads=8, num_key_value_heads=2,
        head_dim=14, hidden_act="silu", rms_norm_eps=1e-6,
        max_position_embeddings=256, attention_bias=False,
        attention_dropout=0.0,
        rope_parameters=dict(rope_type="default", rope_theta=1000.0),
        layer_types=["full_attention", "sliding_attention", "full_attention"],
        use_sliding_window=True, sliding_window=17, max_window_layers=3,
        tie_word_embeddings=True, dtype="bfloat16"),
}


class Float64Torch:
    """The torch module, but that float32 is float64."""
    float32 = float = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


@contextlib.contextmanager
def everything_in_float64(model_type):
    modeling = sys.modules[
        type(transformers.AutoConfig.for_model(model_type)).__module__.replace(
            "configuration_", "modeling_")]
    patched = [modeling, modeling_rope_utils]
    for module in patched:
        module.torch = Float64Torch()
    try:
        yield
    finally:
        for module in patched:
            module.torch = torch


def random_weights(config):
    """By the names and shapes that transformers gives; values that bf16 has."""
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(**config))
    weights = {}
    for name, p in model.named_parameters():
        value = torch.randn(p.shape)
        if "norm" in name:
            value = 1 + 0.2 * value
        elif name.endswith("bias"):
            value = 0.3 * value
        else:
            value = value * 0.5 / p.shape[-1] ** 0.25
        weights[name] = value.to(torch.bfloat16)
    return weights


def load(out, dtype):
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        out, dtype=dtype, attn_implementation="eager",
        output_loading_info=True)
    for kind, names in info.items():
        assert not names, (kind, names)
    return model


def compute(model, ids):
    """Logits [T, V], labels [T], the summed loss, gradients by name."""
    model.zero_grad()
    logits, labels, total = [], [], 0
    for doc in ids:
        y = model(input_ids=doc[None]).logits[0]
        label = torch.cat([doc[1:], torch.tensor([-100])])
        wide = y if y.dtype == torch.float64 else y.float()
        total = total + torch.nn.functional.cross_entropy(
            wide, label, reduction="sum", ignore_index=-100)
        logits.append(y.detach())
        labels.append(label)
    total.backward()
    grads = {name: p.grad for name, p in model.named_parameters()}
    return torch.cat(logits), torch.cat(labels), total.detach(), grads


class Distance:
    """Relative 2-norm over all tensors together."""
    off = all = 0

    def add(self, got, want):
        self.off += ((got.double() - want) ** 2).sum()
        self.all += (want ** 2).sum()

    def relative(self):
        return (self.off / self.all).sqrt().reshape(1)


def random_documents(config):
    return [torch.randint(0, config["vocab_size"], (n,)) for n in LENGTHS]


def compare_bfloat16(config, exact, near):
    logits, gradients, ids, labels = Distance(), Distance(), [], []
    for _ in range(NUM_BF16):
        documents = random_documents(config)
        with everything_in_float64(config["model_type"]):
            want, label, _, want_grads = compute(exact, documents)
        got, _, _, got_grads = compute(near, documents)
        logits.add(got, want)
        for name, grad in want_grads.items():
            gradients.add(got_grads[name], grad)
        ids += documents
        labels.append(label)
    return {
        "bf16.ids": torch.cat(ids).to(torch.int32).reshape(NUM_BF16, -1),
        "bf16.labels": torch.stack(labels).to(torch.int32),
        "bf16.logits": logits.relative(),
        "bf16.gradients": gradients.relative(),
    }


def write_adapter_names(model, path):
    adapted = peft.get_peft_model(model, peft.LoraConfig(
        r=3, target_modules="all-linear", task_type="CAUSAL_LM"))
    state = peft.get_peft_model_state_dict(adapted)
    with open(path, "w") as f:
        for name in sorted(state):
            f.write(" ".join([name, *map(str, state[name].shape)]) + "\n")


def write(family, root):
    config = FAMILIES[family]
    out = os.path.join(root, family)
    os.makedirs(out, exist_ok=True)
    torch.manual_seed(20260)
    # One member each: safetensors writes several in any order.
    meta = {"generator": f"tests/oracle/dense.py, torch {torch.__version__}, "
                         f"transformers {transformers.__version__}"}
    weights = random_weights(config)
    stored = config.get("dtype", config.get("torch_dtype"))
    save_file({name: w.to(getattr(torch, stored)).contiguous()
               for name, w in weights.items()},
              os.path.join(out, "model.safetensors"),
              metadata={"format": "pt"})
    with open(os.path.join(out, "config.json"), "w") as f:
        json.dump(config, f, indent=1, sort_keys=True)
        f.write("\n")

    ids = random_documents(config)
    with everything_in_float64(config["model_type"]):
        exact = load(out, torch.float64)
        logits, labels, loss, grads = compute(exact, ids)
    golden = {
        "ids": torch.cat(ids).to(torch.int32),
        "labels": labels.to(torch.int32),
        "cu_seqlens": torch.tensor([0, LENGTHS[0], sum(LENGTHS)],
                                   dtype=torch.int32),
        "logits": logits.float(),
        "loss": loss.reshape(1),
    }
    for name, grad in grads.items():
        golden["grad." + name] = grad.float().contiguous()
    golden |= compare_bfloat16(config, exact, load(out, torch.bfloat16))
    save_file(golden, os.path.join(out, "golden.safetensors"), metadata=meta)
    write_adapter_names(exact, os.path.join(out, "peft_all_linear.txt"))
    print(f"{family}: loss {loss.item():.6f}, {len(grads)} parameters, bf16 is "
          f"{golden['bf16.logits'].item():.2e} off in the logits and "
          f"{golden['bf16.gradients'].item():.2e} in the gradients")


def main(root, families):
    for family in families or FAMILIES:
        write(family, root)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
