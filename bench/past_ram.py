#!/usr/bin/env python3
"""Training models whose states are larger than the memory given: how near to the machine's limit.

    cmake --build build && python bench/past_ram.py [--seq 512] [--steps 2] [--out FILE] [SHAPE:MEMORY:BATCH ...]

Each case (default: GPT-2 774M in 2 GiB, 1.5B in 4 GiB, a 3B Qwen2.5 in 8 GiB, four sequences each) trains a shape of
bench/shapes with random weights and ids in bf16, with exact clipping, states on the disk of the current folder. The
limit is the larger of what the run's plan computes, what it computes again included (without that it is said too),
and its bytes at the disk's rates, each alone, from a profile measured just before the run and one just after it.
Prints a line for each case, with --out also as JSON lines. Needs numpy.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import train

CASES = ["gpt2-774m:2GiB:4", "gpt2-1.5b:4GiB:4", "qwen2.5-3b:8GiB:4"]


def measure(args, options, path):
    """A profile of this moment."""
    subprocess.run([args.protrain, "profile", "--fresh", "--out", str(path)] + options, check=True, stdout=subprocess.DEVNULL)


def price(args, options, plan, profile):
    """What `protrain plan` says of the plan by the profile."""
    return json.loads(subprocess.run([args.protrain, "plan", "--profile", str(profile), "--plan", str(plan), "--json"] + options, check=True,
                                     stdout=subprocess.PIPE, text=True).stdout)


def run(args, case):
    shape, memory, batch = case.split(":")
    config = str(train.HERE / "shapes" / (shape + ".json"))
    options = ["--model", config, "--batch-size", batch, "--seq-len", str(args.seq), "--device-memory", memory, "--quiet"]
    with tempfile.TemporaryDirectory(dir=".") as name:
        folder = pathlib.Path(name)
        measure(args, options, folder / "before.json")
        row = train.train(argparse.Namespace(config=config, batch=int(batch), seq=args.seq, steps=args.steps, device="cpu",
                                             device_memory=memory, protrain=args.protrain, threads=None), "bf16", name)
        if not row:
            sys.exit(1)
        measure(args, options, folder / "after.json")
        plan = next(folder.glob("out-*/plan.json"))
        before, after = (price(args, options, plan, folder / when) for when in ("before.json", "after.json"))
    limits = [said["limit_s"] for said in (before, after)]
    needed = [said["needed_s"] for said in (before, after)]
    row.update(shape=shape, needed_before_s=needed[0], needed_after_s=needed[1], part_of_needed=sum(needed) / 2 / row["step_s"], memory=memory, limit_before_s=limits[0], limit_after_s=limits[1], read_bytes=after["disk"]["read_bytes"],
               written_bytes=after["disk"]["written_bytes"], part_of_limit=sum(limits) / 2 / row["step_s"])
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
              f"limit {row['limit_before_s']:.1f} s before and {row['limit_after_s']:.1f} s after: {100 * row['part_of_limit']:.0f}% of it, {100 * row['part_of_needed']:.0f}% of what computing "
              f"alone takes where everything is kept; "
              f"{row['peak_rss_bytes'] / 2**30:.2f} GiB of RAM, {row['read_bytes'] / 2**30:.1f} GiB read and "
              f"{row['written_bytes'] / 2**30:.1f} GiB written a step", flush=True)
        if args.out:
            with open(args.out, "a") as f:
                f.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    sys.exit(main())
