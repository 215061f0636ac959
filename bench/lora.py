#!/usr/bin/env python3
"""Fine-tuning beside PyTorch with PEFT and bitsandbytes, and what chats, packing and predictions are worth, on one machine in one run.

    tools/setup bench && cmake -B build -DPT_BENCH=ON && cmake --build build
    python3 -m venv peers && peers/bin/pip install torch transformers peft bitsandbytes
    peers/bin/python bench/lora.py --folder FOLDER --tokenizer DIR [--out FILE] [ROW ...]

FOLDER keeps a model with random weights (made once, of --shape), the chats that are made, and PyTorch's compiled code. DIR is a Hugging
Face folder with a byte-level tokenizer.json that has <|im_start|> and <|im_end|>. Adapters of rank 16 on all linear layers, bf16, 4 x 512
tokens, on the CPU. Rows:

    lora         protrain, before and after the peers; PEFT in each of --modes; then protrain in --part of the memory of PEFT's leanest mode
    nf4          protrain with --base nf4; bitsandbytes in each of --nf4-modes
    prediction   a run without adapters: predicted and measured steps and peaks of all of protrain's runs
    packing      short examples, packed and padded: tokens learned a second
    chats        template, tokenizing and packing on one thread (bench_dataset), and by how much memory grows with the file

Prints a JSON line for each run, and for each row one of what is wanted of it.
"""

import argparse
import datetime
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys
import tempfile

from peer_peft import MODES
from train import HERE, timed_steps

ROWS = ["lora", "nf4", "prediction", "packing", "chats"]
TEMPLATE = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
WORDS = ("the of and to in is was that for it with as his on be at by had not are but from or have an they which one you were her all "
         "she there would their we him been has when who will more no if out so said what up its about into than them can only other new").split()


# ---- what is trained ----

def make_model(args):
    """Random weights in bf16, the tokenizer and a template. Returns the folder."""
    folder = args.folder / "model"
    if not (folder / "model.safetensors").exists():
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM
        torch.manual_seed(0)
        AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(args.shape), dtype=torch.bfloat16).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((args.tokenizer / name).read_bytes())
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder


def linear_parameters(model):
    """Of the matrices that have adapters."""
    c = json.loads((model / "config.json").read_text())
    hidden, head_dim = c["hidden_size"], c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    heads = 2 * c["num_attention_heads"] + 2 * c["num_key_value_heads"]
    return c["num_hidden_layers"] * hidden * (heads * head_dim + 3 * c["intermediate_size"])


def make_ids(args, model):
    import numpy as np
    vocab = json.loads((model / "config.json").read_text())["vocab_size"]
    path = args.folder / "ids.npy"
    np.save(path, np.random.default_rng(0).integers(0, vocab, args.batch * args.seq * (args.steps + 2) + 1).astype(np.uint32))
    return path


def make_chats(path, count, most_turns, most_words):
    """Conversations of 1 to most_turns questions with answers."""
    drawn = random.Random(0)
    with open(path, "w") as f:
        for _ in range(count):
            messages = [{"role": role, "content": " ".join(drawn.choices(WORDS, k=drawn.randint(1, most_words)))}
                        for _ in range(drawn.randint(1, most_turns)) for role in ("user", "assistant")]
            f.write(json.dumps({"messages": messages}) + "\n")
    return path


# ---- runs ----

def say(args, row):
    row = {"date": datetime.date.today().isoformat(), **row}
    print(json.dumps(row), flush=True)
    if args.out:
        with open(args.out, "a") as f:
            f.write(json.dumps(row) + "\n")
    return row


