"""Writes pytorch_layers.json: layers of PyTorch with random weights, and what they compute.

Run where PyTorch is installed: python3 tests/conformance/pytorch_layers.py
"""

import json
import pathlib

import torch

torch.manual_seed(7)


def rounded(tensor):
    """Nine significant digits tell every float32 apart."""
    return [float(f"{x:.9g}") for x in tensor.detach().flatten().tolist()]


def packed(tensor):
    return {"shape": list(tensor.shape), "data": rounded(tensor)}


def state_of(module):
    for parameter in module.parameters():
        if parameter.dim() == 1:  # biases and norm weights start as 0 and 1
            torch.nn.init.normal_(parameter, 0.5, 0.5)
    return {name: packed(value) for name, value in module.state_dict().items()}


def attention_case(name, options, q_len, kv_len, call, batch=2):
    embed_dim, num_heads = options["embed_dim"], options["num_heads"]
    module = torch.nn.MultiheadAttention(batch_first=True, **options).eval()
    state = state_of(module)
    query = torch.randn(batch, q_len, embed_dim)
    key = torch.randn(batch, kv_len, options.get("kdim", embed_dim))
    value = torch.randn(batch, kv_len, options.get("vdim", embed_dim))
    lengths, causal = call.get("key_lengths"), call.get("causal", False)
    hidden = None
    if lengths:
        hidden = torch.arange(kv_len)[None, :] >= torch.tensor(lengths)[:, None]
    with torch.no_grad():
        output, weights = module(
            query,
            key,
            value,
            key_padding_mask=hidden,
            attn_mask=torch.ones(q_len, kv_len, dtype=torch.bool).triu(1) if causal else None,
            average_attn_weights=call.get("average_weights", False),
        )
    return {
        "name": name,
        "options": options,
        "call": call,
        "state": state,
        "query": packed(query),
        "key": packed(key),
        "value": packed(value),
        "output": packed(output),
        "weights": packed(weights),
    }


def encoder_case(name, options, lengths):
    module = torch.nn.TransformerEncoderLayer(batch_first=True, dropout=0.0, **options)
    state = state_of(module)
    x = torch.randn(2, 5, options["d_model"])
    hidden = torch.arange(5)[None, :] >= torch.tensor(lengths)[:, None]
    module.train()  # the fast path of eval() rewrites padded rows; dropout is 0
    with torch.no_grad():
        output = module(x, src_key_padding_mask=hidden)
    return {
        "name": name,
        "options": options,
        "key_lengths": lengths,
        "state": state,
        "x": packed(x),
        "output": packed(output),
    }


ATTENTION = [
    attention_case("plain", {"embed_dim": 8, "num_heads": 2}, 3, 4, {}),
    attention_case("no bias", {"embed_dim": 6, "num_heads": 3, "bias": False}, 3, 4, {}),
    attention_case(
        "kdim and vdim", {"embed_dim": 8, "num_heads": 4, "kdim": 5, "vdim": 3}, 2, 6, {}
    ),
    attention_case(
        "averaged, causal", {"embed_dim": 8, "num_heads": 2}, 5, 5,
        {"causal": True, "average_weights": True},
    ),
    attention_case("lengths", {"embed_dim": 8, "num_heads": 2}, 3, 4, {"key_lengths": [4, 2]}),
    attention_case(
        "add_bias_kv", {"embed_dim": 8, "num_heads": 2, "add_bias_kv": True}, 3, 4,
        {"key_lengths": [4, 1]},
    ),
    attention_case(
        "add_zero_attn", {"embed_dim": 8, "num_heads": 2, "add_zero_attn": True}, 4, 4,
        {"causal": True},
    ),
    attention_case(
        "both extra keys",
        {"embed_dim": 8, "num_heads": 2, "add_bias_kv": True, "add_zero_attn": True}, 4, 4,
        {"causal": True, "key_lengths": [3, 4], "average_weights": True},
    ),
]

SMALL = {"d_model": 8, "nhead": 2, "dim_feedforward": 12}
ENCODERS = [
    encoder_case("post norm, relu", SMALL, [5, 3]),
    encoder_case("pre norm, gelu", {**SMALL, "norm_first": True, "activation": "gelu"}, [5, 3]),
]

here = pathlib.Path(__file__).parent
(here / "pytorch_layers.json").write_text(
    json.dumps({"torch": torch.__version__, "attention": ATTENTION, "encoder": ENCODERS}) + "\n"
)
