#!/usr/bin/env python3
"""Times the optimizer step of ZeRO-Offload on the CPU: DeepSpeedCPUAdam, and torch.optim.AdamW(fused=True) beside it.

    python3 peer_cpuadam.py [--elements 1e9] [--threads 16] [--steps 5] [--warmup 2] [--seconds 80] [PEER ...]

PEER: deepspeed, torch; default both. For each a flat fp32 parameter of so many elements, as ZeRO-Offload has one a parameter group, is
updated with fp32 gradients that are scaled before (clipping), and the weights are converted to bf16: that is what DeepSpeed 0.19.8's
step does on the processor (runtime/zero/stage_1_and_2.py; "offload step" here). Gradients come from bf16 to fp32 on the GPU there; what
that would take on the processor is timed too, apart. Prints a line for each step, and one JSON object at the end: seconds for 1e9
parameters, the median of the steps. After --seconds it ends with what it has.

DeepSpeed's C++ is its own; where ds_cpu_adam_avx512.so (on processors without AVX-512 ds_cpu_adam_avx2.so) lies beside this file, built from
its sources with its flags but -march=x86-64-v4 (v3) for native, that is used, else it is compiled here just in time, which takes a minute
or two (--jit does so in any case).
"""

import argparse
import importlib.util
import json
import os
import pathlib
import statistics
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
BEGUN = time.perf_counter()
os.environ.setdefault("DS_ACCELERATOR", "cpu")  # no GPU is needed, nor nvcc
os.environ.setdefault("DS_SKIP_CUDA_CHECK", "1")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peers", nargs="*", default=["deepspeed", "torch"])
    parser.add_argument("--elements", type=float, default=1e9)
    parser.add_argument("--threads", type=int, default=min(16, len(os.sched_getaffinity(0))))
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=80)
    parser.add_argument("--jit", action="store_true")
    parser.add_argument("--check", action="store_true", help="that both agree, on few elements, instead of timing")
    return parser.parse_args()


ARGS = arguments()
os.environ["OMP_NUM_THREADS"] = str(ARGS.threads)

import torch  # noqa: E402 (the number of threads comes first)

torch.set_num_threads(ARGS.threads)


def say(*what):
    print(f"{time.perf_counter() - BEGUN:6.1f} s ", *what, flush=True)


def filled(n, dtype, spread):
    """Normal values, the same 4 Mi over and over, written by all threads: drawing them all would take longer than the steps."""
    block = torch.randn(min(n, 1 << 22), generator=torch.Generator().manual_seed(1)).mul_(spread).to(dtype)
    x = torch.empty(n, dtype=dtype)
    whole = n // block.numel() * block.numel()
    x[:whole].view(-1, block.numel()).copy_(block)
    x[whole:].copy_(block[:n - whole])
    return x


def load_prebuilt():
    """DeepSpeed's op from beside this file, in place of its compiler; False: it is not there, or not for this machine."""
    flags = next(line for line in open("/proc/cpuinfo") if line.startswith("flags")).split()
    path = HERE / f"ds_cpu_adam_{'avx512' if 'avx512f' in flags else 'avx2'}.so"
    if ARGS.jit or not path.exists():
        return False
    try:
        spec = importlib.util.spec_from_file_location("ds_cpu_adam", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except ImportError as error:
        say(f"{path.name}:", error)
        return False
    from deepspeed.ops.op_builder import CPUAdamBuilder
    CPUAdamBuilder.load = lambda self, verbose=False: module
    return True


def deepspeed_adam(parameters):
    import deepspeed
    prebuilt = load_prebuilt()
    say("deepspeed", deepspeed.__version__, "with its op", "built before" if prebuilt else "to be compiled here")
    from deepspeed.ops.adam import DeepSpeedCPUAdam
    optimizer = DeepSpeedCPUAdam(parameters, lr=1e-4, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1, adamw_mode=True)
    say("its optimizer is there")
    return optimizer


def torch_adam(parameters):
    return torch.optim.AdamW(parameters, lr=1e-4, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1, fused=True)


MAKERS = {"deepspeed": deepspeed_adam, "torch": torch_adam}


def timed(what):
    begun = time.perf_counter()
    what()
    return time.perf_counter() - begun


def measure(peer, n, gradient, weights):
    """Seconds of each part, by step."""
    parameter = torch.nn.Parameter(filled(n, torch.float32, 0.02))
    parameter.grad = torch.zeros(n)
    optimizer = MAKERS[peer]([parameter])
    parts = {"gradients to fp32": [], "gradients scaled": [], "adam": [], "weights to bf16": []}
    for step in range(ARGS.warmup + ARGS.steps):
        if step > ARGS.warmup and time.perf_counter() - BEGUN > ARGS.seconds:
            break
        seconds = {"gradients to fp32": timed(lambda: parameter.grad.copy_(gradient)),
                   "gradients scaled": timed(lambda: parameter.grad.mul_(0.99)),
                   "adam": timed(optimizer.step),
                   "weights to bf16": timed(lambda: weights.copy_(parameter.data))}
        say(peer, "step", step + 1, *(f"{name} {value:.4f}" for name, value in seconds.items()))
        if step >= ARGS.warmup:
            for name, value in seconds.items():
                parts[name].append(value)
    return parts


def check():
    n, results = 100003, {}
    for peer in ARGS.peers:
        parameter = torch.nn.Parameter(filled(n, torch.float32, 0.02))
        optimizer = MAKERS[peer]([parameter])
        for step in range(5):
            parameter.grad = filled(n, torch.float32, 1e-3 * (step + 1))
            optimizer.step()
        results[peer] = parameter.detach().double()
    first, *others = results.values()
    for other in others:
        worst = float((first - other).abs().max())
        say(f"the largest difference after 5 steps: {worst:.2e}")
        assert worst < 1e-6
    return 0


def main():
    if ARGS.check:
        return check()
    n = int(ARGS.elements)
    gradient, weights = filled(n, torch.bfloat16, 1e-3), torch.empty(n, dtype=torch.bfloat16)
    say(f"{n} elements, {ARGS.threads} threads, torch {torch.__version__}")
    result = {"elements": n, "threads": ARGS.threads, "torch": torch.__version__}
    for peer in ARGS.peers:
        try:
            parts = measure(peer, n, gradient, weights)
        except Exception as error:  # the other peer may do
            say(peer, "failed:", repr(error)[:500])
            continue
        per_billion = {name: statistics.median(values) / n * 1e9 for name, values in parts.items()}
        result[peer] = {"steps": len(parts["adam"]), **per_billion, "offload step": sum(per_billion.values()) - per_billion["gradients to fp32"]}
        say(f"{peer}: {per_billion['adam']:.4f} s for 1e9 parameters, {result[peer]['offload step']:.4f} s with scaling and weights to bf16")
    print(json.dumps(result), flush=True)
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