def ours(args, model, data, mode, *options):
    """One run: the first step warms up, and told of more steps it is ended before it saves anything."""
    with tempfile.TemporaryDirectory(dir=args.folder) as out:
        steps, rss = timed_steps([args.protrain, "train", "--model", str(model), "--data", str(data), "--batch-size", str(args.batch),
                                  "--seq-len", str(args.seq), "--steps", str(args.steps + 1000), "--out", out + "/run", "--json", "--quiet",
                                  "--device", "cpu", *options], args.steps)
    if not steps:
        sys.exit(f"protrain failed: {mode}")
    seconds, learned = [s["step_s"] for s in steps[1:]], steps[-1]["learned_tokens"] - steps[0]["learned_tokens"]
    tokens = steps[-1]["tokens"] - steps[0]["tokens"]
    return say(args, {"row": "run", "peer": "protrain", "mode": mode, "batch": args.batch, "seq": args.seq, "steps": args.steps,
                      "tokens_per_s": args.batch * args.seq / statistics.median(seconds), "step_s": statistics.median(seconds),
                      "step_s_min": min(seconds), "step_s_max": max(seconds), "predicted_step_s": steps[0]["predicted_step_s"],
                      "learned_per_step": learned / args.steps, "tokens_per_step": tokens / args.steps,
                      "peak_rss_bytes": rss, "device_peak_bytes": steps[-1]["device_peak_bytes"],
                      "device_predicted_bytes": steps[-1]["device_predicted_bytes"]})


def peers(args, model, base, modes):
    """One run a mode; a mode that fails is said and left out. Threads are bound as in train.py."""
    environment = {"OMP_PROC_BIND": "true", "OMP_PLACES": "cores", "TORCHINDUCTOR_CACHE_DIR": str(args.folder / "compiled"), **os.environ}
    rows = []
    for mode in modes:
        command = [sys.executable, str(HERE / "peer_peft.py"), "--model", str(model), "--base", base, "--batch", str(args.batch),
                   "--seq", str(args.seq), "--steps", str(args.peer_steps), "--warmup", "2" if mode.startswith("compile") else "1", mode]
        done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True, env=environment)
        if done.returncode:
            print(f"peer_peft.py {mode} failed with status {done.returncode}", file=sys.stderr)
        else:
            rows.append(say(args, {"row": "run", **json.loads(done.stdout)}))
    return rows


# ---- rows ----

def beside(args, what, ours_runs, peer_runs, speed, memory=None):
    """The fastest of the peer's modes, and protrain's median."""
    if not peer_runs:
        return
    best = max(peer_runs, key=lambda r: r["tokens_per_s"])
    mine = statistics.median(r["tokens_per_s"] for r in ours_runs)
    rss = max(r["peak_rss_bytes"] for r in ours_runs)
    row = {"row": what, "tokens_per_s": mine, "peer_mode": best["mode"], "peer_tokens_per_s": best["tokens_per_s"],
           "times": mine / best["tokens_per_s"], "wanted_times": speed, "peak_rss_bytes": rss,
           "peer_least_rss_bytes": min(r["peak_rss_bytes"] for r in peer_runs),
           "part_of_memory": rss / min(r["peak_rss_bytes"] for r in peer_runs)}
    if memory:
        row["wanted_part_of_memory"] = memory
    say(args, row)


def within(args, model, data, free, compared):
    """Speed and memory together: a budget of RAM, with which the whole process stays below a part of what the leanest mode takes."""
    if not compared:
        return
    least = min(r["peak_rss_bytes"] for r in compared)
    beside_tier = free["peak_rss_bytes"] - free["device_peak_bytes"]
    budget = int(args.part * least) - beside_tier
    run = ours(args, model, data, "lora, limited", "--lora", "16", "--device-memory", str(budget), "--disk-memory", "0")
    beside(args, "lora beside PEFT, limited", [run], compared, 1.5, 0.5)


def few_bits(args, model, plain, nf4):
    saved = plain["device_peak_bytes"] - nf4["device_peak_bytes"]
    say(args, {"row": "nf4 beside plain", "part_of_speed": nf4["tokens_per_s"] / plain["tokens_per_s"], "wanted_part_of_speed": 0.8,
               "base_bytes_per_parameter": 2 - saved / linear_parameters(model), "wanted_bytes": 0.6})


def prediction(args, runs):
    for run in runs:
        say(args, {"row": "prediction", "mode": run["mode"], "predicted_over_measured": run["predicted_step_s"] / run["step_s"],
                   "peak_bytes_off": run["device_peak_bytes"] - run["device_predicted_bytes"]})


