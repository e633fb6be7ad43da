"""Samples by the rules of heed-bench, for what runs in PyTorch."""

import math


def quantile(samples, fraction):
    """Linear between neighbours, as Quantile() of statistics.h."""
    ordered = sorted(samples)
    position = fraction * (len(ordered) - 1)
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (position - below) * (ordered[above] - ordered[below])


def summarize(milliseconds):
    """The fields of `ms`."""
    return {
        "median": quantile(milliseconds, 0.5),
        "p10": quantile(milliseconds, 0.1),
        "p90": quantile(milliseconds, 0.9),
        "min": min(milliseconds),
    }


def needs_another(plan, reps, seconds):
    """Whether another sample is due, as NeedsAnother() of measure.h."""
    if reps == 0:
        return True
    if seconds > plan["max_seconds"]:
        return False
    return reps < plan["min_reps"] or seconds < plan["min_seconds"]


def calls_per_sample(seconds):
    """As many calls as fill a millisecond."""
    return int(min(max(math.ceil(1e-3 / max(seconds, 1e-9)), 1), 1000))
