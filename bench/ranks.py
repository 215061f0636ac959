#!/usr/bin/env python3
"""Several CPU ranks of one machine: their speed, beside one rank and beside PyTorch's, their prediction and their losses.

    cmake --build build && python bench/ranks.py [--out FILE] [--rounds 3] COMMAND

    cores        2 ranks of one core each and one rank of two cores, in turn. Needs numpy.
    peers        2 ranks of one core each, and PyTorch's DDP and FSDP2 over gloo with 2 ranks of one thread each, in turn (bench/peer_ranks.py)
    parity       losses and weights of 2 and 4 ranks beside those of DDP and FSDP2 with as many, in fp32, from the same weights and data:
                 exit status 1 where a loss is further away than 1e-5, or the change of all weights together by more than 1e-3 of itself
    slow-link    2 ranks in two network namespaces, by TCP, over a link whose rate is limited so that what a step sends takes half as long as,
                 as long as, and twice as long as what it computes. Prints which part of the step the longer of the two is. Needs root.

Shape by default: GPT-2 124M, 4 x 512 tokens a step; parity has small shapes of its own. Each line for people has a JSON line in FILE, with the
step that was predicted before the first step beside the measured one. The machine should have nothing else to do. peers and parity need torch and transformers.
"""

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
PEER = str(HERE / "peer_ranks.py")
PARITY = {
    "gpt2": {"model_type": "gpt2", "n_embd": 128, "n_layer": 4, "n_head": 4, "n_positions": 128, "vocab_size": 1000,
             "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "initializer_range": 0.02,
             "bos_token_id": 0, "eos_token_id": 0, "architectures": ["GPT2LMHeadModel"]},
    "llama": {"model_type": "llama", "hidden_size": 128, "intermediate_size": 344, "num_hidden_layers": 4, "num_attention_heads": 4,
              "num_key_value_heads": 2, "max_position_embeddings": 128, "vocab_size": 1000, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
              "tie_word_embeddings": False, "initializer_range": 0.02, "hidden_act": "silu", "architectures": ["LlamaForCausalLM"]},
}


def say(args, row, line):
    row["date"] = datetime.date.today().isoformat()
    print(line, flush=True)
    if args.out:
        with open(args.out, "a") as f:
            f.write(json.dumps(row) + "\n")


def write_ids(path, vocab, count):
    import numpy as np
    np.save(path, np.random.default_rng(0).integers(0, vocab, count).astype("uint32"))


def make_data(folder, config, tokens, used=None):
    """A model folder without weights, and ids below `used`."""
    model = pathlib.Path(folder, "model")
    model.mkdir(exist_ok=True)
    (model / "config.json").write_text(json.dumps(config))
    write_ids(model / "ids.npy", used or config["vocab_size"], tokens + 1)
    return model


def new_out(folder):
    return pathlib.Path(folder, f"out-{len(os.listdir(folder))}")


def train_command(args, model, out, more):
    return [args.protrain, "train", "--model", str(model), "--data", str(model / "ids.npy"), "--batch-size", str(args.batch), "--seq-len",
            str(args.seq), "--out", str(out), "--json", "--lr", str(args.lr), "--lr-schedule", "constant", "--no-shuffle", "--device", "cpu",
            "--disk-memory", "0", *more]


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as f:
        return [int(word) for word in f.read().split()]


def peak_rss(pid):
    """Of the largest of its ranks."""
    peaks = []
    for of in children(pid) or [pid]:
        with open(f"/proc/{of}/status") as lines:
            peaks.append(next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")))
    return max(peaks)


def timed_steps(command, count):
    """What `protrain train --json` says of a step that warms up and `count` more, and the peak of a rank; then it is ended."""
    steps = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True) as process:
        try:
            while len(steps) <= count and (line := process.stdout.readline()):
                steps.append(json.loads(line))
            if len(steps) <= count:
                raise SystemExit(f"it ended before step {count + 1}: {' '.join(command)}")
            return steps, peak_rss(process.pid)
        finally:
            process.kill()