def packing(args, model):
    chats = make_chats(args.folder / "short.jsonl", 4000, 1, 60)
    packed = ours(args, model, chats, "packed", "--lora", "16")
    padded = ours(args, model, chats, "padded", "--lora", "16", "--no-packing")
    places = args.batch * args.seq
    rate = [r["tokens_per_step"] / r["step_s"] for r in (packed, padded)]  # of which the same part is learned in both
    by_padding = packed["tokens_per_step"] / padded["tokens_per_step"]
    say(args, {"row": "packing", "learned_per_s_packed": packed["learned_per_step"] / packed["step_s"],
               "learned_per_s_padded": padded["learned_per_step"] / padded["step_s"],
               "padding_packed": 1 - packed["tokens_per_step"] / places, "padding_padded": 1 - padded["tokens_per_step"] / places,
               "times": rate[0] / rate[1], "times_by_padding": by_padding, "off": rate[0] / rate[1] / by_padding - 1, "wanted_off": 0.05})


def chats(args, model):
    program = pathlib.Path(args.protrain).parent / "bench" / "bench_dataset"
    if not program.exists():
        print(f"row chats is left out: {program} is not built (cmake -B build -DPT_BENCH=ON)", file=sys.stderr)
        return
    data = make_chats(args.folder / "chats.jsonl", 8000, 6, 60)
    found = {}
    for mib in (16, 64):
        output = subprocess.run([program, model, data, str(mib)], check=True, stdout=subprocess.PIPE, text=True).stdout
        found[mib] = re.search(r"([0-9.]+) MB/s a core used, peak RSS grew by ([0-9-]+) KiB", output).groups()
    say(args, {"row": "chats", "mb_per_s_a_core": float(found[64][0]), "wanted_mb_per_s": 5, "grew_kib_16_mib": int(found[16][1]),
               "grew_kib_64_mib": int(found[64][1])})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*", metavar="ROW", default=ROWS)
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--tokenizer", type=pathlib.Path, required=True)
    parser.add_argument("--shape", default=str(HERE / "shapes" / "qwen2.5-0.5b.json"))
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=512)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--peer-steps", type=int, default=3)
    parser.add_argument("--modes", nargs="*", default=["compile-autocast", "eager-autocast"], choices=MODES, help="of peer_peft.py")
    parser.add_argument("--nf4-modes", nargs="*", default=["eager-autocast"], choices=MODES)
    parser.add_argument("--part", type=float, default=0.498, help="of PEFT's memory, for the limited run")
    parser.add_argument("--protrain", default=str(HERE.parent / "build" / "protrain"))
    parser.add_argument("--out", help="append the lines here")
    args = parser.parse_args()
    if set(args.rows) - set(ROWS):
        parser.error(f"rows are {', '.join(ROWS)}")
    args.folder = args.folder.resolve()
    args.folder.mkdir(parents=True, exist_ok=True)
    model = make_model(args)
    ids = make_ids(args, model)
    runs = []
    if {"lora", "nf4", "prediction"} & set(args.rows):
        runs.append(ours(args, model, ids, "lora", "--lora", "16"))
    if "nf4" in args.rows:
        runs.append(ours(args, model, ids, "nf4", "--lora", "16", "--base", "nf4"))
        few_bits(args, model, *runs)
    if "prediction" in args.rows:
        prediction(args, runs + [ours(args, model, ids, "all parameters")])
    if "nf4" in args.rows:
        beside(args, "nf4 beside bitsandbytes", runs[1:2], peers(args, model, "nf4", args.nf4_modes), 3)
    if "lora" in args.rows:
        compared = peers(args, model, "bf16", args.modes)
        beside(args, "lora beside PEFT", [runs[0], ours(args, model, ids, "lora", "--lora", "16")], compared, 1.5, 0.5)
        within(args, model, ids, runs[0], compared)
    if "packing" in args.rows:
        packing(args, model)
    if "chats" in args.rows:
        chats(args, model)


if __name__ == "__main__":
    main()
