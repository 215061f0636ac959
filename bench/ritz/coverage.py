#!/usr/bin/env python3
"""How often the interval of 95% that a run prints covers the energy of its network.

    bench/ritz/coverage.py PROGRAM [--seeds 20]

Six problems, each trained from SEEDS seeds. The last line of a run has the interval from 8 sets of 4096 points; the reference is the mean of
8 other sets of 2^16 points, from a run of one step that begins with the network and leaves it as it is (its learning rate is 1e-30).
"""
import argparse
import json
import pathlib
import subprocess
import tempfile

PROBLEMS = [("poisson-cosine", 2), ("poisson-cosine", 10), ("schroedinger-cosine", 5), ("schroedinger-jump", 2), ("schroedinger-jump", 5),
            ("harmonic", 4)]
# Student's with 7 degrees of freedom
STUDENT = 2.365


def energy(program, *options):
    result = subprocess.run([program, "ritz", *map(str, options), "--threads", "1", "--device", "cpu", "--json", "--quiet"], check=True,
                            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    end = json.loads(result.stdout.splitlines()[-1])
    return end["estimated_energy"], end["standard_error"]


def covers(program, folder, problem, dim, seed):
    same = ["--problem", problem, "--dim", dim, "--width", 16, "--blocks", 2]
    run = pathlib.Path(folder) / f"{problem}-{dim}-{seed}"
    mean, error = energy(program, *same, "--n", 512, "--steps", 300, "--lr", "3e-3", "--eval-every", 0, "--seed", seed, "--out", run)
    large, of_large = energy(program, *same, "--n", 1, "--steps", 1, "--lr", "1e-30", "--init", run, "--eval-n", 1 << 16, "--seed",
                             seed + 1000003)
    return abs(mean - large) <= STUDENT * error, error, of_large


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--seeds", type=int, default=20)
    given = parser.parse_args()
    total = 0
    with tempfile.TemporaryDirectory() as folder:
        print("| problem, dimensions | covered | median standard error | of the reference |\n|---|---|---|---|")
        for problem, dim in PROBLEMS:
            runs = [covers(given.program, folder, problem, dim, seed) for seed in range(given.seeds)]
            hits = sum(run[0] for run in runs)
            total += hits
            middle = [sorted(run[k] for run in runs)[given.seeds // 2] for k in (1, 2)]
            print(f"| {problem}, {dim} | {hits} of {given.seeds} | {middle[0]:.1e} | {middle[1]:.1e} |", flush=True)
    count = given.seeds * len(PROBLEMS)
    print(f"{total} of {count}: {100 * total / count:.1f}%")


if __name__ == "__main__":
    main()
