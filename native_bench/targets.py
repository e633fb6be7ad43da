#!/usr/bin/env python3
"""Which speeds that heed aims at on a GPU the reports of scripts/gpu-check reach.

    python3 native_bench/targets.py RESULTS

reads bench.json, bench-float8.json, bench-rest.json, bench-recurrent.json, bench-backward.json and
bench-sockets.json in a folder, as far as they are there, and short.json in place of those that are not, and
prints a table. Needs nothing but python3: a GPU machine hardly ever has Node. float8 has no target: what was measured is shown below the table.

Prompts and gradients are judged by warm medians, decoding by cold ones: a cache of keys is read from
memory once a token. Of a case the faster of heed and heed_hopper counts, of a target its worst case.
A case that was wrong by either, or is missing, leaves the target unreached.
"""

import json
import pathlib
import sys
from dataclasses import dataclass
from typing import Callable

OURS = ("heed", "heed_hopper")
LONG = (8192, 16384)


@dataclass(frozen=True)
class Measure:
    """A number of a row, larger is better unless `less`; None where the report lacks it."""

    unit: str
    of: Callable
    less: bool = False
    digits: int = 1


@dataclass(frozen=True)
class Target:
    title: str
    stage: str
    cases: tuple  # what must be measured: fields of a row, as field() finds them
    measure: Measure
    bound: float


class Report:
    """The rows of one stage, and the rates of the machine in the same run."""

    def __init__(self, content):
        self.rows = content["rows"]
        self.gpu = content["machine"].get("gpu", {}).get("name", "a GPU without a name")
        self.probes = content.get("probes", {})

    def copy_gbps(self):
        return max((s.get("copy_gbps", 0) for s in self.probes.get("stream", [])), default=0)

    def fma_gflops(self):
        peaks = self.probes.get("fma", []) + self.probes.get("fma_after", [])
        return max((peak["gflops"] for peak in peaks if peak["target"] == "fma"), default=0)

    def matching(self, case):
        return [r for r in self.rows if all(field(r, name) == case[name] for name in case)]


def field(row, name):
    """Gradients have their sizes in the row itself, and their type in the name of the case alone."""
    if name == "dtype" and "dtype" not in row:
        types = {"bfloat16", "float16"} & set(row["case"].split("/"))
        return types.pop() if types else "float32"
    sizes = row.get("shape", row)
    own = {"head_dim_v": sizes.get("head_dim_v", sizes["head_dim"])}
    return row.get(name, sizes.get(name, own.get(name)))


def times_of_cudnn(row, others):
    """How many times as long cuDNN takes, by cold calls for single queries."""
    clock = "cold_ms" if field(row, "q_len") == 1 else "ms"
    times = [r[clock]["median"] for r in others if r["peer"] == "cudnn" and r["status"] == "timed"]
    return min(times) / row[clock]["median"] if times else None


def teraflops(row, *_):
    return row["gflops"] / 1000 if "gflops" in row else None


def cold_gbps(row):
    return row["bytes"] / row["cold_ms"]["median"] * 1e-6


def share(part, whole):
    return 100 * part / whole if part is not None and whole > 0 else None


TFLOPS = Measure("TFLOP/s", teraflops)
OVER_CUDNN = Measure("x cuDNN", lambda row, rows, report: times_of_cudnn(row, rows), digits=2)
TERABYTES = Measure("TB/s", lambda row, *_: cold_gbps(row) / 1000, digits=2)
MICROSECONDS = Measure("us", lambda row, *_: 1000 * row["cold_ms"]["median"], less=True)
OF_COPY = Measure("% of copy", lambda row, rows, report: share(cold_gbps(row), report.copy_gbps()))
OF_PEAK = Measure("% of its peak", lambda row, *_: share(row.get("fraction_of_fma_peak"), 1), digits=0)
OF_FMA = Measure("% of fma", lambda row, rows, report: share(row.get("gflops"), report.fma_gflops()))


def slower_than(case):
    """How much more time a pair of query and key takes than in the case of this name by ours."""

    def of(row, _rows, report):
        plain, _ = value_of(TFLOPS, {"case": case}, report)
        return 100 * (plain / teraflops(row) - 1) if plain else None

    return Measure("% slower", of, less=True)


def prompts(head_dim, mask, lengths=LONG, dtype="bfloat16", mechanism="scaled_dot_product"):
    case = {"mechanism": mechanism, "dtype": dtype, "head_dim": head_dim, "mask": mask}
    return tuple({**case, "head_dim_v": head_dim, "q_len": n, "kv_len": n} for n in lengths)


