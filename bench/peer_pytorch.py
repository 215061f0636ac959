#!/usr/bin/env python3
"""Times training steps of PyTorch and Transformers, as a peer to compare with.

    python peer_pytorch.py [--device cpu|cuda] [--config config.json] [--batch 4] [--seq 512] [--steps 5]
                           [--threads N] [MODE ...]

MODE is eager-bf16, compile-bf16 (both autocast over fp32 weights), eager-fp32 or compile-fp32; by
default the first three. layers-bf16 compiles each layer on its own, which takes a fraction of the time.
long-bf16 is for long sequences: layers are compiled and recomputed, and the loss is computed in tiles of rows.
offload-bf16 is FSDP2 with fp32 weights, gradients and AdamW on the CPU, and recomputed layers; it keeps to
--device-memory. matmul-bf16 is no training: the best rate of a bf16 product, the ceiling.

Each runs in a process of its own, with random weights, random ids,
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

MODES = ["eager-bf16", "compile-bf16", "eager-fp32", "compile-fp32", "layers-bf16", "long-bf16", "offload-bf16", "matmul-bf16"]


def cpu_name():
    with open("/proc/cpuinfo") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return "unknown"


def peak_rss_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def layers_of(model):
    import torch
    return max((m for m in model.modules() if isinstance(m, torch.nn.ModuleList)), key=len)


def pinned_fits(model):
    """Weights and gradients, which PyTorch pins in powers of two, and the optimizer's moments, beside some room for the rest."""
    pinned = sum(2 ** (4 * p.numel() - 1).bit_length() for p in model.parameters())
    moments = sum(8 * p.numel() for p in model.parameters())
    with open("/proc/meminfo") as lines:
        free = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable")) * 1024
    return 2 * pinned + moments + 2**33 < free


def offload(model, device):
    """Shards of one rank: the weights wait on the CPU, a layer's at a time are on the device, in bf16."""
    import torch
    from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29517", RANK="0", WORLD_SIZE="1")
    torch.distributed.init_process_group("cpu:gloo,cuda:nccl" if device == "cuda" else "gloo")
    mesh = torch.distributed.init_device_mesh(device, (1,))
    options = {"mesh": mesh, "mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
               "offload_policy": CPUOffloadPolicy(pin_memory=device == "cuda" and pinned_fits(model))}
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    for layer in layers_of(model):
        fully_shard(layer, **options)
    return fully_shard(model, **options)


def build_model(path, device):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, GPT2Config
    config = AutoConfig.from_pretrained(path) if path else GPT2Config()
    for key in ("attn_pdrop", "embd_pdrop", "resid_pdrop", "attention_dropout"):
        if hasattr(config, key):
            setattr(config, key, 0.0)
    config.use_cache = False
    torch.manual_seed(0)
    with torch.device(device):
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


def tiled_loss(model, inputs, targets, rows=2048):
    """Of which no more than so many rows of logits exist at a time."""
    import torch
    from torch.utils.checkpoint import checkpoint
    head = model.get_output_embeddings()

    def loss_of(hidden, targets):
        return torch.nn.functional.cross_entropy(head(hidden).float(), targets, reduction="sum")

    hidden = model.base_model(input_ids=inputs).last_hidden_state.flatten(0, 1)
    tiles = zip(hidden.split(rows), targets.split(rows))
    return sum(checkpoint(loss_of, *tile, use_reentrant=False) for tile in tiles) / targets.numel()


def wait(device):
    import torch
    if device == "cuda":
        torch.cuda.synchronize()


def measure_matmul(args):
    """Random factors: zeros would run faster than data does."""
    import torch
    size = 8192 if args.device == "cuda" else 1024
    a, b = (torch.randn(size, size, device=args.device, dtype=torch.bfloat16) for _ in range(2))
    seconds = []
    for _ in range(13):
        wait(args.device)
        start = time.perf_counter()
        a @ b
        wait(args.device)
        seconds.append(time.perf_counter() - start)
    median = statistics.median(seconds[3:])
    return {"peer": "pytorch", "mode": "matmul-bf16", "device": args.device, "size": size,
            "flop_per_s": 2 * size**3 / median, "torch": torch.__version__}


