#!/usr/bin/env python3
"""Trains a Llama of 5 million parameters from random weights with AdamW, GaLore, APOLLO, APOLLO-Mini and in two ways of low rank.

    cmake --build build && python3 bench/optimizer_curves.py FOLDER [--protrain build/protrain] [--threads 1]

The corpus is a made-up language of 512 words (write_tokens); all methods take the same tokens in the same order. Each runs with several
learning rates. FOLDER keeps the runs, and a second call does only what is missing. Prints a table, and writes FOLDER/curves.jsonl and
docs/pictures/optimizers.svg. Needs numpy and safetensors.

low rank   every matrix of a layer is the product B A of two trained factors of rank RANK: an adapter on a base whose matrices are 0.
           A and B start so that B A has the variance of the other methods' weights
LoRA       the same beside random matrices that stay frozen; B starts at 0

In both, embedding, head and last norm are trained in full, and the layers' norms stay at 1.
"""

import argparse
import json
import math
import pathlib
import shutil
import subprocess
import sys

import numpy as np
from safetensors.numpy import load_file, save_file

ROOT = pathlib.Path(__file__).resolve().parent.parent
VOCABULARY, TOPICS, SUCCESSORS, STAY = 512, 16, 6, 63 / 64
SEQ_LEN, BATCH, STEPS, EVAL_EVERY, EVAL_WINDOWS = 128, 8, 1200, 100, 128
RANK = 64
CONFIG = {"model_type": "llama", "vocab_size": VOCABULARY, "hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 6,
          "num_attention_heads": 4, "num_key_value_heads": 4, "max_position_embeddings": SEQ_LEN, "rms_norm_eps": 1e-6,
          "tie_word_embeddings": False, "initializer_range": 0.02}
LOW = ["--lora", RANK, "--lora-alpha", RANK, "--train-also", "embed_tokens,lm_head,norm"]
METHODS = {
    "AdamW": (["--optimizer", "adamw"], [5e-4, 1e-3, 3e-3]),
    "GaLore": (["--optimizer", "galore", "--optimizer-args", f"rank={RANK}"], [3e-3, 1e-2, 3e-2]),
    "APOLLO": (["--optimizer", "apollo", "--optimizer-args", f"rank={RANK}"], [3e-3, 1e-2, 3e-2]),
    "APOLLO-Mini": (["--optimizer", "apollo_mini"], [3e-3, 1e-2, 3e-2]),
    "LoRA": (LOW, [3e-4, 1e-3, 3e-3, 1e-2]),
    "low rank": ([], [3e-4, 1e-3, 3e-3, 1e-2]),
}
COLOURS = {"AdamW": "#2563eb", "GaLore": "#139a74", "APOLLO": "#ea7317", "APOLLO-Mini": "#8b5cf6", "LoRA": "#9aa3af",
           "low rank": "#d14d8b"}


def language(changed=0):
    """(topic, word, k): the words that may follow. `changed`: so many topics have others."""
    share = 1 / np.arange(1, VOCABULARY + 1)
    draw = [np.random.default_rng(seed).choice(VOCABULARY, size=(TOPICS, VOCABULARY, SUCCESSORS), p=share / share.sum()) for seed in (0, 3)]
    return np.concatenate([draw[1][:changed], draw[0][changed:]])


def write_tokens(path, count, seed, changed=0):
    """A word has SUCCESSORS that may follow it, other ones in each of TOPICS; the k-th is drawn in proportion to 1 / k. A topic lasts
    1 / (1 - STAY) words on average. Frequent words follow more words (Zipf). The language is the same for every seed."""
    follows, random = language(changed), np.random.default_rng(seed)
    shares = np.cumsum(1 / np.arange(1, SUCCESSORS + 1))
    kth = np.searchsorted(shares / shares[-1], random.random(count))
    changes = np.cumsum(random.random(count) > STAY)
    topics = random.integers(TOPICS, size=changes[-1] + 1)[changes]
    ids, word = np.empty(count, np.uint16), 0
    for i in range(count):
        word = follows[topics[i], word, kth[i]]
        ids[i] = word
    np.save(path, ids)


