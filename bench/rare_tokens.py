#!/usr/bin/env python3
"""AdamW with 8-bit moments beside AdamW, on tokens of which most are rare (Zipf): losses, and how far entries of the embedding move.

    cmake --build build && python3 bench/rare_tokens.py [--steps 1000] [--protrain build/protrain]

Trains a Llama of one layer (hidden 64, 2000 tokens, untied head) in fp32: first from random weights at a rate of 1e-3 with each
optimizer; then the model of AdamW goes on at 5e-5 with other tokens, with each optimizer. Prints a table. Needs numpy and safetensors.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
from safetensors.numpy import load_file

ROOT = pathlib.Path(__file__).resolve().parent.parent
VOCABULARY, SEQ_LEN, BATCH, LAST = 2000, 32, 8, 50
TABLES = ("model.embed_tokens.weight", "lm_head.weight")
CONFIG = {"model_type": "llama", "vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1,
          "num_attention_heads": 4, "num_key_value_heads": 4, "max_position_embeddings": 64, "rms_norm_eps": 1e-6,
          "tie_word_embeddings": False}


def write_tokens(path, steps, seed, factor):
    """Zipf's law with exponent 1.1; each second token follows from the one before."""
    random = np.random.default_rng(seed)
    share = 1 / np.arange(1, VOCABULARY + 1) ** 1.1
    ids = random.choice(VOCABULARY, size=steps * BATCH * SEQ_LEN + 1, p=share / share.sum()).astype(np.uint16)
    ids[1::2] = (ids[0:-1:2].astype(int) * factor + 3) % VOCABULARY
    np.save(path, ids)


def train(args, model, data, out, optimizer, lr):
    command = [args.protrain, "train", "--quiet", "--model", model, "--data", data, "--out", out, "--optimizer", optimizer, "--lr", lr,
               "--steps", args.steps, "--seq-len", SEQ_LEN, "--batch-size", BATCH, "--dtype", "fp32", "--device", "cpu"]
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    lines = [json.loads(line) for line in open(out / "metrics.jsonl")]
    return np.mean([line["loss"] for line in lines[-LAST:]])


def row(what, optimizer, loss, before, after):
    entry = max(abs(after[name]).max() for name in TABLES)
    moved = max(abs(after[name] - before[name]).max() for name in TABLES) if before else None
    print(f"| {what} | {optimizer} | {loss:.4f} | {entry:.3f} | {'' if moved is None else f'{moved:.4f}'} |", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--protrain", default=str(ROOT / "build" / "protrain"))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "model").mkdir()
        (folder / "model" / "config.json").write_text(json.dumps(CONFIG))
        write_tokens(folder / "first.npy", args.steps, 0, 7)
        write_tokens(folder / "then.npy", args.steps, 1, 11)
        print(f"| {args.steps} steps | optimizer | loss, mean of the last {LAST} | largest entry | largest change |\n|---|---|---|---|---|")
        for optimizer in ("adamw", "adamw8bit"):
            loss = train(args, folder / "model", folder / "first.npy", folder / optimizer, optimizer, 1e-3)
            row("from random weights, 1e-3", optimizer, loss, None, load_file(folder / optimizer / "model.safetensors"))
        before = load_file(folder / "adamw" / "model.safetensors")
        for optimizer in ("adamw", "adamw8bit"):
            out = folder / ("then-" + optimizer)
            loss = train(args, folder / "adamw", folder / "then.npy", out, optimizer, 5e-5)
            row("from AdamW's model, 5e-5", optimizer, loss, before, load_file(out / "model.safetensors"))


if __name__ == "__main__":
    main()
