#!/usr/bin/env python3
"""Times training steps of DeepSpeed ZeRO with parameters and optimizer states on a disk or in RAM, as a peer to compare with.

    python peer_deepspeed.py --folder DIR [--config config.json] [--batch 4] [--seq 512] [--steps 3] [--dtype bf16|fp32]
                             [--offload nvme|cpu] [--recompute] [--device cpu|cuda] [--stage 2|3] [--device-memory BYTES]

With random weights, random ids, global-norm clipping at 1.0 and DeepSpeed's CPU Adam. DIR is where its files go. Stage 2 (ZeRO-Offload)
keeps the weights on the device, and needs --offload cpu. On a GPU, host memory is pinned, and --device-memory caps PyTorch's allocator.
Prints one JSON object: the median of the timed steps and the process's peak memory. The exit status is 3 where the device's memory is too
small. Needs torch, transformers and deepspeed, a compiler for its Adam, and for --offload nvme libaio-dev.
"""

import argparse
import json
import os
import statistics
import sys
import time

os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
os.environ.setdefault("MASTER_PORT", "29531")
for name, value in (("RANK", "0"), ("LOCAL_RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_SIZE", "1")):
    os.environ.setdefault(name, value)

from peer_pytorch import peak_rss_bytes, wait


OUT_OF_MEMORY = 3


def settings(args):
    place = {"device": args.offload, "pin_memory": args.device == "cuda"}
    if args.offload == "nvme":
        place["nvme_path"] = args.folder
    stage = {"stage": args.stage, "overlap_comm": args.device == "cuda"}
    if args.stage == 2:
        stage["offload_optimizer"] = place
    else:
        stage |= {
            "sub_group_size": 100_000_000,
            "stage3_prefetch_bucket_size": 50_000_000,
            "stage3_max_live_parameters": 100_000_000,
            "offload_optimizer": {**place, "buffer_count": 14, "pipeline_read": True, "pipeline_write": True},
            "offload_param": {**place, "buffer_count": 8, "buffer_size": 200_000_000},
        }
    return {
        "train_micro_batch_size_per_gpu": args.batch,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": 1.0,
        "bf16": {"enabled": args.dtype == "bf16"},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "weight_decay": 0.0}},
        "zero_optimization": stage,
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
    torch.set_default_device(args.device if args.stage == 2 else None)  # a CPU takes minutes for random weights
    with deepspeed.zero.Init(config_dict_or_path=config, dtype=dtype, enabled=args.stage == 3):
        model = AutoModelForCausalLM.from_config(model_config, dtype=dtype, attn_implementation="sdpa")
    torch.set_default_device(None)
    if args.recompute:
        model.gradient_checkpointing_enable()
    return model.train(), model_config.vocab_size


def measure(args):
    import deepspeed
    import torch
    deepspeed.init_distributed(dist_backend="nccl" if args.device == "cuda" else "gloo")
    config = settings(args)
    model, vocab = build_model(args, config)
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    if args.device_memory:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.set_per_process_memory_fraction(args.device_memory / torch.cuda.get_device_properties(0).total_memory)
    generator = torch.Generator().manual_seed(1)
    seconds = []
    for step in range(args.steps + 1):
        ids = torch.randint(vocab, (args.batch, args.seq), generator=generator).to(args.device)
        wait(args.device)
        start = time.perf_counter()
        loss = engine(input_ids=ids, labels=ids).loss
        engine.backward(loss)
        engine.step()
        wait(args.device)
        if step:
            seconds.append(time.perf_counter() - start)
    median = statistics.median(seconds)
    on_device = {"device_peak_bytes": torch.cuda.max_memory_reserved()} if args.device == "cuda" else {}
    mode = f"zero{args.stage}-{args.offload}-{args.dtype}" + ("-recompute" if args.recompute else "")
    return {"peer": "deepspeed", "mode": mode, "device": args.device, "device_memory": args.device_memory, **on_device, "batch": args.batch, "seq": args.seq,
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
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--stage", type=int, choices=[2, 3], default=3)
    parser.add_argument("--device-memory", type=int)
    args = parser.parse_args()
    if args.stage == 2 and args.offload != "cpu":
        parser.error("stage 2 keeps the weights on the device: --offload cpu")
    os.environ.setdefault("DS_ACCELERATOR", args.device)
    os.makedirs(args.folder, exist_ok=True)
    output = os.dup(1)
    os.dup2(2, 1)  # what the libraries print is not the result
    try:
        result = measure(args)
    except RuntimeError as e:  # torch.OutOfMemoryError is one
        if "out of memory" not in str(e):
            raise
        print(e, file=sys.stderr)
        os._exit(OUT_OF_MEMORY)
    os.write(output, (json.dumps(result) + "\n").encode())
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