def ours(args, folder, model, mode, more):
    out = new_out(folder)
    steps, peak = timed_steps(train_command(args, model, out, ["--steps", str(args.steps + 1000), "--save-dtype", "bf16", *more]), args.steps)
    seconds = [s["step_s"] for s in steps[1:]]
    first = json.loads((out / "metrics.jsonl").read_text().splitlines()[0])
    return {"peer": "protrain", "mode": mode, "step_s": statistics.median(seconds), "step_s_min": min(seconds), "step_s_max": max(seconds),
            "tokens_per_s": args.batch * args.seq / statistics.median(seconds), "predicted_step_s": first["predicted_step_s"],
            "predicted_to_measured": first["predicted_step_s"] / statistics.median(seconds), "batch": args.batch, "seq": args.seq,
            "model": args.config, "rank_peak_rss_bytes": peak, "losses": [s["loss"] for s in steps]}


def text_of(row):
    line = f"{row['peer']:9} {row['mode']:22} {row['tokens_per_s']:8.1f} tokens/s {row['step_s'] * 1e3:8.1f} ms"
    if "predicted_step_s" in row:
        line += f", predicted {row['predicted_step_s'] * 1e3:8.1f} ms ({100 * (row['predicted_to_measured'] - 1):+.1f}%)"
    return line + f", {row['rank_peak_rss_bytes'] / 2**30:.2f} GiB"


def ratios(args, rounds, ours_mode, other):
    """Round by round, since a shared machine changes between them."""
    each = [r[other]["step_s"] / r[ours_mode]["step_s"] for r in rounds]
    row = {"ratio": statistics.median(each), "of": ours_mode, "beside": other, "rounds": each}
    say(args, row, f"{ours_mode} beside {other}: {row['ratio']:.2f} times as fast ({min(each):.2f} to {max(each):.2f})")


def in_turn(args, runs):
    rounds = []
    for _ in range(args.rounds):
        done = {}
        for run in runs:
            row = run()
            done[row["mode"]] = row
            say(args, row, text_of(row))
        rounds.append(done)
    return rounds


def cores(args):
    config = json.load(open(args.config))
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        model = make_data(folder, config, args.batch * args.seq * (args.steps + 2))
        for dtype in args.dtypes:
            one, two = f"1 rank, {dtype}", f"2 ranks, {dtype}"
            rounds = in_turn(args, [lambda: ours(args, folder, model, one, ["--dtype", dtype, "--ranks", "1", "--threads", "2"]),
                                    lambda: ours(args, folder, model, two, ["--dtype", dtype, "--ranks", "2", "--threads", "1"])])
            ratios(args, rounds, two, one)


def peer(args, model, ranks, mode, warmup=1, more=()):
    command = [sys.executable, PEER, "--model", str(model), "--ids", str(model / "ids.npy"), "--ranks", str(ranks), "--batch", str(args.batch),
               "--seq", str(args.seq), "--steps", str(args.steps), "--warmup", str(warmup), "--lr", str(args.lr), *more, mode]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1])


def make_weights(model):
    subprocess.run([sys.executable, PEER, "--model", str(model), "--make", str(model / "config.json")], check=True)


def peers(args):
    config = json.load(open(args.config))
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        model = make_data(folder, config, args.batch * args.seq * (args.steps + 2))
        make_weights(model)
        for dtype in args.dtypes:
            two = f"2 ranks, {dtype}"
            modes = [f"{kind}-{dtype}{compiled}" for kind in ("ddp", "fsdp2") for compiled in (("", "-compile") if args.compile else ("",))]
            runs = [lambda: ours(args, folder, model, two, ["--dtype", dtype, "--ranks", "2", "--threads", "1"])]
            runs += [lambda m=m: peer(args, model, 2, m) for m in modes]
            rounds = in_turn(args, runs)
            for mode in modes:
                ratios(args, rounds, two, mode)