def decoding(batch, lengths):
    heads = {"num_heads": 32, "num_kv_heads": 8, "head_dim": 128, "q_len": 1}
    case = {"mechanism": "scaled_dot_product", "dtype": "bfloat16", "batch": batch, **heads}
    return tuple({**case, "kv_len": n} for n in lengths)


def attention_targets():
    for mask, bound in (("full", 600), ("causal", 540)):
        for length in LONG:
            title = f"forward, head_dim 128, {mask}, {length} tokens"
            cases = prompts(128, mask, (length,))
            yield Target(title, "bench", cases, TFLOPS, bound)
            yield Target(title, "bench", cases, OVER_CUDNN, 0.9)
            yield Target(f"{title}, then", "bench", cases, OVER_CUDNN, 1.0)
    for head_dim, bound in ((64, 430), (256, 600)):
        title = f"forward, head_dim {head_dim}, full, 8192 and 16384 tokens"
        yield Target(title, "bench", prompts(head_dim, "full"), TFLOPS, bound)
    title = "backward, head_dim 128, full, 8192 and 16384 tokens"
    yield Target(title, "bench-backward", prompts(128, "full"), TFLOPS, 450)


def other_targets():
    long, short = (65536, 131072), (1024, 4096)
    title = "decoding, batch 1, 65536 and 131072 keys"
    yield Target(title, "bench-rest", decoding(1, long), TERABYTES, 3.0)
    yield Target(title, "bench-rest", decoding(1, long), OVER_CUDNN, 1.5)
    title = "decoding, batch 32, 65536 and 131072 keys"
    yield Target(title, "bench-rest", decoding(32, long), OF_COPY, 80)
    title = "decoding, batch 1, 1024 and 4096 keys"
    yield Target(title, "bench-rest", decoding(1, short), MICROSECONDS, 10)
    for head_dim in (64, 128, 256):
        cases = prompts(head_dim, "full", dtype="float32")
        title = f"forward, float32, head_dim {head_dim}, full, 8192 and 16384 tokens"
        yield Target(title, "bench-rest", cases, OF_FMA, 60)
    # Rows without a mask of their own are causal always, and say "full".
    sums = ("linear", "retention", "mamba2", "gated_linear")
    for mechanism in (*sums, "gated_delta_rule", "kimi_delta", "rwkv7"):
        cases = [
            {"mechanism": mechanism, "dtype": "bfloat16", "head_dim": dim, "q_len": n}
            for dim in (64, 128)
            for n in (4096, 16384)
        ]
        title = f"prompts of {mechanism}, 4096 and 16384 tokens"
        yield Target(title, "bench-recurrent", tuple(cases), TFLOPS, 150)


def socket_targets():
    for head_dim, softcap in ((128, 25), (64, 45)):
        heads = 2048 // head_dim

        def name(of, mask):
            return f"scaled_dot_product/b2/h{of}/d{head_dim}/l8192/{mask}/bfloat16/cuda"

        for title, own, plain, bound in (
            ("softcap", (heads, "full/cap30"), "full", softcap),
            ("sinks", (heads, "full/sinks"), "full", 10),
            ("ALiBi", (heads, "full/alibi"), "full", 10),
            ("key_lengths", (heads, "full/keys8192"), "full", 10),
            ("key_lengths on the device", (heads, "full/device_keys8192"), "full", 10),
            ("grouped heads", (f"{heads}:{heads // 8}", "full"), "full", 10),
            ("causal", (heads, "causal"), "full", 10),
            ("window of 1024", (heads, "causal/w1023"), "causal", 10),
        ):
            cases = ({"case": name(*own)},)
            measure = slower_than(name(heads, plain))
            title = f"{title}, head_dim {head_dim}, 8192 tokens"
            yield Target(title, "bench-sockets", cases, measure, bound)


@dataclass(frozen=True)
class Shown:
    """What is measured and aimed at nowhere."""

    title: str
    stage: str
    cases: tuple
    measures: tuple


def shown_without_target():
    for head_dim in (64, 128, 256):
        for mask in ("full", "causal"):
            title = f"forward, float8_e4m3, head_dim {head_dim}, {mask}, 8192 and 16384 tokens"
            cases = prompts(head_dim, mask, dtype="float8_e4m3")
            yield Shown(title, "bench-float8", cases, (TFLOPS, OF_PEAK))