def least_loss(path):
    """The loss of one who knows the tables and each word's topic: no model has a lower one on average."""
    follows, each = language(), 1 / np.arange(1, SUCCESSORS + 1) / np.sum(1 / np.arange(1, SUCCESSORS + 1))
    ids = np.load(path)
    counts, losses = np.bincount(ids, minlength=VOCABULARY) / len(ids), []
    for word in range(VOCABULARY):
        of_topics = []
        for topic in range(TOPICS):  # a word may be listed twice
            p = np.bincount(follows[topic, word], weights=each)
            p = p[p > 0]
            of_topics.append(-np.sum(p * np.log(p)))
        losses.append(counts[word] * np.mean(of_topics))
    return float(np.sum(losses))


def protrain(args, model, out, steps, options):
    command = [args.protrain, "train", "--quiet", "--device", "cpu", "--disk-memory", 0, "--threads", args.threads, "--model", model,
               "--data", args.folder / "train.npy", "--out", out, "--steps", steps, "--seq-len", SEQ_LEN, "--batch-size", BATCH] + options
    done = subprocess.run([str(c) for c in command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.stderr)


def make_low_rank(args):
    """base: a model whose layers' matrices are 0; start: an adapter of factors. Made from what runs of one step without effect write."""
    start, base = args.folder / "start", args.folder / "base"
    if start.exists() and base.exists():
        return
    still = ["--lr", 1e-30]
    protrain(args, args.folder / "model", base, 1, still)
    protrain(args, args.folder / "model", start, 1, still + LOW)
    weights = {name: 0 * w if "_proj" in name else w for name, w in load_file(base / "model.safetensors").items()}
    save_file(weights, base / "model.safetensors", {"format": "pt"})
    factors, random = load_file(start / "adapter_model.safetensors"), np.random.default_rng(1)
    for name in sorted(factors):
        if "lora_B" in name:
            inputs = factors[name.replace("lora_B", "lora_A")].shape[1]
            std = CONFIG["initializer_range"] * math.sqrt(3 * inputs / RANK)  # A has the variance 1 / (3 inputs)
            factors[name] = random.normal(0, std, factors[name].shape).astype(np.float32)
    save_file(factors, start / "adapter_model.safetensors", {"format": "pt"})
    (start / "adapter_base.json").unlink(missing_ok=True)


def folder_of(args, method, lr):
    return args.folder / f"{method.replace(' ', '-')}-{lr:g}"


def done(args, method, lr):
    return (folder_of(args, method, lr) / "finished.json").exists()


def run(args, method, lr):
    out = folder_of(args, method, lr)
    if not done(args, method, lr):
        shutil.rmtree(out, ignore_errors=True)
        options, low = METHODS[method][0], method == "low rank"
        schedule = ["--lr", lr, "--lr-schedule", "cosine", "--min-lr-ratio", 0.1, "--warmup-ratio", 0.1, "--max-grad-norm", 0,
                    "--eval-data", args.folder / "held-out.npy", "--eval-every", EVAL_EVERY]
        protrain(args, args.folder / ("base" if low else "model"), out, STEPS,
                 schedule + (["--adapter", args.folder / "start"] if low else options))
    lines = [json.loads(line) for line in open(out / "metrics.jsonl")]
    curve = [[line["step"], round(line["eval_loss"], 4)] for line in lines if "eval_loss" in line]
    return {"method": method, "lr": lr, "step_ms": round(1000 * float(np.median([line["step_s"] for line in lines])), 1), "eval": curve}


def best_of(runs):
    """The run of each method with the lowest loss at its end, in the order of METHODS."""
    of = {method: [r for r in runs if r["method"] == method] for method in METHODS}
    return [min(some, key=lambda r: r["eval"][-1][1]) for some in of.values() if some]


def table(runs):
    best = {r["method"]: r for r in best_of(runs)}
    print("| method | rates tried: loss at the end | perplexity of the best |\n|---|---|---|")
    for m, of in best.items():
        tried = ", ".join(f"{r['lr']:g}: {r['eval'][-1][1]:.3f}" for r in sorted(runs, key=lambda r: r["lr"]) if r["method"] == m)
        print(f"| {m} | {tried} | {math.exp(of['eval'][-1][1]):.2f} |")


def picture(runs, least, path):
    """Held-out loss by step, of each method's best rate; the dashed line is the least loss."""
    width, height, left, top, right, bottom = 760, 380, 48, 16, 190, 36
    low, high = 1.25, 4.75

    def x(step):
        return left + (width - left - right) * step / STEPS

    def y(loss):
        return top + (height - top - bottom) * (high - loss) / (high - low)

    out = ['<style>text{font:12px system-ui,sans-serif;fill:#344054}.g{stroke:#e4e7ec}</style>',
           f'<rect width="{width}" height="{height}" rx="8" fill="#fff"/>']
    for loss in (1.5, 2, 2.5, 3, 3.5, 4, 4.5):
        out.append(f'<line class="g" x1="{left}" x2="{width - right}" y1="{y(loss):.1f}" y2="{y(loss):.1f}"/>'
                   f'<text x="{left - 8}" y="{y(loss) + 4:.1f}" text-anchor="end">{loss:g}</text>')
    for step in range(0, STEPS + 1, 200):
        out.append(f'<text x="{x(step):.1f}" y="{height - 14}" text-anchor="middle">{step}</text>')
    out.append(f'<line x1="{left}" x2="{width - right}" y1="{y(least):.1f}" y2="{y(least):.1f}" stroke="#667085" stroke-dasharray="4 4"/>'
               f'<text x="{left + 6}" y="{y(least) - 6:.1f}">least possible: {least:.3f}</text>')
    labels = []
    for r in sorted(best_of(runs), key=lambda r: -r["eval"][-1][1]):
        at = y(r["eval"][-1][1])
        labels.append(max(at, labels[-1] + 15) if labels else at)
        points = " ".join(f"{x(step):.1f},{y(loss):.1f}" for step, loss in r["eval"])
        out.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[r["method"]]}" stroke-width="2"/>'
                   f'<text x="{width - right + 10}" y="{labels[-1] + 4:.1f}" style="fill:{COLOURS[r["method"]]}">'
                   f'{r["method"]} {r["lr"]:g}: {r["eval"][-1][1]:.3f}</text>')
    box = f'xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    path.write_text(f'<svg {box}>{"".join(out)}</svg>\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--protrain", default=str(ROOT / "build" / "protrain"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only-report", action="store_true", help="of the runs that have ended")
    args = parser.parse_args()
    (args.folder / "model").mkdir(parents=True, exist_ok=True)
    (args.folder / "model" / "config.json").write_text(json.dumps(CONFIG))
    if not (args.folder / "held-out.npy").exists():
        write_tokens(args.folder / "train.npy", STEPS * BATCH * SEQ_LEN + 1, 1)
        write_tokens(args.folder / "held-out.npy", EVAL_WINDOWS * SEQ_LEN + 1, 2)
    least = least_loss(args.folder / "train.npy")
    make_low_rank(args)
    runs = []
    for method, (_, rates) in METHODS.items():
        runs += [run(args, method, lr) for lr in rates if not args.only_report or done(args, method, lr)]
    with open(args.folder / "curves.jsonl", "w") as file:
        file.writelines(json.dumps(r) + "\n" for r in runs)
    picture(runs, least, ROOT / "docs" / "pictures" / "optimizers.svg")
    print(f"least possible loss: {least:.3f}\n")
    table(runs)


if __name__ == "__main__":
    main()
