#!/usr/bin/env python3
"""Times training steps of DeepSpeed ZeRO-3 with parameters and optimizer states on a disk, as a peer to compare with.

    python peer_deepspeed.py --folder DIR [--config config.json] [--batch 4] [--seq 512] [--steps 3]
                             [--dtype bf16|fp32] [--offload nvme|cpu] [--recompute]

On the CPU, with random weights, random ids, global-norm clipping at 1.0 and DeepSpeed's CPU Adam. DIR is where its files go.
Prints one JSON object: the median of the timed steps and the process's peak resident memory.
Needs torch, transformers and deepspeed, and libaio-dev to build DeepSpeed's disk access.
"""

import argparse
import json
import os
import statistics
import sys
import time

os.environ.setdefault("DS_ACCELERATOR", "cpu")
os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
os.environ.setdefault("MASTER_PORT", "29531")
for name, value in (("RANK", "0"), ("LOCAL_RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_SIZE", "1")):
    os.environ.setdefault(name, value)

from peer_pytorch import peak_rss_bytes


def settings(args):
    place = {"device": args.offload, "pin_memory": False}
    if args.offload == "nvme":
        place["nvme_path"] = args.folder
    return {
        "train_micro_batch_size_per_gpu": args.batch,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": 1.0,
        "bf16": {"enabled": args.dtype == "bf16"},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "weight_decay": 0.0}},
        "zero_optimization": {
            "stage": 3,
            "sub_group_size": 100_000_000,
            "stage3_prefetch_bucket_size": 50_000_000,
            "stage3_max_live_parameters": 100_000_000,
            "offload_optimizer": {**place, "buffer_count": 14, "pipeline_read": True, "pipeline_write": True},
            "offload_param": {**place, "buffer_count": 8, "buffer_size": 200_000_000},
        },
        "aio": {"block_size": 1 << 20, "queue_depth": 32, "thread_count": 2, "single_submit": False, "overlap_events": True},
    }


def build_model(args, config):
    import deepspeed
    import torch
    import torch._dynamo  # later it would meet the tensors that zero.Init makes
    from transformers import AutoConfig, AutoModelForCausalLM
    model_config = AutoConfig.from_pretrained(args.config)
    for key in ("attn_pdrop", "embd_pdrop", "resid_pdrop", "attention_dropout"):
        if hasattr(model_config, key):
            setattr(model_config, key, 0.0)
    model_config.use_cache = False
    dtype = torch.bfloat16 if args.dtype == "bf16" else torch.float32
    with deepspeed.zero.Init(config_dict_or_path=config, dtype=dtype):
        model = AutoModelForCausalLM.from_config(model_config, dtype=dtype, attn_implementation="sdpa")
    if args.recompute:
        model.gradient_checkpointing_enable()
    return model.train(), model_config.vocab_size


def measure(args):
    import deepspeed
    import torch
    deepspeed.init_distributed(dist_backend="gloo")
    config = settings(args)
    model, vocab = build_model(args, config)
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    generator = torch.Generator().manual_seed(1)
    seconds = []
    for step in range(args.steps + 1):
        ids = torch.randint(vocab, (args.batch, args.seq), generator=generator)
        start = time.perf_counter()
        loss = engine(input_ids=ids, labels=ids).loss
        engine.backward(loss)
        engine.step()
        if step:
            seconds.append(time.perf_counter() - start)
    median = statistics.median(seconds)
    return {"peer": "deepspeed", "mode": f"zero3-{args.offload}-{args.dtype}", "batch": args.batch, "seq": args.seq,
            "step_s": median, "tokens_per_s": args.batch * args.seq / median, "peak_rss_bytes": peak_rss_bytes(),
            "loss": float(loss), "deepspeed": deepspeed.__version__, "torch": torch.__version__}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = os.path.dirname(os.path.abspath(__file__))
    parser.add_argument("--folder", required=True)
    parser.add_argument("--config", default=os.path.join(here, "shapes", "gpt2-124m.json"))
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=512)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--dtype", choices=["bf16", "fp32"], default="bf16")
    parser.add_argument("--offload", choices=["nvme", "cpu"], default="nvme")
    parser.add_argument("--recompute", action="store_true")
    args = parser.parse_args()
    os.makedirs(args.folder, exist_ok=True)
    output = os.dup(1)
    os.dup2(2, 1)  # what the libraries print is not the result
    result = measure(args)
    os.write(output, (json.dumps(result) + "\n").encode())
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
