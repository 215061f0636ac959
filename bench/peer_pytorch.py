#!/usr/bin/env python3
"""Times training steps of PyTorch and Transformers on the CPU, as a peer to compare with.

    python peer_pytorch.py [--config config.json] [--batch 4] [--seq 512] [--steps 5]
                           [--threads N] [MODE ...]

MODE is eager-bf16, compile-bf16 (both autocast over fp32 weights), eager-fp32 or compile-fp32; by
default the first three. Each runs in a process of its own, with random weights, random ids,
global-norm clipping at 1.0 and AdamW (fused where this PyTorch has it for the CPU, else foreach).
Prints one JSON object a mode: the median of the timed steps, the process's peak resident memory,
and how much of it stood before the model (libraries_rss_bytes).
Without --config the model is GPT-2 124M. Needs torch and transformers.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time

MODES = ["eager-bf16", "compile-bf16", "eager-fp32", "compile-fp32"]


def cpu_name():
    with open("/proc/cpuinfo") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return "unknown"


def peak_rss_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def build_model(path):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, GPT2Config
    config = AutoConfig.from_pretrained(path) if path else GPT2Config()
    for key in ("attn_pdrop", "embd_pdrop", "resid_pdrop", "attention_dropout"):
        if hasattr(config, key):
            setattr(config, key, 0.0)
    config.use_cache = False
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32,
                                             attn_implementation="sdpa")
    return model.train()


def build_optimizer(model, kind):
    """Returns the optimizer and the kind that it is."""
    import torch
    kinds = ["fused", "foreach"] if kind == "best" else [kind]
    for choice in kinds:
        try:
            return torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.0,
                                     **{choice: True}), choice
        except RuntimeError as e:  # no fused AdamW for the CPU in this version
            failure = e
    raise failure


def measure(args, mode):
    import torch
    import transformers
    if args.threads:
        torch.set_num_threads(args.threads)
    libraries = peak_rss_bytes()
    model = build_model(args.config)
    optimizer, kind = build_optimizer(model, args.optimizer)
    ids = torch.randint(0, model.config.vocab_size, (args.batch, args.seq + 1))
    inputs, targets = ids[:, :-1].contiguous(), ids[:, 1:].reshape(-1)

    def loss_of(inputs):
        with torch.autocast("cpu", torch.bfloat16, enabled=mode.endswith("bf16")):
            logits = model(input_ids=inputs).logits
            return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets)

    forward = torch.compile(loss_of) if mode.startswith("compile") else loss_of

    def step():
        start = time.perf_counter()
        loss = forward(inputs)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return time.perf_counter() - start, loss.item()

    warmup = [step() for _ in range(args.warmup)]
    timed = [step() for _ in range(args.steps)]
    seconds = [t for t, _ in timed]
    median = statistics.median(seconds)
    return {"peer": "pytorch", "mode": mode, "model": args.config or "gpt2-124m",
            "parameters": sum(p.numel() for p in model.parameters()),
            "batch": args.batch, "seq": args.seq, "threads": torch.get_num_threads(),
            "optimizer": kind, "tokens_per_s": args.batch * args.seq / median,
            "step_s": median, "step_s_min": min(seconds), "step_s_max": max(seconds),
            "steps": args.steps, "warmup_s": sum(t for t, _ in warmup),
            "first_loss": warmup[0][1] if warmup else timed[0][1], "last_loss": timed[-1][1],
            "peak_rss_bytes": peak_rss_bytes(), "libraries_rss_bytes": libraries,
            "torch": torch.__version__, "transformers": transformers.__version__,
            "cpu": cpu_name(), "cpu_capability": torch.backends.cpu.get_cpu_capability()}


def run_in_own_process(mode):
    """Peak memory is a process's, so each mode gets a fresh one. Returns its exit status."""
    command = [sys.executable, os.path.abspath(__file__), *sys.argv[1:], "--only", mode]
    return subprocess.run(command, check=False).returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modes", nargs="*", metavar="MODE", help=", ".join(MODES))
    parser.add_argument("--config", help="config.json of the model; default GPT-2 124M")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=512)
    parser.add_argument("--steps", type=int, default=5, help="timed steps")
    parser.add_argument("--warmup", type=int, default=2, help="steps before (compilation is there)")
    parser.add_argument("--threads", type=int, help="default: PyTorch's own choice")
    parser.add_argument("--optimizer", choices=["best", "fused", "foreach"], default="best")
    parser.add_argument("--only", choices=MODES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    unknown = set(args.modes) - set(MODES)
    if unknown or args.steps < 1 or args.batch < 1 or args.seq < 1:
        parser.error(f"modes are {', '.join(MODES)}; steps, batch and seq are at least 1")
    if args.only:
        print(json.dumps(measure(args, args.only)), flush=True)
        return 0
    return max(run_in_own_process(mode) for mode in args.modes or MODES[:3])


if __name__ == "__main__":
    sys.exit(main())
