#!/usr/bin/env python3
"""Times training steps of PyTorch with PEFT's adapters (LoRA on all linear layers), as a peer to compare with.

    python peer_peft.py --model DIR [--lora 16] [--base bf16|nf4] [--batch 4] [--seq 512] [--steps 5] [MODE ...]

MODE is compile-autocast or eager-autocast (adapters in fp32, as PEFT makes them beside a bf16 base, and autocast), or compile-plain or
eager-plain (adapters in bf16, no autocast). --base nf4 is bitsandbytes' 4-bit layers with double quantization, which compute in bf16.
No layer is recomputed. Random ids, global-norm clipping at 1.0 and fused AdamW; each mode in a process of its own. Prints one JSON object
a mode: the median of the timed steps, the process's peak resident memory, and the bytes that a parameter of the linear layers takes.
Needs torch, transformers and peft, and for nf4 bitsandbytes.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

from peer_pytorch import build_optimizer, cpu_name, peak_rss_bytes

MODES = ["compile-autocast", "eager-autocast", "compile-plain", "eager-plain"]
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def build_model(args, plain):
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, BitsAndBytesConfig
    options = {}
    if args.base == "nf4":
        options["quantization_config"] = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
                                                            bnb_4bit_compute_dtype=torch.bfloat16)
    model = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16, attn_implementation="sdpa", **options)
    model.config.use_cache = False
    lora = LoraConfig(r=args.lora, lora_alpha=2 * args.lora, target_modules=TARGETS, task_type="CAUSAL_LM")
    return get_peft_model(model, lora, autocast_adapter_dtype=not plain).train()


def base_bytes(model):
    """Of a parameter of the linear layers that have adapters: weights, and what quantization keeps beside them."""
    total = count = 0
    for name, module in model.named_modules():
        if not name.endswith("base_layer"):
            continue
        weight, state = module.weight, getattr(module.weight, "quant_state", None)
        total += weight.numel() * weight.element_size()
        count += state.shape.numel() if state else weight.numel()
        for part in (state, state and state.state2):
            if part is not None:
                total += sum(t.numel() * t.element_size() for t in (part.absmax, part.code))
    return total / count


def measure(args, mode):
    import peft
    import torch
    import transformers
    plain = mode.endswith("plain")
    model = build_model(args, plain)
    optimizer, _ = build_optimizer(model, "best")
    ids = torch.randint(0, model.config.vocab_size, (args.batch, args.seq + 1))
    inputs, targets = ids[:, :-1].contiguous(), ids[:, 1:].reshape(-1)

    def loss_of(inputs):
        with torch.autocast("cpu", torch.bfloat16, enabled=not plain):
            logits = model(input_ids=inputs).logits
            return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets)

    forward = torch.compile(loss_of) if mode.startswith("compile") else loss_of

    def step():
        start = time.perf_counter()
        loss = forward(inputs)
        loss.backward()
        torch.nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return time.perf_counter() - start, loss.item()

    warmup = [step() for _ in range(args.warmup)]
    timed = [step() for _ in range(args.steps)]
    seconds = [t for t, _ in timed]
    median = statistics.median(seconds)
    return {"peer": "peft" if args.base == "bf16" else "bitsandbytes", "mode": mode, "base": args.base, "lora": args.lora,
            "batch": args.batch, "seq": args.seq, "threads": torch.get_num_threads(), "tokens_per_s": args.batch * args.seq / median,
            "step_s": median, "step_s_min": min(seconds), "step_s_max": max(seconds), "steps": args.steps,
            "warmup_s": sum(t for t, _ in warmup), "last_loss": timed[-1][1],
            "trainable_parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
            "base_bytes_per_parameter": base_bytes(model), "peak_rss_bytes": peak_rss_bytes(), "torch": torch.__version__,
            "transformers": transformers.__version__, "peft": peft.__version__, "cpu": cpu_name()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modes", nargs="*", metavar="MODE", help=", ".join(MODES))
    parser.add_argument("--model", required=True)
    parser.add_argument("--lora", type=int, default=16)
    parser.add_argument("--base", choices=["bf16", "nf4"], default="bf16")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=512)
    parser.add_argument("--steps", type=int, default=5, help="timed steps")
    parser.add_argument("--warmup", type=int, default=2, help="steps before (compilation is there)")
    parser.add_argument("--only", choices=MODES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if set(args.modes) - set(MODES):
        parser.error(f"modes are {', '.join(MODES)}")
    if args.only:
        print(json.dumps(measure(args, args.only)), flush=True)
        return 0
    command = [sys.executable, os.path.abspath(__file__), *sys.argv[1:], "--only"]
    return max(subprocess.run([*command, mode], check=False).returncode for mode in args.modes or MODES)


if __name__ == "__main__":
    sys.exit(main())
