#!/usr/bin/env python3
"""Writes tests/fixtures/delta_rule/*.safetensors: what a linear-attention layer
computes between its projections, token by token, in float64 with torch's own
gradients.

  python3 tests/oracle/delta_rule.py tests/fixtures/delta_rule

Needs torch, safetensors. Written from the recurrence, not from any kernel:
causal depthwise convolution and SiLU of q, k and v, rows of length one, the log
decay, the delta rule, RMSNorm and then the gate. Three documents, the second
empty, with a state given to each. Three layers: kimi_linear (softplus gate),
kimi_k3 (bounded gate), qwen3_next (one gate a head, shared keys, SiLU).
"""
import os
import sys

import torch
from safetensors.torch import save_file

BOUNDS = [0, 9, 9, 90]
EPS = 1e-6
NORM_EPS = 1e-5


def conv(x, weight, state):
    """x [T, C], weight [C, 1, 4], state [3, C]: y [T, C], the last 3 rows."""
    rows = torch.cat([state, x])
    taps = weight.shape[-1]
    out = []
    for t in range(x.shape[0]):
        window = rows[t:t + taps]
        p = (window * weight[:, 0, :].T).sum(0)
        out.append(p * torch.sigmoid(p))
    y = torch.stack(out) if out else x
    return y, rows[rows.shape[0] - taps + 1:]


def unit(x):
    return x / torch.sqrt((x * x).sum(-1, keepdim=True) + EPS)


def decay(f, a_log, dt_bias, bound):
    heads = a_log.shape[0]
    z = f + dt_bias.reshape(f.shape[1:])
    rate = torch.exp(a_log).reshape([heads] + [1] * (f.dim() - 2))
    if bound:
        return bound * torch.sigmoid(rate * z)
    return -rate * torch.log1p(torch.exp(z))


def recurrence(q, k, v, g, beta, state):
    """q, k [T, N, K], v [T, N, V], g [T, N, K], state [N, K, V]."""
    scale = q.shape[-1] ** -0.5
    out = []
    for t in range(q.shape[0]):
        state = state * torch.exp(g[t]).unsqueeze(-1)
        read = torch.einsum("nkv,nk->nv", state, k[t])
        u = beta[t].unsqueeze(-1) * (v[t] - read)
        state = state + torch.einsum("nk,nv->nkv", k[t], u)
        out.append(scale * torch.einsum("nkv,nk->nv", state, q[t]))
    o = torch.stack(out) if out else v
    return o, state


def layer(name, groups, heads, width, v_width, bound, head_gate, silu):
    torch.manual_seed(sum(map(ord, name)))
    total = BOUNDS[-1]
    docs = len(BOUNDS) - 1

    def make(*shape, scale=1.0):
        x = (torch.randn(*shape) * scale).double()
        return x.requires_grad_()

    t = {
        "q": make(total, groups * width), "k": make(total, groups * width),
        "v": make(total, heads * v_width),
        "q_conv": make(groups * width, 1, 4, scale=0.7),
        "k_conv": make(groups * width, 1, 4, scale=0.7),
        "v_conv": make(heads * v_width, 1, 4, scale=0.7),
        "q_past": make(docs, 3, groups * width),
        "k_past": make(docs, 3, groups * width),
        "v_past": make(docs, 3, heads * v_width),
        "f": make(total, heads) if head_gate else make(total, heads, width),
        "A_log": make(heads, scale=0.5),
        "dt_bias": make(heads * (1 if head_gate else width)),
        "beta": torch.sigmoid(torch.randn(total, heads)).double()
                     .float().double().requires_grad_(),
        "state": make(docs, heads, width, v_width),
        "norm": make(v_width), "gate": make(total, heads, v_width),
    }
    outs, states, pasts = [], [], {"q": [], "k": [], "v": []}
    for d in range(docs):
        rows = slice(BOUNDS[d], BOUNDS[d + 1])
        n = BOUNDS[d + 1] - BOUNDS[d]
        part = {}
        for x in "qkv":
            y, past = conv(t[x][rows], t[x + "_conv"], t[x + "_past"][d])
            part[x] = y
            pasts[x].append(past)
        q = unit(part["q"].reshape(n, groups, width))
        k = unit(part["k"].reshape(n, groups, width))
        q = q.repeat_interleave(heads // groups, dim=1)
        k = k.repeat_interleave(heads // groups, dim=1)
        g = decay(t["f"][rows], t["A_log"], t["dt_bias"], bound)
        if head_gate:
            g = g.unsqueeze(-1).expand(n, heads, width)
        o, state = recurrence(q, k, part["v"].reshape(n, heads, v_width), g,
                              t["beta"][rows], t["state"][d])
        outs.append(o)
        states.append(state)
    o = torch.cat(outs)
    final = torch.stack(states)
    normed = o / torch.sqrt((o * o).mean(-1, keepdim=True) + NORM_EPS)
    gate = torch.sigmoid(t["gate"])
    if silu:
        gate = t["gate"] * gate
    y = normed * t["norm"] * gate
    dy = torch.randn_like(y.float()).double()
    dfinal = torch.randn_like(final.float()).double()
    ((y * dy).sum() + (final * dfinal).sum()).backward()
    result = {"cu_seqlens": torch.tensor(BOUNDS, dtype=torch.int32),
              "dy": dy, "dfinal": dfinal, "y": y, "final": final}
    for x in "qkv":
        result[x + "_final"] = torch.stack(pasts[x])
    for key, x in t.items():
        result["in." + key] = x
        result["grad." + key] = x.grad
    result = {key: x.detach().to(torch.float32 if x.is_floating_point()
                                 else x.dtype).contiguous()
              for key, x in result.items()}
    meta = {"generator": "tests/oracle/delta_rule.py",
            "torch": torch.__version__}
    return result, meta


def main(out):
    os.makedirs(out, exist_ok=True)
    for name, args in {
            "kimi_linear": (2, 2, 12, 5, 0.0, False, False),
            "kimi_k3": (2, 2, 5, 12, -5.0, False, False),
            "qwen3_next": (1, 3, 6, 10, 0.0, True, True)}.items():
        result, meta = layer(name, *args)
        save_file(result, os.path.join(out, name + ".safetensors"),
                  metadata=meta)


if __name__ == "__main__":
    main(sys.argv[1])