def measure(args, mode):
    import torch
    import transformers
    if args.threads:
        torch.set_num_threads(args.threads)
    if mode.startswith("matmul"):
        return measure_matmul(args)
    libraries = peak_rss_bytes()
    offloaded = mode.startswith("offload")
    model = build_model(args.config, args.device)
    if offloaded:
        model = offload(model, args.device)
    if args.device == "cuda" and args.device_memory:  # not before: the GPU makes random weights, a CPU takes minutes for it
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.set_per_process_memory_fraction(args.device_memory / torch.cuda.get_device_properties(0).total_memory)
    if mode.startswith("long"):
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    if mode.startswith(("layers", "long")):
        for layer in layers_of(model):
            layer.compile()
    optimizer, kind = build_optimizer(model, args.optimizer)
    ids = torch.randint(0, model.config.vocab_size, (args.batch, args.seq + 1), device=args.device)
    inputs, targets = ids[:, :-1].contiguous(), ids[:, 1:].reshape(-1)

    def loss_of(inputs):
        with torch.autocast(args.device, torch.bfloat16, enabled=mode.endswith("bf16")):
            if mode.startswith("long"):
                return tiled_loss(model, inputs, targets)
            logits = model(input_ids=inputs).logits
            return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets)

    forward = torch.compile(loss_of) if mode.startswith("compile") else loss_of

    def step():
        wait(args.device)
        start, processor = time.perf_counter(), time.process_time()
        loss = forward(inputs)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        wait(args.device)
        return time.perf_counter() - start, loss.item(), time.process_time() - processor

    warmup = [step() for _ in range(args.warmup)]
    timed = [step() for _ in range(args.steps)]
    seconds = [t for t, _, _ in timed]
    median = statistics.median(seconds)
    if offloaded:
        torch.distributed.destroy_process_group()
    return {"peer": "pytorch", "mode": mode, "device": args.device, "model": args.config or "gpt2-124m",
            "parameters": sum(p.numel() for p in model.parameters()),
            "batch": args.batch, "seq": args.seq, "threads": torch.get_num_threads(),
            "optimizer": kind, "tokens_per_s": args.batch * args.seq / median,
            "step_s": median, "step_s_min": min(seconds), "step_s_max": max(seconds),
            "steps": args.steps, "warmup_s": sum(t for t, _, _ in warmup),
            "processor_s": statistics.median(p for _, _, p in timed),
            "first_loss": warmup[0][1] if warmup else timed[0][1], "last_loss": timed[-1][1],
            "peak_rss_bytes": peak_rss_bytes(), "libraries_rss_bytes": libraries,
            "device_peak_bytes": torch.cuda.max_memory_allocated() if args.device == "cuda" else None,
            "torch": torch.__version__, "transformers": transformers.__version__,
            "gpu": torch.cuda.get_device_name() if args.device == "cuda" else None,
            "cpu": cpu_name(), "cpu_capability": torch.backends.cpu.get_cpu_capability()}


def run_in_own_process(mode):
    """Peak memory is a process's, so each mode gets a fresh one. Returns its exit status."""
    command = [sys.executable, os.path.abspath(__file__), *sys.argv[1:], "--only", mode]
    return subprocess.run(command, check=False).returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modes", nargs="*", metavar="MODE", help=", ".join(MODES))
    parser.add_argument("--config", help="config.json of the model; default GPT-2 124M")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--device-memory", type=int, help="bytes of the GPU that PyTorch may take")
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
        try:
            print(json.dumps(measure(args, args.only)), flush=True)
        except RuntimeError as e:
            if type(e).__name__ != "OutOfMemoryError":
                raise
            print(e, file=sys.stderr)
            return 3
        return 0
    return max(run_in_own_process(mode) for mode in args.modes or MODES[:3])


if __name__ == "__main__":
    sys.exit(main())
