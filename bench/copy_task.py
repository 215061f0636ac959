#!/usr/bin/env python3
"""Makes a copy task of any length: windows of `seq` ids, each a random text of `period` ids again and again.

    python3 bench/copy_task.py FOLDER --seq 131072 --period 512 --windows 8

writes FOLDER/ids.npy, and FOLDER/config.json of a Llama of 28M parameters if there is none. The first `period` ids of a window cannot be
foreseen: a model that copies has a loss of ln(vocabulary) x period / seq.
"""

import argparse
import json
import pathlib

import numpy as np

CONFIG = {"model_type": "llama", "hidden_size": 768, "intermediate_size": 2304, "num_hidden_layers": 4, "num_attention_heads": 12,
          "num_key_value_heads": 6, "vocab_size": 256, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 1000000.0,
          "hidden_act": "silu", "tie_word_embeddings": True, "initializer_range": 0.02}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--seq", type=int, required=True)
    parser.add_argument("--period", type=int, default=512)
    parser.add_argument("--windows", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    config = args.folder / "config.json"
    if not config.exists():
        config.write_text(json.dumps(CONFIG))
    vocab = json.loads(config.read_text())["vocab_size"]
    texts = np.random.default_rng(args.seed).integers(0, vocab, (args.windows, args.period), dtype=np.uint32)
    ids = np.tile(texts, (1, -(-args.seq // args.period)))[:, :args.seq]
    np.save(args.folder / "ids.npy", np.append(ids, ids[0, 0]))


if __name__ == "__main__":
    main()
