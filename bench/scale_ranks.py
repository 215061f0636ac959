#!/usr/bin/env python3
"""Steps of many GPUs, simulated: what `protrain plan` says of models on so many of a machine file's devices, as a table in Markdown.

    cmake --build build && python3 bench/scale_ranks.py [--machine h100] [--sequences 4] [--seq 4096] [--ranks 8 64 512 4096] [SHAPE ...]

SHAPE (default: llama-2-7b, llama-2-70b, llama-3.1-405b) is one of bench/shapes. Each rank has so many sequences, whatever the number of ranks.
Nothing is measured: computing and copies are timed by the machine file, and of the network only its bandwidth counts, the same between any two
machines. "Of the peak": the model's own operations, recomputed ones not counted, of what the data sheet says. The last column is how long the
planning itself took. A row each with --out FILE, as JSON lines.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import time

import train

GIB = 2**30


def plan(args, shape, ranks):
    command = [args.protrain, "plan", "--model", str(train.HERE / "shapes" / f"{shape}.json"), "--machine", args.machine, "--ranks", str(ranks),
               "--batch-size", str(args.sequences * ranks), "--seq-len", str(args.seq), "--json"]
    begun = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode not in (0, 3):
        sys.exit(done.stderr)
    return json.loads(done.stdout), time.monotonic() - begun


def chunks(plan_of):
    """How many are sharded, of all."""
    each = [(c.get("count", 1), bool(c.get("sharded"))) for c in plan_of["chunks"]]
    return sum(n for n, sharded in each if sharded), sum(n for n, _ in each)


def limits(said):
    """Where the time goes, as the plan's text has it."""
    for line in said["why"]:
        if line.startswith("time: "):
            return re.sub(r"^time: ", "", line)
    return "; ".join(said["why"][:1])


def row_of(args, shape, ranks, peak):
    said, seconds = plan(args, shape, ranks)
    row = {"model": shape, "ranks": ranks, "machine": args.machine, "sequences": args.sequences, "seq": args.seq, "fits": said["fits"],
           "planning_s": seconds}
    if not said["fits"]:
        row["missing_bytes"] = said["missing_bytes"]
        return row
    config = json.load(open(train.HERE / "shapes" / f"{shape}.json"))
    predicted = said["predicted"]
    each = predicted["tokens_per_s"] / ranks
    sharded, n = chunks(said["plan"])
    row.update(step_s=predicted["step_s"], tokens_per_s_and_rank=each, part_of_peak=each * train.flop_per_token(config, args.seq) / peak,
               device_bytes=predicted["peak_bytes"]["device"], host_bytes=predicted["peak_bytes"]["host"], sharded=sharded, chunks=n,
               waits_s=said["queues"], limits=limits(said))
    return row


def text_of(row, first):
    name = f"| {row['model']} | {row['ranks']} |"
    if not row["fits"]:
        return f"{name} does not fit: {row['missing_bytes'] / GIB:.0f} GiB are missing on each | | | | | | {row['planning_s']:.1f} s |"
    weights = "in shards" if row["sharded"] == row["chunks"] else "whole" if not row["sharded"] else f"{row['sharded']} of {row['chunks']} chunks in shards"
    return (f"{name} {row['step_s']:.3g} s | {row['tokens_per_s_and_rank']:.0f} | {100 * row['part_of_peak']:.0f}%, "
            f"{100 * row['tokens_per_s_and_rank'] / first:.0f}% | {row['device_bytes'] / GIB:.1f}, {row['host_bytes'] / GIB:.1f} GiB | {weights} | "
            f"{row['limits']} | {row['planning_s']:.1f} s |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="*", metavar="SHAPE", default=["llama-2-7b", "llama-2-70b", "llama-3.1-405b"])
    parser.add_argument("--machine", default="h100")
    parser.add_argument("--sequences", type=int, default=4, help="a rank")
    parser.add_argument("--seq", type=int, default=4096)
    parser.add_argument("--ranks", type=int, nargs="+", default=[8, 64, 512, 4096])
    parser.add_argument("--protrain", default=str(train.HERE.parent / "build" / "protrain"))
    parser.add_argument("--out", help="append the rows here, as JSON lines")
    args = parser.parse_args()
    peak = json.load(open(train.HERE.parent / "machines" / f"{args.machine}.json"))["device"]["bf16_flops"]
    print("| model | ranks | step | tokens per second and rank | of the peak, of the first row | device, host per rank | weights | where the time goes | planning |\n"
          "|---|---|---|---|---|---|---|---|---|", flush=True)
    for shape in args.shapes:
        first = None
        for ranks in args.ranks:
            row = row_of(args, shape, ranks, peak)
            first = first or row.get("tokens_per_s_and_rank")
            print(text_of(row, first), flush=True)
            if args.out:
                with open(args.out, "a") as f:
                    f.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
