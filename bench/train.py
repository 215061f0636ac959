#!/usr/bin/env python3
"""Training speed and memory beside PyTorch, on one machine in one run.

    cmake --build build && python bench/train.py [--config config.json] [--batch 4] [--seq 512]
                                                 [--steps 5] [--rounds 1] [MODE ...]

Each round runs `protrain train` in bf16 and in fp32 and then each MODE of peer_pytorch.py (default
eager-bf16 and eager-fp32), on the same model shape with random weights, random ids, AdamW and
clipping, with all cores. Prints a line for each and the ratios, and with --out FILE appends all of it as
JSON lines. Ceilings come from build/bench/bench_matmul. Needs torch and transformers, for example
    python3 -m venv peers && peers/bin/pip install torch transformers && peers/bin/python bench/train.py
"""

import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
GPT2_124M = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024,
             "vocab_size": 50257, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5,
             "initializer_range": 0.02}


def peak_rss(stderr):
    """From protrain's last lines: "process: 2.47 GiB at its peak"."""
    number, unit = stderr.split("process: ")[1].split()[:2]
    return int(float(number) * {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}[unit])


def train(args, dtype, folder):
    """One run of protrain; the first step of it is a warm-up."""
    import numpy as np
    config = json.load(open(args.config)) if args.config else GPT2_124M
    model = pathlib.Path(folder, "model")
    model.mkdir(exist_ok=True)
    (model / "config.json").write_text(json.dumps(config))
    vocab = config.get("vocab_size", 50257)
    ids = np.random.default_rng(0).integers(0, vocab, args.batch * args.seq * (args.steps + 1) + 1)
    np.save(model / "ids.npy", ids.astype(np.uint32))
    out = pathlib.Path(folder, f"out-{dtype}-{len(os.listdir(folder))}")
    command = [args.protrain, "train", "--model", str(model), "--data", str(model / "ids.npy"), "--dtype", dtype,
               "--batch-size", str(args.batch), "--seq-len", str(args.seq), "--steps", str(args.steps + 1), "--out", str(out),
               "--json", "--lr", "1e-4"]
    if args.device_memory:
        command += ["--device-memory", args.device_memory]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        lines, errors = process.communicate()
    if process.returncode:
        sys.exit(f"{' '.join(command)}: {errors}")
    steps = [json.loads(line) for line in lines.splitlines()]
    seconds = [s["step_s"] for s in steps[1:]]
    peak = json.loads((out / "metrics.jsonl").read_text().splitlines()[-1])
    return {"peer": "protrain", "mode": dtype, "tokens_per_s": args.batch * args.seq / statistics.median(seconds),
            "step_s": statistics.median(seconds), "step_s_min": min(seconds), "step_s_max": max(seconds),
            "batch": args.batch, "seq": args.seq, "device_peak_bytes": peak["device_peak_bytes"],
            "peak_rss_bytes": peak_rss(errors),
            "arithmetic": json.loads((out / "machine.json").read_text())["arithmetic"]}


def peer(args, mode):
    command = [sys.executable, str(HERE / "peer_pytorch.py"), "--batch", str(args.batch), "--seq", str(args.seq), "--steps",
               str(args.peer_steps), "--warmup", "1", mode]
    if args.config:
        command += ["--config", args.config]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modes", nargs="*", default=["eager-bf16", "eager-fp32"])
    parser.add_argument("--config")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=512)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--peer-steps", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--device-memory")
    parser.add_argument("--protrain", default=str(HERE.parent / "build" / "protrain"))
    parser.add_argument("--out", help="append the results here, as JSON lines")
    args = parser.parse_args()
    results = {}
    for _ in range(args.rounds):
        with tempfile.TemporaryDirectory() as folder:
            rows = [train(args, dtype, folder) for dtype in ("bf16", "fp32")]
        rows += [peer(args, mode) for mode in args.modes]
        for row in rows:
            results.setdefault((row["peer"], row["mode"]), []).append(row)
            row["date"] = datetime.date.today().isoformat()
            print(f"{row['peer']:9} {row['mode']:13} {row['tokens_per_s']:8.1f} tokens/s  {row['peak_rss_bytes'] / 2**30:5.2f} GiB",
                  flush=True)
            if args.out:
                with open(args.out, "a") as f:
                    f.write(json.dumps(row) + "\n")
    speed = {key: statistics.median(r["tokens_per_s"] for r in rows) for key, rows in results.items()}
    for (name, mode), value in speed.items():
        if name != "protrain":
            ours = speed["protrain", "bf16" if mode.endswith("bf16") else "fp32"]
            print(f"protrain beside {name} {mode}: {ours / value:.2f} times")


if __name__ == "__main__":
    main()
