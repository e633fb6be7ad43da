#!/usr/bin/env python3
"""PyTorch's scaled_dot_product_attention beside a report of heed-bench --device cuda.

    python3 native_bench/pytorch/sdpa.py report.json

adds a row for every backend of PyTorch (flash, cudnn, efficient) to each case of softmax attention
in the report, measured on the same GPU by the method of heed-bench: checked first against float64
within the case's error bound, then timed by events, warm and with an overwritten L2 cache. The two
programs run one after the other, not in turn: compare clocks and power. Needs PyTorch 2.5 or newer
with CUDA; without it the report stays as it is and the exit status is 2.
"""

import argparse
import json
import math
import sys
import time

from samples import calls_per_sample, needs_another, quantile, summarize

BACKENDS = {"flash": "FLASH_ATTENTION", "cudnn": "CUDNN_ATTENTION", "efficient": "EFFICIENT_ATTENTION"}
# What a row says of its peer, not of its case.
MEASURED_FIELDS = {
    *("max_error", "rows_verified", "ms", "reps", "cold_ms", "cold_reps", "gbps", "gflops"),
    *("sending_ms", "fraction_of_fma_peak", "load"),
}
VERIFIED_ROWS = 16


def without_measures(row):
    return {name: value for name, value in row.items() if name not in MEASURED_FIELDS}


def attention_rows(report):
    """One verified row of every case that PyTorch may compute, without what was measured of it."""
    rows = {}
    for row in report["rows"]:
        shape = row.get("shape", {})
        plain = row["mechanism"] == "scaled_dot_product" and not (
            {"window_left", "softcap", "sinks", "alibi", "key_length"} & shape.keys()
        )
        counted = row["status"] == "timed" and "flop" in row
        taken = plain and row["dtype"] != "float8_e4m3"
        if row.get("device") == "cuda" and taken and counted:
            rows.setdefault(row["case"], without_measures(row))
    return list(rows.values())


def refusal(shape):
    """Why PyTorch cannot compute a case, or nothing."""
    if shape["mask"] == "causal" and shape["q_len"] != shape["kv_len"]:
        return "aligns causal queries with the first keys"
    return ""


def peak_of(report, dtype):
    """The highest measured rate of products of a type."""
    probes = report.get("probes", {})
    peaks = probes.get("fma", []) + probes.get("fma_after", [])
    return max((peak["gflops"] for peak in peaks if peak.get("dtype", "float32") == dtype), default=0)


def timed_row(row, peer, warm, cold, sending, report):
    """A row of the report for the milliseconds of a peer."""
    median = quantile(warm, 0.5)
    gflops = row["flop"] / median * 1e-6
    peak = peak_of(report, row["dtype"])
    return {
        **row,
        "peer": peer,
        "status": "timed",
        "ms": summarize(warm),
        "reps": len(warm),
        "cold_ms": summarize(cold),
        "cold_reps": len(cold),
        "sending_ms": sending,
        "gbps": row["bytes"] / median * 1e-6,
        "gflops": gflops,
        "fraction_of_fma_peak": gflops / peak if peak > 0 else 0,
    }


def merged(report, peers, rows):
    """The report with the rows of other peers behind those of their case."""
    joined = []
    for index, row in enumerate(report["rows"]):
        joined.append(row)
        following = report["rows"][index + 1 : index + 2]
        if not following or following[0]["case"] != row["case"]:
            joined += [other for other in rows if other["case"] == row["case"]]
    return {**report, "peers": report["peers"] + peers, "rows": joined}