def changes_apart(before, ours, theirs):
    """How far apart two runs changed the weights: |ours - theirs| / |theirs - before|, of all tensors together and of the worst one."""
    import numpy as np
    from safetensors.numpy import load_file
    before, ours, theirs = (load_file(path) for path in (before, ours, theirs))
    squares = {}
    for name, end in theirs.items():
        end = end.astype("float64")
        squares[name] = np.square(ours[name] - end).sum(), np.square(end - before[name]).sum()
    off, moved = (sum(s[i] for s in squares.values()) for i in range(2))
    name = max(squares, key=lambda n: squares[n][0] / squares[n][1])
    return (off / moved) ** 0.5, name, (squares[name][0] / squares[name][1]) ** 0.5


def parity(args):
    args.batch, args.seq, args.steps, args.lr = 8, 64, 20, 1e-3
    failed = False
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        for kind, config in PARITY.items():
            model = make_data(folder, config, args.batch * args.seq * args.steps, used=40)  # so that there is something to learn
            make_weights(model)
            for ranks in (2, 4):
                more = ["--dtype", "fp32", "--ranks", str(ranks), "--threads", "1", "--steps", str(args.steps)]
                out, weights = new_out(folder), pathlib.Path(folder, "theirs.safetensors")
                said = subprocess.run(train_command(args, model, out, more), check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                      text=True).stdout
                losses = [step["loss"] for line in said.splitlines() if "loss" in (step := json.loads(line))]
                for mode in ("ddp-fp32", "fsdp2-fp32"):
                    theirs = peer(args, model, ranks, mode, warmup=0, more=["--weights", str(weights)])["losses"]
                    off = max(abs(a - b) for a, b in zip(losses, theirs, strict=True))
                    change, name, of_name = changes_apart(model / "model.safetensors", out / "model.safetensors", weights)
                    failed = failed or off > 1e-5 or change > 1e-3
                    row = {"parity": kind, "mode": mode, "ranks": ranks, "steps": args.steps, "largest_difference": off, "first_loss": losses[0],
                           "last_loss": losses[-1], "change_apart": change, "worst_tensor": name, "its_change_apart": of_name}
                    say(args, row, f"{kind}, {ranks} ranks beside {mode}: losses {losses[0]:.6f} to {losses[-1]:.6f}, at most {off:.1e} apart; "
                                   f"changes of the weights {change:.1e} apart, of {name} {of_name:.1e}")
    return failed


# ---- a slow link ----

def run_quiet(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


@contextlib.contextmanager
def two_machines():
    """Two namespaces with a link between them; None where that is not allowed."""
    names = [f"ptr{os.getpid()}{end}" for end in "ab"]
    try:
        try:
            for name in names:
                run_quiet("ip", "netns", "add", name)
            run_quiet("ip", "link", "add", names[0], "netns", names[0], "type", "veth", "peer", "name", names[1], "netns", names[1])
            for i, name in enumerate(names):
                run_quiet("ip", "-n", name, "addr", "add", f"10.77.1.{i + 1}/24", "dev", name)
                run_quiet("ip", "-n", name, "link", "set", name, "up")
                run_quiet("ip", "-n", name, "link", "set", "lo", "up")
            run_quiet("tc", "-n", names[0], "qdisc", "add", "dev", names[0], "root", "tbf", "rate", "1gbit", "burst", "256kb", "latency", "50ms")
        except (subprocess.CalledProcessError, FileNotFoundError):
            yield None
            return
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, stderr=subprocess.DEVNULL)


BURST_S = 0.004  # a limit forgets what it could have let through while a busy processor did not get to it for longer


def limit(names, bytes_per_s):
    for name in names:
        subprocess.run(["tc", "-n", name, "qdisc", "del", "dev", name, "root"], check=False, stderr=subprocess.DEVNULL)
        if bytes_per_s:
            burst = max(256 << 10, int(bytes_per_s * BURST_S))
            run_quiet("tc", "-n", name, "qdisc", "add", "dev", name, "root", "tbf", "rate", f"{int(8 * bytes_per_s)}bit", "burst", str(burst),
                      "latency", "50ms")


