#!/usr/bin/env python3
"""PyTorch's several ranks on CPUs over gloo, as a peer to compare with: DDP, or FSDP2 (fully_shard).

    python peer_ranks.py --model DIR --ids FILE.npy [--ranks 2] [--batch 4] [--seq 512] [--steps 5] [--lr 1e-4] MODE
    python peer_ranks.py --model DIR --make CONFIG      # writes random weights in fp32 there, as both sides read them

Each rank has one thread on one of the processors that this program may use (with fewer processors than ranks they share them), and its part
of the sequences of each step, in the order of FILE. AdamW without weight decay, and clipping to a global norm of 1, as protrain has by
default. bf16: autocast over fp32 weights for DDP, and FSDP2's mixed precision with sums in fp32. Prints one JSON object: the time of each
step and the mean loss of all ranks. --weights FILE.safetensors: the weights at the end, too. Needs torch and transformers.
"""

import argparse
import json
import os
import resource
import socket
import subprocess
import sys
import time

KINDS = ("ddp-fp32", "ddp-bf16", "fsdp2-fp32", "fsdp2-bf16")


def layers_of(model):
    import torch
    return max((m for m in model.modules() if isinstance(m, torch.nn.ModuleList)), key=len)


def without_dropout(config):
    for key in ("attn_pdrop", "embd_pdrop", "resid_pdrop", "attention_dropout"):
        if hasattr(config, key):
            setattr(config, key, 0.0)
    config.use_cache = False
    return config


def make(args):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM
    torch.manual_seed(0)
    config = without_dropout(AutoConfig.from_pretrained(args.make))
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(args.model)


def shared(args, model):
    """The model as its ranks share it."""
    import torch
    if args.mode.startswith("ddp"):
        return torch.nn.parallel.DistributedDataParallel(model)
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    bf16 = "bf16" in args.mode
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if bf16 else MixedPrecisionPolicy()
    mesh = torch.distributed.init_device_mesh("cpu", (args.ranks,))
    for layer in layers_of(model):
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


def optimizer_of(model, lr):
    import torch
    options = {"lr": lr, "weight_decay": 0.0, "betas": (0.9, 0.999), "eps": 1e-8}
    try:
        return torch.optim.AdamW(model.parameters(), fused=True, **options), "fused"
    except RuntimeError:
        return torch.optim.AdamW(model.parameters(), foreach=True, **options), "foreach"


def take(ids, args, rank, step):
    """Inputs and targets of a rank's sequences of a step; the data begins anew at its end."""
    import torch
    own = args.batch // args.ranks
    windows = (len(ids) - 1) // args.seq
    rows = [(step * args.batch + rank * own + i) % windows for i in range(own)]
    both = torch.stack([torch.from_numpy(ids[w * args.seq:(w + 1) * args.seq + 1].astype("int64")) for w in rows])
    return both[:, :-1].contiguous(), both[:, 1:].reshape(-1)


def save_weights(model, path, rank):
    """All ranks give their shards; rank 0 writes."""
    from safetensors.torch import save_file
    whole = {}
    for name, p in model.named_parameters():
        p = p.detach()
        whole[name.removeprefix("module.")] = (p.full_tensor() if hasattr(p, "full_tensor") else p).clone()
    if not rank:
        save_file(whole, path)


def one_rank(args):
    import numpy as np
    import torch
    from transformers import AutoModelForCausalLM
    rank = int(os.environ["RANK"])
    processors = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {processors[rank % len(processors)]})
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32, attn_implementation="sdpa").train()
    without_dropout(model.config)
    parameters = sum(p.numel() for p in model.parameters())
    if args.mode.endswith("-compile"):
        for layer in layers_of(model):
            layer.compile()
    model = shared(args, model)
    optimizer, kind = optimizer_of(model, args.lr)
    ids = np.load(args.ids)
    autocast = args.mode.startswith("ddp-bf16")
    seconds, losses = [], []
    for step in range(args.warmup + args.steps):
        inputs, targets = take(ids, args, rank, step)
        torch.distributed.barrier()
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = torch.nn.functional.cross_entropy(model(input_ids=inputs).logits.flatten(0, 1).float(), targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.distributed.barrier()
        seconds.append(time.perf_counter() - start)
        mean = loss.detach().double()
        torch.distributed.all_reduce(mean)
        losses.append(mean.item() / args.ranks)
    if args.weights:
        save_weights(model, args.weights, rank)
    peak = torch.tensor(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, dtype=torch.float64)
    torch.distributed.all_reduce(peak, torch.distributed.ReduceOp.MAX)
    if not rank:
        timed = sorted(seconds[args.warmup:])
        median = timed[len(timed) // 2]
        print(json.dumps({"peer": "pytorch", "mode": args.mode, "ranks": args.ranks, "threads": 1, "parameters": parameters, "batch": args.batch,
                          "seq": args.seq, "optimizer": kind, "step_s": median, "step_s_min": timed[0], "step_s_max": timed[-1],
                          "tokens_per_s": args.batch * args.seq / median, "losses": losses, "rank_peak_rss_bytes": int(peak.item()),
                          "torch": torch.__version__}), flush=True)
    torch.distributed.barrier()
    os._exit(0)  # gloo's threads may end the process by an abort on its way out


def all_ranks(args):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    ranks = []
    for r in range(args.ranks):
        env = {**os.environ, "RANK": str(r), "WORLD_SIZE": str(args.ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
        ranks.append(subprocess.Popen([sys.executable, os.path.abspath(__file__), *sys.argv[1:]], env=env))
    return max(abs(r.wait()) for r in ranks)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", nargs="?", metavar="MODE", choices=[k + c for k in KINDS for c in ("", "-compile")])
    parser.add_argument("--model", required=True)
    parser.add_argument("--make", metavar="CONFIG", help="a config.json")
    parser.add_argument("--ids")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--batch", type=int, default=4, help="sequences a step, of all ranks together")
    parser.add_argument("--seq", type=int, default=512)
    parser.add_argument("--steps", type=int, default=5, help="timed steps")
    parser.add_argument("--warmup", type=int, default=2, help="steps before")
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--weights", metavar="FILE", help="write the weights at the end")
    args = parser.parse_args()
    if args.make:
        return make(args)
    if not args.mode or not args.ids or args.batch % args.ranks:
        parser.error("MODE and --ids are needed, and --batch must be a multiple of --ranks")
    return one_rank(args) if "RANK" in os.environ else all_ranks(args)


if __name__ == "__main__":
    sys.exit(main())
