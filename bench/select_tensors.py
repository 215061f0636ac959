#!/usr/bin/env python3
"""Trains what `protrain plan --select` proposes, and other tensors of as many bytes, on new data; prints losses after a few steps.

    cmake --build build && python3 bench/select_tensors.py FOLDER MODEL [--protrain build/protrain] [--threads 1]

MODEL is a trained model of bench/optimizer_curves.py, such as its FOLDER/AdamW-0.001. The new data are its language with other
successors in half of the topics. Beside the proposal: all parameters; the last layers (from the head down, as many as have the bytes);
random tensors (RANDOM draws, in random order as long as they have the bytes). These are not checked to fit: below the proposal's depth
they need more activations, which is in their favour. Needs numpy.
"""

import argparse
import json
import pathlib
import random
import shutil
import subprocess
import sys

import numpy as np

from optimizer_curves import BATCH, SEQ_LEN, write_tokens

ROOT = pathlib.Path(__file__).resolve().parent.parent
STEPS, LR, RANDOM, SIZES = 60, 1e-3, 8, ["36MiB", "45MiB", "60MiB"]


def call(args, command, options, data=None):
    line = [args.protrain, command, "--device", "cpu", "--threads", args.threads, "--model", args.model, "--data",
            data or args.folder / "new.npy", "--seq-len", SEQ_LEN] + options
    if command != "eval":
        line += ["--quiet", "--batch-size", BATCH]
    done = subprocess.run([str(word) for word in line], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout


def train(args, names):
    """The loss on held-out data after STEPS steps."""
    out = args.folder / "run"
    shutil.rmtree(out, ignore_errors=True)
    call(args, "train", ["--steps", STEPS, "--lr", LR, "--disk-memory", 0, "--eval-data", args.folder / "new-held-out.npy", "--out", out]
         + [word for name in names for word in ("--train-only", name)])
    return json.loads((out / "summary.json").read_text())["eval_loss"]


def fill(tensors, room):
    """Names of tensors in this order, those that have room."""
    names = []
    for tensor in tensors:
        if tensor["bytes"] <= room:
            room -= tensor["bytes"]
            names += tensor["names"]
    return names


def compare_alone(args, tensors):
    """Trains each parameter alone, as Lin and others do, and compares how far the loss falls with its contribution."""
    before = json.loads(call(args, "eval", ["--json"], args.folder / "new-held-out.npy"))["loss"]
    fallen = [before - train(args, tensor["names"]) for tensor in tensors]
    ranks = [np.argsort(np.argsort(values)) for values in (fallen, [tensor["contribution"] for tensor in tensors])]
    print(f"\n{len(tensors)} parameters, each trained alone: the loss before is {before:.3f}; rank correlation of its fall and the "
          f"contribution {np.corrcoef(*ranks)[0, 1]:.2f}")
    for tensor, fall in zip(tensors, fallen):
        print(json.dumps({"names": tensor["names"], "contribution": round(tensor["contribution"], 4), "fall": round(fall, 4)}))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--protrain", default=str(ROOT / "build" / "protrain"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--alone", action="store_true", help="instead, compare contributions with the training of each parameter alone")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    write_tokens(args.folder / "new.npy", (STEPS + 16) * BATCH * SEQ_LEN + 1, 11, changed=8)
    write_tokens(args.folder / "new-held-out.npy", 64 * SEQ_LEN + 1, 12, changed=8)
    if args.alone:
        return compare_alone(args, json.loads(call(args, "plan", ["--select", SIZES[-1], "--json"]))["select"]["tensors"])
    print(f"all parameters: {train(args, []):.3f}\n", flush=True)
    print(f"| size | share | proposal | last layers | random: best, mean, worst of {RANDOM} |\n|---|---|---|---|---|", flush=True)
    for size in SIZES:
        chosen = json.loads(call(args, "plan", ["--select", size, "--json"]))["select"]
        tensors = chosen["tensors"]
        room = sum(t["bytes"] for t in tensors if t["chosen"])
        proposal, last = train(args, chosen["train_only"]), train(args, fill(tensors[::-1], room))
        losses = [train(args, fill(random.Random(seed).sample(tensors, len(tensors)), room)) for seed in range(RANDOM)]
        drawn = ", ".join(f"{loss:.3f}" for loss in (min(losses), np.mean(losses), max(losses)))
        print(f"| {size} | {chosen['share']:.0%} | {proposal:.3f} | {last:.3f} | {drawn} |", flush=True)


if __name__ == "__main__":
    main()
