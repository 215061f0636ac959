#!/usr/bin/env python3
"""Training speed and memory beside PyTorch, on one machine in one run.

    cmake --build build && python bench/train.py [--device cpu|cuda] [--config config.json] [--batch 4] [--seq 512]
                                                 [--steps 5] [--rounds 1] [--threads N] [--ceiling] [MODE ...]

Each round runs `protrain train` in bf16 and in fp32 (--dtypes) and then each MODE of peer_pytorch.py (default
eager-bf16 and eager-fp32) or, named zero3-cpu-bf16 and the like, of peer_deepspeed.py, on the same model shape (bench/shapes) with random weights, random ids, AdamW and
clipping, with all cores. Prints a line for each and the ratios, and with --out FILE appends all of it as
JSON lines. --peak measures PyTorch's best bf16 product first, and each line says what part of it the model's
own operations are (recomputed ones not counted). --ceiling (on the CPU; needs `tools/setup bench` and -DPT_BENCH=ON) lets bench_matmul time oneDNN on the
matrix products of the step before each round and after the last; at the end a line for each says what part of that rate the model's
operations are. `processor_s` in FILE is the processor time of a step: on a machine that others use, with --threads 1, it says more than the
time.
Needs torch and transformers, for example
    python3 -m venv peers && peers/bin/pip install torch transformers && peers/bin/python bench/train.py
"""

import argparse
import datetime
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
GPT2_124M = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "n_positions": 1024,
             "vocab_size": 50257, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5,
             "initializer_range": 0.02}


