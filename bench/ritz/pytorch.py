"""Steps a second and memory of the Deep Ritz method in PyTorch beside `protrain ritz`, in turn: the same network, points, energy and AdamW.

    python3 bench/ritz/pytorch.py build/protrain [--threads N] [--rounds N] [--cases 10x64,50x512] [--json FILE]

schroedinger-cosine, 4096 Sobol points a step, 3 residual blocks, fp32. PyTorch's gradient by x is double backward, or torch.func's (vmap
of grad), each with and without torch.compile, or torch.func's by x and by the weights in one compiled graph; the fastest counts. Every way takes about a second in each round; a
row has medians over rounds, and the median of the rounds' own ratios. Memory is each process's peak (VmHWM), PyTorch's less what it has
when torch is imported. Less than six minutes on two idle cores.
"""
import argparse
import ctypes
import gc
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time

POINTS, BLOCKS, LR, V = 4096, 3, 1e-3, math.pi**2
CASES = "2x64,10x64,50x64,2x512,10x512,50x512"
WAYS = ["double backward", "torch.func", "double backward, compiled", "torch.func, compiled", "torch.func for both gradients, compiled"]
MIB = 1024.0
PROCESSORS = os.sched_getaffinity(0)  # before PyTorch's OpenMP binds this thread, which what it starts would inherit


def status(key, pid="self"):
    with open(f"/proc/{pid}/status") as f:
        return next((int(line.split()[1]) for line in f if line.startswith(key)), 0)


# ---- ours


def run_ours(program, dim, width, steps, threads):
    """Seconds a step, and the process's peak in KiB."""
    with tempfile.TemporaryDirectory() as out:
        command = [program, "ritz", "--problem", "schroedinger-cosine", "--dim", dim, "--n", POINTS, "--width", width, "--blocks", BLOCKS, "--lr", LR,
                   "--lr-schedule", "constant", "--steps", steps + 3, "--threads", threads, "--eval-every", 0, "--eval-n", 1, "--out", out, "--quiet",
                   "--device", "cpu"]
        # muParser brings OpenMP along, which would bind us to one processor by these variables.
        environment = {key: value for key, value in os.environ.items() if not key.startswith("OMP_")}
        process, peak = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL, env=environment,
                                         preexec_fn=lambda: os.sched_setaffinity(0, PROCESSORS)), 0
        while process.poll() is None:
            try:
                peak = max(peak, status("VmHWM", process.pid))
            except OSError:
                pass
            time.sleep(0.02)
        if process.returncode:
            sys.exit(f"{program} ended with {process.returncode}")
        lines = [json.loads(line) for line in open(os.path.join(out, "metrics.jsonl"))]
        return statistics.mean(line["step_s"] for line in lines[3:]), peak


# ---- PyTorch


def network(torch, dim, width):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.input, self.output = torch.nn.Linear(dim, width), torch.nn.Linear(width, 1)
            self.inner = torch.nn.ModuleList(torch.nn.Linear(width, width) for _ in range(2 * BLOCKS))

        def forward(self, x):
            h = self.input(x)
            for k in range(0, 2 * BLOCKS, 2):
                h = torch.tanh(self.inner[k + 1](torch.tanh(self.inner[k](h)))) + h
            return self.output(h)[..., 0]

    return Net()


