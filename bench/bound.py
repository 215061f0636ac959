#!/usr/bin/env python3
"""How far plans are from the bound of all plans, and from a search that does much more work.

    cmake --build build && python bench/bound.py [--effort 20] [--out FILE] [SHAPE ...]

Plans each shape of bench/shapes for each machine and way of training twice: by the usual search, and with --search-effort. Prints a line for
each case and the distances' mean and worst; --out has the cases as JSON lines. What does not fit is left out.
"""

import argparse
import itertools
import json
import pathlib
import subprocess

HERE = pathlib.Path(__file__).parent
SHAPES = ["gpt2-124m", "gpt2-1.5b", "llama-3.2-1b", "qwen2.5-3b", "qwen3-8b", "llama-2-70b", "qwen3-30b-a3b"]
MACHINES = ["rtx4090", "rtx3090", "h100", "a100-40", "laptop16", "gh200"]
WAYS = [[], ["--lora", "16"], ["--optimizer", "adamw8bit", "--batch-size", "32"]]


def plan(args, shape, machine, way, more):
    command = [args.protrain, "plan", "--model", str(HERE / "shapes" / f"{shape}.json"), "--machine", machine, "--json", "--quiet"]
    done = subprocess.run(command + way + more, capture_output=True, text=True)
    if done.returncode == 3:
        return None
    if done.returncode:
        raise SystemExit(f"{shape}, {machine}: {done.stderr}")
    return json.loads(done.stdout)


def busiest(found):
    step = found["predicted"]["step_s"]
    return max(found["queues"], key=lambda q: found["queues"][q]["busy_s"]), found["limit_s"] / step


def summary(name, values):
    values = sorted(values)
    print(f"{name}: median {values[len(values) // 2]:.2%}, mean {sum(values) / len(values):.2%}, worst {values[-1]:.2%}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--protrain", default="build/protrain")
    parser.add_argument("--effort", default="20")
    parser.add_argument("--out")
    parser.add_argument("shapes", nargs="*", default=SHAPES)
    args = parser.parse_args()
    cases = []
    for shape, machine, way in itertools.product(args.shapes, MACHINES, WAYS):
        usual = plan(args, shape, machine, way, [])
        if usual is None:
            continue
        longer = plan(args, shape, machine, way, ["--search-effort", args.effort])
        queue, share = busiest(usual)
        step, best = usual["predicted"]["step_s"], longer["predicted"]["step_s"]
        case = {"shape": shape, "machine": machine, "way": " ".join(way), "step_s": step, "longer_search_s": best,
                "bound_s": usual["bound_s"], "busiest": queue, "busy": share}
        cases.append(case)
        print(f"{shape:14} {machine:9} {case['way']:38} {step:9.4g} s, bound {step / case['bound_s'] - 1:6.1%} below, "
              f"longer search {step / best - 1:6.2%} faster; {queue} busy {share:.0%}", flush=True)
    print(len(cases), "cases")
    summary("above the bound", [c["step_s"] / c["bound_s"] - 1 for c in cases])
    summary("above the longer search", [c["step_s"] / c["longer_search_s"] - 1 for c in cases])
    if args.out:
        pathlib.Path(args.out).write_text("".join(json.dumps(c) + "\n" for c in cases))


main()
