"""Makes tests/fixtures/packed_formats: every packed format, decoded by others.

Needs torch, safetensors, compressed-tensors 0.20 (decoding) and transformers
5.24 (gpt-oss decoding). Codes and scales are random and cover every code; the
expected values are what those libraries give, in their dtype.

    python tests/oracle/packed_formats.py tests/fixtures/packed_formats
"""

import json
import pathlib
import sys

import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.compressors.pack_quantized.helpers import (
    unpack_from_int32)
from compressed_tensors.quantization import QuantizationScheme
from safetensors.torch import save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

torch.manual_seed(7)
stored, expected, groups = {}, {}, {}


def codes(*shape):
    """Bytes in which every value occurs, where there is room."""
    count = torch.Size(shape).numel()
    flat = torch.arange(count) % 256
    return flat[torch.randperm(count)].reshape(shape).to(torch.uint8)


def words(*shape):
    return codes(*shape[:-1], 4 * shape[-1]).view(torch.int32)


def scales(*shape, dtype=torch.bfloat16):
    return (torch.rand(shape) * 0.1 + 0.001).to(dtype)


def add(module, form, weights, tensors):
    """One module in its own config group, decoded by compressed-tensors."""
    groups[module] = {"targets": [f"model.{module}"], "format": form,
                      "weights": weights}
    scheme = QuantizationScheme(targets=["Linear"], weights=weights, format=form)
    compressor = BaseCompressor.get_value_from_registry(form)
    result = compressor.decompress(dict(tensors), scheme)["weight"]
    for name, tensor in tensors.items():
        stored[f"model.{module}.{name}"] = tensor
    expected[f"model.{module}.weight"] = result.contiguous()


def integer(bits=4, group=32, symmetric=True, strategy="group", **more):
    return {"num_bits": bits, "type": "int", "symmetric": symmetric,
            "strategy": strategy, "group_size": group, **more}


def real(bits, strategy, group=None, **more):
    return {"num_bits": bits, "type": "float", "symmetric": True,
            "strategy": strategy, "group_size": group, **more}


def packed(module, rows, columns, weights, dtype=torch.bfloat16):
    bits, group = weights["num_bits"], weights["group_size"] or columns
    n = columns // group
    tensors = {
        "weight_packed": words(rows, -(-columns * bits // 32)),
        "weight_scale": scales(rows, n, dtype=dtype),
        "weight_shape": torch.tensor([rows, columns]),
    }
    if not weights["symmetric"]:
        tensors["weight_zero_point"] = words(-(-rows * bits // 32), n)
    add(module, "pack-quantized", weights, tensors)


packed("int4_32", 6, 64, integer())
packed("int4_64", 5, 128, integer(group=64), torch.float32)
packed("int4_128", 3, 256, integer(group=128), torch.float16)
packed("int4_row", 4, 40, integer(group=None, strategy="channel"))
packed("int4_zero", 11, 64, integer(symmetric=False))
packed("int8_32", 9, 64, integer(bits=8))
add("mxfp4", "mxfp4-pack-quantized", real(4, "group", 32), {
    "weight_packed": codes(9, 32),
    "weight_scale": torch.randint(100, 150, (9, 2), dtype=torch.uint8)})
add("nvfp4", "nvfp4-pack-quantized", real(4, "tensor_group", 16), {
    "weight_packed": codes(9, 32),
    "weight_scale": scales(9, 4, dtype=torch.float32).to(torch.float8_e4m3fn),
    "weight_global_scale": torch.tensor([3.7])})
add("mxfp8", "mxfp8-quantized", real(8, "group", 32), {
    "weight": codes(9, 64).view(torch.float8_e4m3fn),
    "weight_scale": torch.randint(100, 140, (9, 2), dtype=torch.uint8)})
add("fp8_tensor", "float-quantized", real(8, "tensor"), {
    "weight": codes(4, 72).view(torch.float8_e4m3fn),
    "weight_scale": scales(1)})
add("fp8_row", "float-quantized", real(8, "channel"), {
    "weight": codes(4, 72).view(torch.float8_e4m3fn),
    "weight_scale": scales(4, 1, dtype=torch.float32)})

# Columns in another order (actorder "group"), which the library has dropped:
# column i belongs to group g_idx[i].
order = {"weight_packed": words(4, 8), "weight_scale": scales(4, 2),
         "weight_shape": torch.tensor([4, 64]),
         "weight_g_idx": torch.randperm(64).to(torch.int32) % 2}
groups["int4_order"] = {"targets": ["model.int4_order"],
                        "format": "pack-quantized",
                        "weights": integer(actorder="group")}
for name, tensor in order.items():
    stored[f"model.int4_order.{name}"] = tensor
expected["model.int4_order.weight"] = (
    unpack_from_int32(order["weight_packed"], 4, torch.Size([4, 64])).float() *
    order["weight_scale"].float()[:, order["weight_g_idx"].long()])

# 128 x 128 blocks by the published rule: w * scale_inv, edge blocks cut.
for name, (n, k) in {"tall": (130, 40), "wide": (3, 136)}.items():
    w = codes(n, k).view(torch.float8_e4m3fn)
    s = scales(-(-n // 128), -(-k // 128), dtype=torch.float32)
    grown = s.repeat_interleave(128, 0)[:n].repeat_interleave(128, 1)[:, :k]
    stored[f"model.fp8_{name}.weight"] = w
    stored[f"model.fp8_{name}.weight_scale_inv"] = s
    expected[f"model.fp8_{name}.weight"] = w.float() * grown

blocks = codes(2, 6, 2, 16)
block_scales = torch.randint(100, 150, (2, 6, 2), dtype=torch.uint8)
stored["model.experts.up_blocks"] = blocks
stored["model.experts.up_scales"] = block_scales
# The library gives x @ W's layout; ours is [expert, out, in].
expected["model.experts.up"] = convert_moe_packed_tensors(
    blocks, block_scales).transpose(1, 2).contiguous()

stored["model.norm.weight"] = torch.rand(8).to(torch.float16)
expected["model.norm.weight"] = stored["model.norm.weight"]

out = pathlib.Path(sys.argv[1])
out.mkdir(parents=True, exist_ok=True)
save_file(stored, out / "model.safetensors", metadata={"format": "pt"})
save_file(expected, out / "expected.safetensors")
config = {"quantization_config": {
    "quant_method": "compressed-tensors", "format": "mixed-precision",
    "quantization_status": "compressed", "config_groups": groups,
    "ignore": ["lm_head", "re:.*norm"]}}
(out / "config.json").write_text(json.dumps(config, indent=1, sort_keys=True) + "\n")