def make_step(torch, way, dim, width):
    torch.manual_seed(0)
    net = network(torch, dim, width)
    optimizer = torch.optim.AdamW(net.parameters(), lr=LR, weight_decay=0.0)
    engine = torch.quasirandom.SobolEngine(dim, scramble=True, seed=0)

    def double(x, parameters):
        x.requires_grad_(True)
        u = net(x)
        (g,) = torch.autograd.grad(u.sum(), x, create_graph=True)
        return u, g

    def func(x, parameters):
        g, u = torch.func.vmap(torch.func.grad_and_value(lambda p: torch.func.functional_call(net, parameters, (p,))))(x)
        return u, g

    inner = func if "func" in way else double

    def energy(parameters, x):
        u, g = inner(x, parameters)
        f = 2 * V * torch.cos(math.pi * x.detach()).sum(1)
        return ((g * g).sum(1) / 2 + V * u * u / 2 - f * u).mean()

    gradients = torch.func.grad(energy) if "both" in way else None
    if "compiled" in way:
        energy, gradients = torch.compile(energy), torch.compile(gradients) if gradients else None
    parameters = dict(net.named_parameters())

    def step():
        x = engine.draw(POINTS)
        optimizer.zero_grad()
        if gradients:
            for name, g in gradients({k: v.detach() for k, v in parameters.items()}, x).items():
                parameters[name].grad = g
        else:
            energy(parameters, x).backward()
        optimizer.step()

    return step


class Way:
    def __init__(self, torch, name, dim, width):
        self.name, self.seconds, self.peak, self.fault = name, [], 0, None
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        with open("/proc/self/clear_refs", "w") as f:
            f.write("5")
        try:
            self.step = make_step(torch, name, dim, width)
            for _ in range(3):
                self.step()
            self.peak = status("VmHWM")
        except Exception as e:  # noqa: BLE001: whatever it is, this way does not run
            self.fault = str(e).strip().splitlines()[0][:100]

    def run(self, least_s):
        begin, steps = time.monotonic(), 0
        while steps < 3 or time.monotonic() - begin < least_s:
            self.step()
            steps += 1
        self.seconds.append((time.monotonic() - begin) / steps)


def run_case(program, dim, width, threads, rounds):
    import torch

    torch.set_num_threads(threads)
    import_kib = status("VmRSS")
    ways = [Way(torch, name, dim, width) for name in WAYS]
    good = [way for way in ways if not way.fault]
    ours, peak, steps = [], 0, 4
    for turn in range(rounds + 1):  # the first one finds out how many steps are a second
        seconds, used = run_ours(program, dim, width, steps, threads)
        steps, peak = max(4, int(1 / seconds)), max(peak, used)
        if turn == 0:
            continue
        ours.append(seconds)
        for way in good:
            way.run(1.0)
    best = min(good, key=lambda way: statistics.median(way.seconds))
    ratio = statistics.median(b / o for b, o in zip(best.seconds, ours))
    return {"dim": dim, "width": width, "threads": threads, "rounds": rounds, "torch": torch.__version__, "ours_ms": 1e3 * statistics.median(ours),
            "ours_mib": peak / MIB, "best": best.name, "times_ours": ratio, "memory_times_ours": (best.peak - import_kib) / peak,
            "ways": {way.name: way.fault or {"ms": 1e3 * statistics.median(way.seconds), "mib": (way.peak - import_kib) / MIB} for way in ways}}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cases", default=CASES)
    parser.add_argument("--json")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    o = parser.parse_args()
    for case in o.cases.split(","):
        dim, width = map(int, case.split("x"))
        if o.one:
            print(json.dumps(run_case(o.program, dim, width, o.threads, o.rounds)))
            return
        done = subprocess.run([sys.executable, __file__, o.program, "--one", "--threads", str(o.threads), "--rounds", str(o.rounds), "--cases", case],
                              capture_output=True, text=True, env=dict(os.environ, OMP_PROC_BIND="true", OMP_PLACES="cores"))
        if done.returncode:
            sys.exit(done.stderr)
        row = json.loads(done.stdout.strip().splitlines()[-1])
        print("d %2d width %3d: ours %7.2f ms, %4.0f MiB; %s takes %.2f times as long, and %.1f times the memory"
              % (dim, width, row["ours_ms"], row["ours_mib"], row["best"], row["times_ours"], row["memory_times_ours"]))
        for name, way in row["ways"].items():
            print("    %-40s %s" % (name, way if isinstance(way, str) else "%7.2f ms  %5.0f MiB" % (way["ms"], way["mib"])))
        sys.stdout.flush()
        if o.json:
            with open(o.json, "a") as f:
                f.write(json.dumps(row) + "\n")


main()
