#!/usr/bin/env python3
"""Training models whose states are larger than the memory given: how near to the machine's limit.

    cmake --build build && python bench/past_ram.py [--seq 512] [--steps 2] [--out FILE] [SHAPE:MEMORY:BATCH ...]

Each case (default: GPT-2 774M in 2 GiB, 1.5B in 4 GiB, a 3B Qwen2.5 in 8 GiB, four sequences each) trains a shape of
bench/shapes with random weights and ids in bf16, with exact clipping, states on the disk of the current folder. The limit is
the larger of computing alone and the disk's bytes at the disk's measured rates, from a profile measured just before the run and one
just after it. Prints a line for each case, with --out also as JSON lines. Needs numpy.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import train

CASES = ["gpt2-774m:2GiB:4", "gpt2-1.5b:4GiB:4", "qwen2.5-3b:8GiB:4"]


def limit(args, model, memory, batch, plan):
    """Of the plan's step, by a profile measured now: (limit in seconds, bytes read, bytes written)."""
    same = ["--model", model, "--batch-size", batch, "--seq-len", str(args.seq), "--device-memory", memory, "--quiet"]
    profile = str(pathlib.Path(plan).parent / "measured.json")
    subprocess.run([args.protrain, "profile", "--fresh", "--out", profile] + same, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    done = subprocess.run([args.protrain, "plan", "--profile", profile, "--plan", plan, "--json"] + same, check=True,
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    said = json.loads(done.stdout)
    return said["limit_s"], said["disk"]["read_bytes"], said["disk"]["written_bytes"]


def run(args, case):
    shape, memory, batch = case.split(":")
    config = str(train.HERE / "shapes" / (shape + ".json"))
    with tempfile.TemporaryDirectory(dir=".") as folder:
        plan = str(pathlib.Path(folder, "plan.json"))
        same = ["--model", config, "--batch-size", batch, "--seq-len", str(args.seq), "--device-memory", memory, "--quiet"]
        said = json.loads(subprocess.run([args.protrain, "plan", "--json"] + same, check=True, stdout=subprocess.PIPE,
                                         stderr=subprocess.DEVNULL, text=True).stdout)
        pathlib.Path(plan).write_text(json.dumps(said["plan"]))
        before, read, written = limit(args, config, memory, batch, plan)
        row = train.train(argparse.Namespace(config=config, batch=int(batch), seq=args.seq, steps=args.steps, device="cpu",
                                             device_memory=memory, protrain=args.protrain), "bf16", folder)
        after = limit(args, config, memory, batch, plan)[0]
    row.update(shape=shape, memory=memory, limit_before_s=before, limit_after_s=after, read_bytes=read, written_bytes=written,
               part_of_limit=(before + after) / 2 / row["step_s"])
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", default=CASES)
    parser.add_argument("--seq", type=int, default=512)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--protrain", default=str(train.HERE.parent / "build" / "protrain"))
    parser.add_argument("--out", help="append the results here, as JSON lines")
    args = parser.parse_args()
    for case in args.cases:
        row = run(args, case)
        print(f"{case}: {row['tokens_per_s']:.1f} tokens/s, {row['step_s']:.1f} s a step ({row['step_s_min']:.1f} to {row['step_s_max']:.1f}); "
              f"limit {row['limit_before_s']:.1f} s before and {row['limit_after_s']:.1f} s after: {100 * row['part_of_limit']:.0f}% of it; "
              f"{row['peak_rss_bytes'] / 2**30:.2f} GiB of RAM, {row['read_bytes'] / 2**30:.1f} GiB read and "
              f"{row['written_bytes'] / 2**30:.1f} GiB written a step", flush=True)
        if args.out:
            with open(args.out, "a") as f:
                f.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    sys.exit(main())