def sent(name):
    said = subprocess.run(["ip", "-n", name, "-s", "-j", "link", "show", name], check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(said)[0]["stats64"]["tx"]["bytes"]


def over_link(args, folder, model, names, dtype):
    """A run of two ranks, to its end: what a step took, computed and sent."""
    out = new_out(folder)
    processors = sorted(os.sched_getaffinity(0))
    more = ["--dtype", dtype, "--threads", "1", "--steps", str(args.steps + 1), "--lanes", "2"]
    env = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "10.77.1.1", "MASTER_PORT": "29500", "PROTRAIN_TRANSPORT": "tcp"}
    ranks = []
    for r, name in enumerate(names):
        pin = ["taskset", "-c", str(processors[r % len(processors)])]
        ranks.append(subprocess.Popen(["ip", "netns", "exec", name, *pin, *train_command(args, model, out, more)], text=True,
                                      env={**env, "RANK": str(r)}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL))
    steps, counted = [], []
    for line in ranks[0].stdout:
        step = json.loads(line)
        if "step_s" in step:
            steps.append(step)
            counted.append([sent(name) for name in names])
    if max(abs(r.wait()) for r in ranks) or len(steps) < args.steps + 1:
        raise SystemExit("a rank failed")
    seconds = [s["step_s"] for s in steps[1:]]
    per_step = max((counted[-1][i] - counted[0][i]) / (len(counted) - 1) for i in range(2))
    summary = json.loads((out / "summary.json").read_text())
    first = json.loads((out / "metrics.jsonl").read_text().splitlines()[0])
    return {"step_s": statistics.median(seconds), "step_s_min": min(seconds), "step_s_max": max(seconds), "bytes": per_step,
            "compute_s": max(r["compute_s"] for r in summary["ranks"]), "predicted_step_s": first["predicted_step_s"], "dtype": dtype,
            "queues_s": {k: v["measured"] for k, v in summary["queues_s"].items()}, "batch": args.batch, "seq": args.seq, "model": args.config}


def slow_link(args):
    config = json.load(open(args.config))
    with tempfile.TemporaryDirectory(dir=args.folder) as folder, two_machines() as names:
        if not names:
            print("slow-link needs root, `ip netns` and `tc`: skipped")
            return
        model = make_data(folder, config, args.batch * args.seq * (args.steps + 2))
        for dtype in args.dtypes:
            limit(names, 0)
            free = over_link(args, folder, model, names, dtype)
            say(args, {"slow_link": None, **free}, f"{dtype}: {free['step_s']:.3f} s a step without a limit, {free['compute_s']:.3f} s of them "
                                                   f"computing, {free['bytes'] / 1e6:.0f} MB sent by a rank")
            for share in (0.5, 1.0, 2.0):
                rate = free["bytes"] / (share * free["compute_s"])
                limit(names, rate)
                row = over_link(args, folder, model, names, dtype)
                bound = max(free["compute_s"], row["bytes"] / rate)
                row.update(slow_link=rate, bound_s=bound, part_of_bound=bound / row["step_s"])
                say(args, row, f"{dtype}, {8 * rate / 1e6:.0f} Mbit/s: {row['step_s']:.3f} s a step, predicted {row['predicted_step_s']:.3f}; "
                               f"computing {free['compute_s']:.3f}, sending {row['bytes'] / rate:.3f}: {100 * row['part_of_bound']:.0f}% of the bound")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = {"cores": cores, "peers": peers, "parity": parity, "slow-link": slow_link}
    parser.add_argument("command", metavar="COMMAND", choices=commands)
    parser.add_argument("--config", default=str(HERE / "shapes" / "gpt2-124m.json"))
    parser.add_argument("--batch", type=int, default=4, help="sequences a step")
    parser.add_argument("--seq", type=int, default=512)
    parser.add_argument("--steps", type=int, default=4, help="timed steps, after one that warms up")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dtypes", nargs="+", choices=["bf16", "fp32"], default=["bf16", "fp32"])
    parser.add_argument("--compile", action="store_true", help="peers: also with each layer compiled")
    parser.add_argument("--folder", default="/var/tmp", help="for models and runs, some GB")
    parser.add_argument("--protrain", default=str(HERE.parent / "build" / "protrain"))
    parser.add_argument("--out", help="append the results here, as JSON lines")
    args = parser.parse_args()
    args.lr = 1e-4
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    return int(bool(commands[args.command](args)))


if __name__ == "__main__":
    sys.exit(main())