TARGETS = (*attention_targets(), *other_targets(), *socket_targets())
SHOWN = tuple(shown_without_target())
# arXiv:2407.08608, abstract: on an H100, at its best.
ELSEWHERE = "FlashAttention-3 publishes close to 1200 TFLOP/s in FP8"


def value_of(measure, case, report):
    """The better number of ours for a case, and what is amiss with it."""
    rows = report.matching(case)
    ours = [row for row in rows if row.get("peer", "heed") in OURS]
    values = [measure.of(row, rows, report) for row in ours if row["status"] == "timed"]
    values = [value for value in values if value is not None]
    wrong = [f"{row.get('peer', 'heed')} is wrong" for row in ours if row["status"] == "wrong"]
    best = (min if measure.less else max)(values, default=None)
    return best, wrong


def values_of(cases, measure, report):
    """The numbers of ours for the cases that have one, ascending, and what is amiss."""
    found = [value_of(measure, case, report) for case in cases]
    wrong = sorted({reason for _, reasons in found for reason in reasons})
    return sorted(value for value, _ in found if value is not None), wrong


def ends_of(values, measure):
    """The least and the greatest number, with their unit."""
    ends = dict.fromkeys(f"{value:.{measure.digits}f}" for value in (values[:1] + values[-1:]))
    return f"{' to '.join(ends)} {measure.unit}" if values else "not measured"


def judge(target, report):
    """What was measured, and whether it is reached: yes, no with a reason, or nothing to say."""
    if report is None:
        return "not measured", "-"
    values, wrong = values_of(target.cases, target.measure, report)
    measured = ends_of(values, target.measure)
    if wrong:
        return measured, "no: " + ", ".join(wrong)
    if not values:
        return measured, "-"
    less = target.measure.less
    missed = values[-1] > target.bound if less else values[0] < target.bound
    if not missed and len(values) < len(target.cases):
        return measured, f"no: {len(target.cases) - len(values)} of {len(target.cases)} not measured"
    return measured, "no" if missed else "yes"


def shown(row, report):
    """What was measured where nothing is aimed at, and what is amiss with it."""
    if report is None:
        return "not measured"
    cells, wrong = [], []
    for measure in row.measures:
        values, wrong = values_of(row.cases, measure, report)
        cells += [ends_of(values, measure)] if values else []
    return ", ".join(cells + wrong) or "not measured"


def named(target):
    sign = "<=" if target.measure.less else ">="
    return f"{target.title}: {sign} {target.bound:g} {target.measure.unit}"


def aligned(lines):
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return [" | ".join(cell.ljust(w) for cell, w in zip(line, widths)).rstrip() for line in lines]


def context(reports):
    """The GPU of each report, and what the targets were made for."""
    known = {stage: report for stage, report in reports.items() if report}
    lines = [f"{stage}: {report.gpu}" for stage, report in known.items()]
    lines += [f"{stage}: no report" for stage in reports if stage not in known]
    if any("H200" not in report.gpu for report in known.values()):
        lines.append(
            "The targets are for an H200. An H100 SXM computes as fast and has 3.35 instead of 4.8 TB/s"
            " of memory: there look at shares of the copy rate, not at TB/s and us."
        )
    rest = known.get("bench-rest")
    if rest and rest.copy_gbps() > 0:
        copy = rest.copy_gbps() / 1000
        lines.append(f"copy rate of bench-rest: {copy:.2f} TB/s; 3.0 TB/s are {300 / copy:.0f} % of it")
    lines.append("prompts and gradients: warm medians; decoding: cold ones; bfloat16 unless said")
    return lines


def table(reports):
    rows = [(named(target), *judge(target, reports[target.stage])) for target in TARGETS]
    reached = sum(row[2] == "yes" for row in rows)
    lines = aligned([("target", "measured", "reached"), *rows])
    others = [(row.title, shown(row, reports[row.stage])) for row in SHOWN]
    without = aligned([(f"without a target ({ELSEWHERE})", "measured"), *others])
    return [*context(reports), "", *lines, "", f"{reached} of {len(rows)} reached", "", *without]


def read(path):
    """The report, or nothing where a stage left none, or half of one when it was cut off."""
    try:
        return Report(json.loads(path.read_text(encoding="utf-8")))
    except (FileNotFoundError, json.JSONDecodeError):
        return None


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    folder = pathlib.Path(sys.argv[1])
    stages = dict.fromkeys(row.stage for row in (*TARGETS, *SHOWN))
    short = read(folder / "short.json")
    print("\n".join(table({stage: read(folder / f"{stage}.json") or short for stage in stages})))
    return 0


if __name__ == "__main__":
    sys.exit(main())