class Measured:
    """One case on the GPU: its tensors, and what they should give."""

    def __init__(self, torch, row, seed):
        self.torch = torch
        shape = row["shape"]
        generator = torch.Generator(device="cuda").manual_seed(seed)

        def draw(heads, length, width):
            extents = (shape["batch"], heads, length, width)
            return torch.randn(
                extents, generator=generator, device="cuda", dtype=getattr(torch, row["dtype"])
            )

        self.q = draw(shape["num_heads"], shape["q_len"], shape["head_dim"])
        self.k = draw(shape["num_kv_heads"], shape["kv_len"], shape["head_dim"])
        self.v = draw(shape["num_kv_heads"], shape["kv_len"], shape["head_dim_v"])
        self.causal = shape["mask"] == "causal"
        self.group = shape["num_heads"] // shape["num_kv_heads"]

    def call(self):
        attention = self.torch.nn.functional.scaled_dot_product_attention
        return attention(
            self.q, self.k, self.v, is_causal=self.causal, enable_gqa=self.group > 1
        )

    def error(self, output):
        """The largest difference from float64 over rows that are spread over the output."""
        batch, heads, q_len, _ = self.q.shape
        total, worst = batch * heads * q_len, 0.0
        count = min(VERIFIED_ROWS, total)
        for n in range(count):
            at = n * (total - 1) // max(count - 1, 1)
            b, h, i = at // (heads * q_len), at // q_len % heads, at % q_len
            k = self.k[b, h // self.group].double()
            v = self.v[b, h // self.group].double()
            seen = i + 1 if self.causal else k.shape[0]
            scores = k[:seen] @ self.q[b, h, i].double() / math.sqrt(k.shape[1])
            expected = self.torch.softmax(scores, dim=0) @ v[:seen]
            difference = (output[b, h, i].double() - expected).abs().max().item()
            worst = math.inf if math.isnan(difference) else max(worst, difference)
        return worst, count


class Stopwatch:
    """Milliseconds between two events, and those in which the host sends a call."""

    FLUSHES = 8  # the GPU is busy for longer than a cold call takes to be sent

    def __init__(self, torch, l2_bytes):
        self.torch = torch
        self.start = torch.cuda.Event(enable_timing=True)
        self.stop = torch.cuda.Event(enable_timing=True)
        self.flush = torch.empty(2 * l2_bytes, dtype=torch.uint8, device="cuda")

    def warm(self, call, calls):
        self.start.record()
        for _ in range(calls):
            call()
        self.stop.record()
        self.stop.synchronize()
        return self.start.elapsed_time(self.stop) / calls

    def cold(self, call, _calls):
        for _ in range(self.FLUSHES):
            self.flush.zero_()
        return self.warm(call, 1)

    def sending(self, call):
        taken = []
        for _ in range(21):
            self.torch.cuda.synchronize()
            start = time.perf_counter()
            call()
            taken.append((time.perf_counter() - start) * 1e3)
        self.torch.cuda.synchronize()
        return quantile(taken, 0.5)

    def samples(self, measure, call, calls, plan):
        taken, seconds = [], 0.0
        while needs_another(plan, len(taken), seconds):
            taken.append(measure(call, calls))
            seconds += taken[-1] * calls * 1e-3
        return taken


def measure_backend(torch, name, case, row, stopwatch, report):
    """The row of one backend."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    peer = f"torch_{name}"
    refused = {**row, "peer": peer, "status": "refused"}
    plan = report["plan"]
    try:
        with torch.inference_mode(), sdpa_kernel([getattr(SDPBackend, BACKENDS[name])]):
            error, count = case.error(case.call())
            row = {**row, "max_error": error, "rows_verified": count}
            if not error <= row["error_bound"]:
                reason = f"max error {error:.3g} exceeds the bound {row['error_bound']:.3g}"
                return {**row, "peer": peer, "status": "wrong", "reason": reason}
            calls = calls_per_sample(stopwatch.warm(case.call, 1) * 1e-3)
            warm = stopwatch.samples(stopwatch.warm, case.call, calls, plan)
            cold = stopwatch.samples(stopwatch.cold, case.call, 1, plan)
            return timed_row(row, peer, warm, cold, stopwatch.sending(case.call), report)
    except RuntimeError as error:  # no kernel of this backend, or no memory
        reason = str(error).strip().split("\n")[0]
        return {**refused, "reason": reason}


def measure(torch, report):
    """Rows of all backends on all cases."""
    stopwatch = Stopwatch(torch, report["machine"]["gpu"]["l2_bytes"])
    rows = []
    for row in attention_rows(report):
        reason = refusal(row["shape"])
        if reason:
            rows += [
                {**row, "peer": f"torch_{name}", "status": "refused", "reason": reason}
                for name in BACKENDS
            ]
            continue
        try:
            case = Measured(torch, row, report["inputs"]["seed"])
        except RuntimeError as error:
            print(f"{row['case']}: {error}", file=sys.stderr)
            continue
        rows += [
            measure_backend(torch, name, case, row, stopwatch, report) for name in BACKENDS
        ]
        del case
        torch.cuda.empty_cache()
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("report", help="JSON of heed-bench --device cuda; it is written anew")
    path = parser.parse_args().report
    try:
        import torch
    except ImportError:
        print("sdpa.py: this python3 has no PyTorch", file=sys.stderr)
        return 2
    if not torch.cuda.is_available():
        print("sdpa.py: PyTorch finds no GPU", file=sys.stderr)
        return 2
    with open(path, encoding="utf-8") as file:
        report = json.load(file)
    details = f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}"
    peers = [
        {
            "id": f"torch_{name}",
            "summary": f"PyTorch: scaled_dot_product_attention, backend {backend}",
            "details": details,
        }
        for name, backend in BACKENDS.items()
    ]
    result = merged(report, peers, measure(torch, report))
    with open(path, "w", encoding="utf-8") as file:
        json.dump(result, file, indent=1)
        file.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
