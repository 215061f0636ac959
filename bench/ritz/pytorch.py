"""Steps a second of the Deep Ritz method in PyTorch beside `protrain ritz`, in turn: the same network, points, energy and AdamW.

    python3 bench/ritz/pytorch.py build/protrain [THREADS [ROUNDS]]

PyTorch's gradient by x is double backward, or torch.func's (vmap of grad); with torch.compile where it compiles. fp32, schroedinger-cosine,
4096 points, 3 residual blocks. Peaks are of the process beside one that only imports torch.
"""
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

POINTS, BLOCKS, CASES = 4096, 3, [(2, 64), (10, 64), (50, 64), (2, 512), (10, 512), (50, 512)]
WAYS = ["double backward", "torch.func", "double backward, compiled"]


def torch_steps(way, dim, width, steps, threads):
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

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

    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.0)
    v = math.pi**2

    def energy_double(x):
        x.requires_grad_(True)
        u = net(x)
        (g,) = torch.autograd.grad(u.sum(), x, create_graph=True)
        return u, g

    def energy_func(x):
        parameters = dict(net.named_parameters())
        one = lambda p: torch.func.functional_call(net, parameters, (p,))
        g, u = torch.func.vmap(torch.func.grad_and_value(one))(x)
        return u, g

    both = energy_func if "func" in way else energy_double
    if "compiled" in way:
        inner = both
        both = torch.compile(lambda x: inner(x))
    engine = torch.quasirandom.SobolEngine(dim, scramble=True)

    def step():
        x = engine.draw(POINTS)
        f = 2 * v * torch.cos(math.pi * x).sum(1)
        optimizer.zero_grad()
        u, g = both(x)
        ((g * g).sum(1) / 2 + v * u * u / 2 - f * u).mean().backward()
        optimizer.step()

    for _ in range(3):
        step()
    begin = time.monotonic()
    for _ in range(steps):
        step()
    seconds = (time.monotonic() - begin) / steps
    print(json.dumps({"seconds": seconds, "mib": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base) / 1024}))


def run_torch(way, dim, width, steps, threads):
    done = subprocess.run([sys.executable, __file__, "--torch", way, str(dim), str(width), str(steps), str(threads)], capture_output=True, text=True)
    return json.loads(done.stdout.strip().splitlines()[-1]) if done.returncode == 0 else None


def run_ours(program, dim, width, steps, threads):
    with tempfile.TemporaryDirectory() as out:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [program, "ritz", "--problem", "schroedinger-cosine", "--dim", str(dim), "--n", str(POINTS), "--width", str(width), "--blocks", str(BLOCKS),
                   "--steps", str(steps + 3), "--threads", str(threads), "--eval-every", "0", "--eval-n", "1", "--out", out, "--quiet", "--device", "cpu"]
        said = subprocess.run(command[:-3] + ["--device", "cpu"], capture_output=True, text=True).stdout
        lines = [json.loads(line) for line in open(os.path.join(out, "metrics.jsonl"))]
        size = next((line for line in said.splitlines() if "parameters" in line), "")
        return {"seconds": sum(line["step_s"] for line in lines[3:]) / steps, "memory": size.split(";")[-1].strip()}


def main():
    program, threads, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else os.cpu_count(), int(sys.argv[3]) if len(sys.argv) > 3 else 3
    for dim, width in CASES:
        steps = 30 if width == 64 else 4
        times, ours, notes = {way: [] for way in WAYS}, [], {}
        for _ in range(rounds):
            one = run_ours(program, dim, width, steps, threads)
            ours.append(one["seconds"])
            for way in WAYS:
                got = run_torch(way, dim, width, steps, threads)
                if got:
                    times[way].append(got["seconds"])
                    notes[way] = got["mib"]
        print("d %2d width %3d: ours %7.2f ms (%s)" % (dim, width, 1e3 * statistics.median(ours), one["memory"]))
        for way in WAYS:
            if times[way]:
                took = statistics.median(times[way])
                print("    %-26s %7.2f ms  %5.2f times ours  %.0f MiB" % (way, 1e3 * took, took / statistics.median(ours), notes[way]))
            else:
                print("    %-26s does not run" % way)
        sys.stdout.flush()


if len(sys.argv) > 1 and sys.argv[1] == "--torch":
    torch_steps(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]), int(sys.argv[6]))
else:
    main()
