#!/usr/bin/env python3
"""How long `protrain plan` takes, from its start to its end, for a model's shape on every machine file.

    cmake --build build && python3 bench/plan_times.py [--runs 7] [--protrain build/protrain] [SHAPE ...]

Each SHAPE (default: llama-2-70b and llama-3-70b) of bench/shapes is planned with the memory that is in the machine
file, and with 2 TiB of host memory or of disk. Prints a table: median and slowest of the runs, the median of processor time, and
the step that is predicted, or that it does not fit.
"""

import argparse
import pathlib
import re
import resource
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUDGETS = {"as in the file": [], "2 TiB of host": ["--host-memory", "2TiB"], "2 TiB of disk": ["--disk-memory", "2TiB"]}
DOES_NOT_FIT = 3


def processor_s():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run(command):
    """Seconds, seconds of processor time, and what came out."""
    begun, processor = time.monotonic(), processor_s()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    seconds, processor = time.monotonic() - begun, processor_s() - processor
    if done.returncode not in (0, DOES_NOT_FIT):
        sys.exit(done.stderr)
    step = re.search(r"^step +(.*?),", done.stdout, re.M)
    return seconds, processor, step.group(1) if step else "does not fit"


def row(args, machine, shape, budget):
    config = ROOT / "bench" / "shapes" / (shape + ".json")
    command = [args.protrain, "plan", "--quiet", "--machine", str(machine), "--model", str(config)] + BUDGETS[budget]
    runs = [run(command) for _ in range(args.runs)]
    walls = [r[0] for r in runs]
    print(f"| {machine.stem} | {shape} | {budget} | {statistics.median(walls):.2f} | {max(walls):.2f} "
          f"| {statistics.median(r[1] for r in runs):.2f} | {runs[-1][2]} |", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("shapes", nargs="*", metavar="SHAPE", default=["llama-2-70b", "llama-3-70b"])
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--protrain", default=str(ROOT / "build" / "protrain"))
    args = parser.parse_args()
    print("| machine | model | memory | seconds, median | slowest | of processor time, median | step |\n|---|---|---|---|---|---|---|")
    for machine in sorted((ROOT / "machines").glob("*.json")):
        for shape in args.shapes:
            for budget in BUDGETS:
                row(args, machine, shape, budget)


if __name__ == "__main__":
    main()
