#!/usr/bin/env python3
"""Compares two builds of Weir: alternated runs of rows of the bench `compare`, and for each row the mean
ratio of the new build's speed to the old one's, with its 95 % confidence interval.

usage: benches/paired.py COMPARE OLD NEW ROW[,ROW...] RUNS [ARGUMENT OF compare ...]

RUNS is 2 or more.

COMPARE is the built bench, which `cargo bench --profile dist --bench compare --no-run` names. OLD and NEW
are `weir` binaries. Every run starts each of them once, in alternating order, and measures it alone. The
ratio of a run is that of CPU time for reads and forwarded requests, and of deliveries a CPU second for
watches: above 1 the new build is faster. The interval is that of the mean of the logarithms, by Student's
t-distribution. Only Python's standard library is needed.
"""

import json
import math
import os
import subprocess
import sys
import tempfile

# The two-sided 95 % quantiles of Student's t-distribution for 1 to 30 degrees of freedom.
T95 = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
       2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048,
       2.045, 2.042]


def cost(figures):
    """CPU time for the same work, from the figures of one row."""
    if "deliveries" in figures:
        return figures["cpu_s"] / figures["deliveries"]
    return figures.get("cpu_ms") or figures.get("cpu_us")


def measure(compare, binary, rows, arguments):
    """Runs the rows once with one build. Returns the cost by row."""
    with tempfile.NamedTemporaryFile() as out:
        command = [compare, "--alone", "--only", rows, "--out", out.name, *arguments]
        environment = os.environ | {"WEIR_BENCH_BINARY": os.path.abspath(binary)}
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
        figures = {}
        for line in open(out.name):
            value = json.loads(line)
            if value.get("server") == "weir":
                figures.setdefault(value["row"], {})[value["figure"]] = value["value"]
    wanted = rows.split(",")
    return {row: cost(figures[row]) for row in figures if row in wanted}


def interval(ratios):
    """The geometric mean and its 95 % confidence interval."""
    logs = [math.log(ratio) for ratio in ratios]
    mean = sum(logs) / len(logs)
    variance = sum((log - mean) ** 2 for log in logs) / (len(logs) - 1)
    half = T95[min(len(logs) - 1, len(T95)) - 1] * math.sqrt(variance / len(logs))
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def main():
    if len(sys.argv) < 6 or int(sys.argv[5]) < 2:
        sys.exit(__doc__)
    compare, old, new, rows, runs = sys.argv[1:6]
    ratios = {}
    for run in range(int(runs)):
        order = [old, new] if run % 2 == 0 else [new, old]
        costs = {binary: measure(compare, binary, rows, sys.argv[6:]) for binary in order}
        for row in costs[old]:
            ratios.setdefault(row, []).append(costs[old][row] / costs[new][row])
        print(f"run {run + 1}:", {row: round(found[-1], 3) for row, found in ratios.items()}, flush=True)
    print("| row | new / old, mean | 95 % interval | runs |\n|---|---|---|---|")
    for row, found in ratios.items():
        mean, low, high = interval(found)
        print(f"| `{row}` | {mean:.3f} | {low:.3f} to {high:.3f} | {len(found)} |")


if __name__ == "__main__":
    main()