def peak_rss(pid):
    with open(f"/proc/{pid}/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def processor_s(pid):
    with open(f"/proc/{pid}/stat") as line:
        return sum(map(int, line.read().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")


def mlp_columns(config):
    """Of a layer's matrices, of the hidden size in the other direction: of a dense MLP, or of the experts of a token and the router."""
    experts = config.get("num_experts") or config.get("num_local_experts")
    if not experts:
        return 3 * config["intermediate_size"]
    return 3 * config["num_experts_per_tok"] * (config.get("moe_intermediate_size") or config["intermediate_size"]) + experts


def flop_per_token(config, seq):
    """Of one training step: forward, and backward at twice that. Attention counts the half that causality leaves."""
    if config["model_type"] == "gpt2":
        hidden, layers, heads_dim = config["n_embd"], config["n_layer"], config["n_embd"]
        layer = 12 * hidden * hidden
    else:
        hidden, layers, heads = config["hidden_size"], config["num_hidden_layers"], config["num_attention_heads"]
        head_dim = config.get("head_dim") or hidden // heads
        heads_dim = heads * head_dim
        layer = hidden * (2 * heads_dim + 2 * config["num_key_value_heads"] * head_dim + mlp_columns(config))
    return 3 * (2 * (layers * layer + hidden * config["vocab_size"]) + layers * 2 * seq * heads_dim)


def products(config, tokens):
    """The matrix products of a step as (how often, rows, out, in)."""
    if config["model_type"] == "gpt2":
        hidden, layers = config["n_embd"], config["n_layer"]
        layer = [(3 * hidden, hidden), (hidden, hidden), (4 * hidden, hidden), (hidden, 4 * hidden)]
    else:
        hidden, layers, heads = config["hidden_size"], config["num_hidden_layers"], config["num_attention_heads"]
        head_dim, inner = config.get("head_dim") or hidden // heads, config["intermediate_size"]
        layer = [((heads + 2 * config["num_key_value_heads"]) * head_dim, hidden), (hidden, heads * head_dim), (2 * inner, hidden),
                 (hidden, inner)]
    rows, slice_rows = min(tokens, 2048), min(tokens, 512 if config["vocab_size"] <= 65536 else 256)
    return [(layers * tokens / rows, rows, *shape) for shape in layer] + [(tokens / slice_rows, slice_rows, config["vocab_size"], hidden)]


def ceiling_program(args):
    return pathlib.Path(args.protrain).parent / "bench" / "bench_matmul"


def ceiling(args):
    """FLOP/s by type that oneDNN reaches over all of the step's products, forward and both backward."""
    wanted = products(read_config(args), args.batch * args.seq)
    command = [str(ceiling_program(args)), str(len(os.sched_getaffinity(0))), "0.3", "wall"]
    output = subprocess.run(command + [f"{rows}x{out}x{inner}" for _, rows, out, inner in wanted], check=True, stdout=subprocess.PIPE,
                            text=True).stdout
    rates = [re.findall(r"([0-9.]+) +[0-9]+%", line) for line in output.splitlines() if line.startswith("-")]
    rows = [{"peer": "oneDNN", "mode": mode, "flop_per_s": 0, "model": args.config or "gpt2-124m", "batch": args.batch, "seq": args.seq}
            for mode in ("bf16", "fp32")]
    assert len(rates) == 3 * len(wanted), output
    flop = [2 * many * rows * out * inner for many, rows, out, inner in wanted for _ in range(3)]
    for row, columns in zip(rows, ((2, 3), (2,))):  # bf16 may also be multiplied as fp32: where that is faster, it counts
        row["flop_per_s"] = sum(flop) / sum(f / (max(float(r[column]) for column in columns) * 1e9) for f, r in zip(flop, rates))
    return rows


def read_config(args):
    return json.load(open(args.config)) if args.config else GPT2_124M


def bytes_of(size):
    units = {"GiB": 2**30, "MiB": 2**20, "GB": 10**9, "MB": 10**6}
    for unit, factor in units.items():
        if size.endswith(unit):
            return int(float(size[:-len(unit)]) * factor)
    return int(size)


def timed_steps(command, count):
    """What `protrain train --json` says of a step that warms up and `count` more, and its peak RSS; None where it ends before."""
    steps = []
    # A session of its own: a signal that ends this program must not let it save a checkpoint first, which takes minutes.
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            while len(steps) <= count and (line := process.stdout.readline()):
                steps.append({**json.loads(line), "processor_s": processor_s(process.pid)})
                print(f"step {len(steps)}: {steps[-1]['step_s']:.3f} s", file=sys.stderr, flush=True)
            return (steps, peak_rss(process.pid)) if len(steps) > count else (None, None)
        finally:
            process.kill()


def train(args, dtype, folder):
    """One run of protrain. Its first step is a warm-up; told of more steps, it is ended before it saves anything."""
    import numpy as np
    config = read_config(args)
    model = pathlib.Path(folder, "model")
    model.mkdir(exist_ok=True)
    (model / "config.json").write_text(json.dumps(config))
    vocab = config.get("vocab_size", 50257)
    ids = np.random.default_rng(0).integers(0, vocab, args.batch * args.seq * (args.steps + 1) + 1)
    np.save(model / "ids.npy", ids.astype(np.uint32))
    out = pathlib.Path(folder, f"out-{dtype}-{len(os.listdir(folder))}")
    command = [args.protrain, "train", "--model", str(model), "--data", str(model / "ids.npy"), "--dtype", dtype,
               "--batch-size", str(args.batch), "--seq-len", str(args.seq), "--steps", str(args.steps + 1000), "--out", str(out),
               "--json", "--lr", "1e-4", "--device", args.device, "--save-dtype", "bf16",  # room for an export is wanted beforehand
               *(["--threads", str(args.threads)] if args.threads else [])]
    if args.device_memory:
        command += ["--device-memory", args.device_memory]
    steps, rss = timed_steps(command, args.steps)
    if not steps:
        print(f"protrain  {dtype:13} failed", flush=True)
        return None
    seconds = [s["step_s"] for s in steps[1:]]
    processor = [after["processor_s"] - before["processor_s"] for before, after in zip(steps, steps[1:])]
    peak = json.loads((out / "metrics.jsonl").read_text().splitlines()[args.steps])
    return {"peer": "protrain", "mode": dtype, "tokens_per_s": args.batch * args.seq / statistics.median(seconds),
            "step_s": statistics.median(seconds), "processor_s": statistics.median(processor), "step_s_min": min(seconds), "step_s_max": max(seconds),
            "model": args.config or "gpt2-124m", "batch": args.batch, "seq": args.seq, "device": args.device, "device_memory": args.device_memory,
            "losses": [s["loss"] for s in steps], "predicted_step_s": peak.get("predicted_step_s"), "device_peak_bytes": peak["device_peak_bytes"],
            "peak_rss_bytes": rss,
            "arithmetic": json.loads((out / "profile.json").read_text())["blocks"]["made_for"]["arithmetic"]}


OUT_OF_MEMORY = 3  # peer_pytorch.py's status


def peer_command(args, mode, batch, folder):
    """zero2-cpu-bf16, zero3-nvme-fp32-recompute ...: DeepSpeed; all else: PyTorch."""
    command = ["--batch", str(batch), "--seq", str(args.seq), "--steps", str(args.peer_steps), "--device", args.device]
    if args.threads and not mode.startswith("zero"):
        command += ["--threads", str(args.threads)]
    if not mode.startswith("zero"):
        return [sys.executable, str(HERE / "peer_pytorch.py"), *command, "--warmup", "2", mode]
    stage, offload, dtype, *recompute = mode.removeprefix("zero").split("-")
    return [sys.executable, str(HERE / "peer_deepspeed.py"), *command, "--stage", stage, "--offload", offload, "--dtype", dtype,
            "--folder", folder, *(f"--{word}" for word in recompute)]


def peer(args, mode, folder, batch=None):
    """One run of the peer; on a GPU with half the sequences where they do not fit, which its mode then says."""
    batch = batch or args.batch
    command = peer_command(args, mode, batch, folder)
    name = "deepspeed" if mode.startswith("zero") else "pytorch"
    if args.config:
        command += ["--config", args.config]
    if args.device_memory:
        command += ["--device-memory", str(bytes_of(args.device_memory))]
    # A thread of its team on each core, as ours are: left to the system its rate changes by a fifth from run to run.
    bound = {"OMP_PROC_BIND": "true", "OMP_PLACES": "cores"} if args.device == "cpu" else {}
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True, env={**bound, **os.environ})
    if done.returncode:
        print(f"{name:9} {mode:13} failed with status {done.returncode} at {batch} sequences", flush=True)
        smaller = done.returncode == OUT_OF_MEMORY and batch > args.batch // 4 and batch > 1
        return peer(args, mode, folder, batch // 2) if smaller else None
    row = json.loads(done.stdout)
    if batch != args.batch:
        row["mode"] += f" x{batch}"
    return row


def report(args, row, peak):
    """A line for people, and with --out one for programs."""
    row["date"] = datetime.date.today().isoformat()
    line = f"{row['peer']:9} {row['mode']:13} "
    if "flop_per_s" in row:
        line += f"{row['flop_per_s'] / 1e12:8.1f} TFLOP/s"
    else:
        row["model_flop_per_s"] = row["tokens_per_s"] * flop_per_token(read_config(args), args.seq)
        line += f"{row['tokens_per_s']:10.1f} tokens/s  {row['step_s'] * 1e3:8.1f} ms  {row['model_flop_per_s'] / 1e12:7.2f} TFLOP/s"
        line += f"  {row['peak_rss_bytes'] / 2**30:6.2f} GiB of RAM"
        if row.get("device_peak_bytes"):
            line += f"  {row['device_peak_bytes'] / 2**30:6.2f} GiB of the device"
        if peak:
            row["part_of_peak"] = row["model_flop_per_s"] / peak
            line += f"  {100 * row['part_of_peak']:5.1f}% of the peak"
    print(line, flush=True)
    if args.out:
        with open(args.out, "a") as f:
            f.write(json.dumps(row) + "\n")


def report_ceilings(args):
    rows = ceiling(args)
    for row in rows:
        report(args, row, None)
    return {row["mode"]: row["flop_per_s"] for row in rows}


def report_parts(args, results, ceilings):
    for (name, mode), rows in results.items():
        dtype = "bf16" if "bf16" in mode else "fp32"
        if dtype in ceilings[0]:
            ours = statistics.median(row["model_flop_per_s"] for row in rows)
            print(f"{name} {mode}: {100 * ours / statistics.median(c[dtype] for c in ceilings):.0f}% of oneDNN's rate")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modes", nargs="*", default=["eager-bf16", "eager-fp32"], help="of peer_pytorch.py, or zero2-cpu-bf16 and the like; none: no peer")
    parser.add_argument("--config")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=512)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--peer-steps", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--threads", type=int, help="of both; default: as many as they choose")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--device-memory")
    parser.add_argument("--dtypes", nargs="*", choices=["bf16", "fp32"], default=["bf16", "fp32"], help="of protrain's runs; empty: none")
    parser.add_argument("--peak", action="store_true")
    parser.add_argument("--ceiling", action="store_true")
    parser.add_argument("--protrain", default=str(HERE.parent / "build" / "protrain"))
    parser.add_argument("--out", help="append the results here, as JSON lines")
    args = parser.parse_args()
    if args.ceiling and not ceiling_program(args).exists():
        parser.error(f"--ceiling needs {ceiling_program(args)}: tools/setup bench, then cmake with -DPT_BENCH=ON, and build")
    args.modes = [mode for mode in args.modes if mode != "none"]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    results, failed = {}, False
    peak = None
    if args.peak:
        row = peer(args, "matmul-bf16", None)
        peak = row and row["flop_per_s"]
        failed = row is None
        if row:
            report(args, row, None)
    ceilings = []
    for _ in range(args.rounds):
        if args.ceiling:
            ceilings.append(report_ceilings(args))
        with tempfile.TemporaryDirectory() as folder:
            runs = [lambda d=d: train(args, d, folder) for d in args.dtypes] + [lambda m=m: peer(args, m, folder) for m in args.modes]
            for run in runs:
                row = run()
                failed |= row is None
                if row:
                    results.setdefault((row["peer"], row["mode"]), []).append(row)
                    report(args, row, peak)
    if args.ceiling:
        ceilings.append(report_ceilings(args))
        report_parts(args, results, ceilings)
    speed = {key: statistics.median(r["tokens_per_s"] for r in rows) for key, rows in results.items()}
    for (name, mode), value in speed.items():
        if name != "protrain":
            ours = speed.get(("protrain", "bf16" if "bf16" in mode else "fp32"))
            if ours:
                print(f"protrain beside {name} {mode}: {ours / value:.2f} times")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
