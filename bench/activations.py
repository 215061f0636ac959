#!/usr/bin/env python3
"""Activations in 8 bits beside exact ones: how far gradients are away, and the losses of a run.

    bench/activations.py --program build/protrain --model DIR --data FILE [--steps 500] [--lr 1e-3] [--forms int8,fp8] [-- more options of train]

Gradients are those of the first step, from the model as it is and from what the run with exact activations made of it. They are read off one step
of AdamW without moments and decay: with eps 1 the update is lr g / (|g| + 1), and master weights in fp32 hold it. Needs numpy and safetensors.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
from safetensors.numpy import load_file

LR = 1e3


def train(a, model, out, form, *more):
    subprocess.run([a.program, "train", "--model", model, "--data", a.data, "--out", out, "--activations", form, "--device", "cpu", *a.more, *more],
                   check=True, stdout=subprocess.DEVNULL)
    return [json.loads(line) for line in (pathlib.Path(out) / "metrics.jsonl").read_text().splitlines()]


def weights(folder):
    return {n: w.astype(np.float64) for n, w in load_file(pathlib.Path(folder) / "model.safetensors").items()}


def gradient(a, model, folder, form):
    """Of the first step, by tensor."""
    after = {}
    for lr in (LR, 1e-30):
        out = f"{folder}/{form}-{lr:g}"
        train(a, model, out, form, "--steps", "1", "--lr", f"{lr:g}", "--lr-schedule", "constant", "--beta1", "0", "--beta2", "0", "--eps", "1",
              "--weight-decay", "0", "--max-grad-norm", "0", "--save-dtype", "fp32")
        after[lr] = weights(out)
    return {n: (after[1e-30][n] - w) / LR for n, w in after[LR].items()}


def report_gradients(a, model, folder):
    exact = gradient(a, model, folder, "exact")
    for form in a.forms:
        other = gradient(a, model, folder, form)
        error = {n: np.linalg.norm(other[n] - g) for n, g in exact.items()}
        size = {n: np.linalg.norm(g) for n, g in exact.items()}
        each = sorted((error[n] / size[n], n) for n in exact if size[n] > 0)
        norm = np.sqrt(sum(s**2 for s in size.values()))
        whole, (worst, name) = np.sqrt(sum(e**2 for e in error.values())) / norm, each[-1]
        print(f"gradient, {form}: {whole:.2e} of its norm away; tensors: median {each[len(each) // 2][0]:.2e}, most {worst:.2e} in {name}, "
              f"which has {size[name] / norm:.1e} of the norm", flush=True)


def report_losses(a, folder):
    losses = {form: [m["loss"] for m in train(a, a.model, f"{folder}/run-{form}", form, "--steps", str(a.steps), "--lr",
                                                     str(a.lr), "--lr-schedule", "constant") if "loss" in m]
              for form in ["exact", *a.forms]}
    n = max(a.steps // 10, 1)
    print("mean loss of steps   " + "".join(f"{form:>10}" for form in losses))
    for first in range(0, a.steps, n):
        print(f"{first + 1:8} to {min(first + n, a.steps):8} " + "".join(f"{np.mean(l[first:first + n]):10.4f}" for l in losses.values()), flush=True)
    for form in a.forms:
        away = np.abs(np.array(losses[form]) - losses["exact"])
        print(f"{form}: a step's loss is at most {away.max():.4f} away, in the mean {away.mean():.5f}")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--program", default="build/protrain")
    p.add_argument("--model", required=True)
    p.add_argument("--data", required=True)
    p.add_argument("--steps", type=int, default=500)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--forms", type=lambda s: s.split(","), default=["int8", "fp8"])
    args = sys.argv[1:]
    cut = args.index("--") if "--" in args else len(args)
    a = p.parse_args(args[:cut])
    a.more = args[cut + 1:]
    with tempfile.TemporaryDirectory() as folder:
        report_gradients(a, a.model, f"{folder}/before")
        if a.steps:
            report_losses(a, folder)
            report_gradients(a, f"{folder}/run-exact", f"{folder}/after")


if __name__ == "__main__":
    main()
