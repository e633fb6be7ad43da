#!/usr/bin/env python3
"""PyTorch's flex attention beside a report of heed-bench --patterns.

    python3 native_bench/pytorch/flex.py report.json

adds `flex` to each row of a window, of random blocks or of dense attention: checked first against
float64 on short sequences within the row's error bound, then timed by the report's clock and rules
of sampling, on one thread. Blocks are given to flex as wholly visible ones, so it evaluates no rule
within them. Compiling is not counted. The two programs run one after the other, not in turn.
Needs PyTorch 2.6 or newer and a C++ compiler; without it the report stays as it is and the exit
status is 2.
"""

import argparse
import json
import math
import random
import sys
import time

from samples import needs_another, summarize

CHECKED_LENGTH = 1301
# What flex computes a rule in where the rule has no blocks of its own.
BLOCK = 128


def reach(row):
    """How many keys before and behind itself a query sees; None where that is no window."""
    params = row["params"]
    if row["mechanism"] == "block_sparse" or row["mechanism"] == "scaled_dot_product" and not params:
        return None
    if row["mechanism"] != "scaled_dot_product":
        raise ValueError(f"no rule for {row['mechanism']}")
    return int(params["window_left"]), int(0 if params.get("causal") else params["window_right"])


def checked_lengths(row):
    """The short sequences on which a row is checked. Random blocks give flex partial blocks where the
    length ends within one, and whole ones elsewhere: either way is checked."""
    longest = min(CHECKED_LENGTH, row["length"])
    if "density" not in row:
        return [longest]
    block = int(row["params"].get("block_size", BLOCK))
    return sorted({longest, longest // block * block} - {0})


def random_blocks(num_blocks, density, seed):
    """Which blocks each row of blocks keeps, ascending: as many as heed-bench keeps."""
    kept = max(1, math.floor(density * num_blocks + 0.5))
    generator = random.Random(seed)
    return [sorted(generator.sample(range(num_blocks), kept)) for _ in range(num_blocks)]


def window_blocks(left, right, length, block):
    """For each row of blocks of a window: those seen in part, and those seen whole."""
    partial, whole = [], []
    spans = [(first, min(first + block, length) - 1) for first in range(0, length, block)]
    for first_q, last_q in spans:
        some, every = [], []
        for column, (first_kv, last_kv) in enumerate(spans):
            full_size = last_q - first_q == last_kv - first_kv == block - 1
            if full_size and last_q - left <= first_kv and last_kv <= first_q + right:
                every.append(column)
            elif first_q - left <= last_kv and first_kv <= last_q + right:
                some.append(column)
        partial.append(some)
        whole.append(every)
    return partial, whole


def padded(torch, lists):
    """Counts and indices as BlockMask wants them, for one batch entry and head."""
    num_blocks = len(lists)
    counts = torch.tensor([len(row) for row in lists], dtype=torch.int32)
    indices = torch.zeros((num_blocks, num_blocks), dtype=torch.int32)
    for row, columns in enumerate(lists):
        indices[row, : len(columns)] = torch.tensor(columns, dtype=torch.int32)
    return counts[None, None], indices[None, None]


class Measured:
    """A row's rule at one length: tensors, and flex attention over them."""

    def __init__(self, torch, row, length, seed):
        from torch.nn.attention.flex_attention import BlockMask, flex_attention

        self.torch, self.length = torch, length
        self.reach = reach(row)
        self.block = int(row["params"].get("block_size", BLOCK))
        generator = torch.Generator().manual_seed(seed)

        def draw(heads):
            extents = (1, row[heads], length, row["head_dim"])
            return 2 * torch.rand(extents, generator=generator) - 1

        self.q, self.k, self.v = draw("num_heads"), draw("num_kv_heads"), draw("num_kv_heads")
        self.group = row["num_heads"] // row["num_kv_heads"]
        num_blocks = -(-length // self.block)
        self.mask, self.partial, self.whole = None, [[]] * num_blocks, [[]] * num_blocks
        if "density" in row:
            self.whole = random_blocks(num_blocks, row["density"], seed)
            if length % self.block:  # flex masks the tail of the last block in these alone
                self.partial, self.whole = self.whole, self.partial
        elif self.reach:
            self.partial, self.whole = window_blocks(*self.reach, length, self.block)
        if self.reach or "density" in row:
            left, right = self.reach or (length, length)
            self.mask = BlockMask.from_kv_blocks(
                *padded(torch, self.partial),
                *padded(torch, self.whole),
                BLOCK_SIZE=self.block,
                mask_mod=lambda b, h, q, kv: (q - kv <= left) & (kv - q <= right),
                seq_lengths=(length, length),
            )
        self.flex = torch.compile(flex_attention, dynamic=False, fullgraph=True)

    def call(self):
        return self.flex(
            self.q, self.k, self.v, block_mask=self.mask, enable_gqa=self.group > 1
        )

    def error(self):
        """The largest difference from float64."""
        torch, length = self.torch, self.length
        kept = torch.zeros((length, length), dtype=torch.bool)
        for row, (some, every) in enumerate(zip(self.partial, self.whole)):
            for column in some + every:
                kept[row * self.block :, column * self.block :][: self.block, : self.block] = True
        if self.reach:
            ahead = torch.arange(length)[None, :] - torch.arange(length)[:, None]
            kept &= (-self.reach[0] <= ahead) & (ahead <= self.reach[1])
        if self.mask is None:
            kept[:] = True
        k, v = (x.double().repeat_interleave(self.group, 1) for x in (self.k, self.v))
        scores = self.q.double() @ k.transpose(-1, -2) / math.sqrt(self.q.shape[-1])
        weights = torch.softmax(scores.masked_fill(~kept, -math.inf), dim=-1)
        expected = torch.nan_to_num(weights) @ v
        difference = (self.call().double() - expected).abs().max().item()
        return math.inf if math.isnan(difference) else difference


def measure(torch, row, plan, seed):
    """The field `flex` of a row."""
    try:
        torch.compiler.reset()  # each rule is compiled for itself
        error = max(Measured(torch, row, n, seed).error() for n in checked_lengths(row))
        if not error <= row["error_bound"]:
            return {"status": "wrong", "max_error": error}
        case = Measured(torch, row, row["length"], seed)
        case.call()
        clock = time.process_time if plan["clock"] == "cpu" else time.perf_counter
        taken = []
        while needs_another(plan, len(taken), sum(taken) * 1e-3):
            start = clock()
            case.call()
            taken.append((clock() - start) * 1e3)
    except (ValueError, RuntimeError) as failure:
        return {"status": "refused", "reason": str(failure).strip().split("\n")[0]}
    return {
        "status": "timed",
        "max_error": error,
        "ms": summarize(taken),
        "reps": len(taken),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("report", help="JSON of heed-bench --patterns; it is written anew")
    path = parser.parse_args().report
    try:
        import torch
    except ImportError:
        print("flex.py: this python3 has no PyTorch", file=sys.stderr)
        return 2
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    with open(path, encoding="utf-8") as file:
        report = json.load(file)
    for row in report["rows"]:
        if row["status"] == "timed":
            row["flex"] = measure(torch, row, report["plan"], report["inputs"]["seed"])
            print(row["case"], row["flex"].get("ms", row["flex"]), file=sys.stderr)
    report["flex"] = f"PyTorch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}"
    with open(path, "w", encoding="utf-8") as file:
        json.dump(report, file, indent=1)
        file.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
