#include "options/table.h"

#include "protrain_ritz.h"

#define R(f, flag, k, v) OPTION(pt_ritz_options, f, flag, k, v)
#define MOST 1e15

static const option_row rows[] = {
    {R(problem, "problem", TEXT, "NAME"), .is.group = "Problem", .is.initial = "poisson-cosine",
     .is.help = "a built-in problem, or a problem file"},
    {R(dim, "dim", INT, "D"), RANGE(1, 65536), .is.help = "dimension of a built-in problem; default 5, harmonic 10"},

    {R(loss, "loss", CHOICE, "energy|residual"), .is.initial = "energy",
     .is.help = "what is minimised; residual: the squared residual of the\nequation, as physics-informed networks do, on a CPU"},
    {R(boundary_weight, "boundary-weight", REAL, "X"), RANGE(ABOVE_0, 1e12),
     .is.help = "--loss residual: weight of neumann and robin conditions;\ndefault 10"},

    {R(points, "points", CHOICE, "mc|sobol|halton|lattice"), .is.group = "Points", .is.initial = "sobol", .is.help = "kind of the points"},
    {R(randomize, "randomize", CHOICE, "default|none|shift|lms|owen|digits|tent"),
     .is.help = "default owen; digits for halton, shift for a lattice;\nwith --compare, of --points, unless it names others"},
    {R(n, "n", INT, "N"), .is.initial = "4096", RANGE(1, 4294967296), .is.help = "points per step"},
    {R(n_boundary, "n-boundary", INT, "N"), RANGE(0, MOST),
     .is.help = "points per step on all faces together, if the problem\nsamples them; default about --n"},
    {R(redraw_every, "redraw-every", INT, "K"), .is.initial = "1", RANGE(0, MOST),
     .is.help = "steps between new points; 0: always the same points"},

    {R(width, "width", INT, "M"), .is.group = "Network", .is.initial = "64", RANGE(1, MOST), .is.help = "width of the layers"},
    {R(blocks, "blocks", INT32, "B"), .is.initial = "4", RANGE(1, 256),
     .is.help = "residual blocks of two layers each, or layers of a plain network"},
    {R(plain, "network", EITHER, "residual|plain"), .is.initial = "residual", .is.help = "kind of the network"},
    {R(no_input_layer, "no-input-layer", FLAG, NULL),
     .is.help = "x padded with zeros is the first block's input; needs a width of at least the dimension"},
    {R(activation, "activation", CHOICE, "tanh|tanh3|relu3|softplus|sin|silu"), .is.initial = "tanh",
     .is.help = "tanh3, relu3: their cubes"},

    {R(steps, "steps", INT, "N"), .is.group = "Training", .is.initial = "1000", RANGE(1, MOST), .is.help = "number of steps"},
    {R(init_run, "init", TEXT, "RUN"), .is.help = "begin with the network of this folder, which has the same shape"},
    {R(lbfgs_steps, "lbfgs-steps", INT, "N"), RANGE(0, 1000000),
     .is.help = "then at most N iterations of L-BFGS on one more point set"},
    {R(penalty_ramp, "penalty-ramp", INT, "N"), RANGE(0, MOST),
     .is.help = "steps over which a dirichlet boundary's penalty rises from a thousandth"},
    {R(lr, "lr", REAL, "X"), .is.initial = "1e-3", RANGE(ABOVE_0, 1e3), .is.help = "learning rate"},
    {R(lr_schedule, "lr-schedule", CHOICE, "constant|linear|cosine|halving"), .is.initial = "cosine",
     .is.help = "learning rate after the warm-up"},
    {R(halve_every, "halve-every", INT, "N"), .is.initial = "5000", RANGE(1, MOST), .is.help = "steps after which halving halves the rate"},
    {R(warmup_steps, "warmup-steps", INT, "N"), .is.initial = "0", RANGE(0, MOST),
     .is.help = "steps in which the learning rate rises from 0"},
    {R(min_lr_ratio, "min-lr-ratio", REAL, "X"), .is.initial = "0.01", RANGE(0, 1), .is.help = "final learning rate as a fraction of --lr"},
    {R(weight_decay, "weight-decay", REAL, "X"), .is.initial = "0", RANGE(0, 1e3), .is.help = "decoupled weight decay"},
    {R(beta1, "beta1", REAL, "X"), .is.initial = "0.9", RANGE(0, 0.9999999), .is.help = "decay of AdamW's first moment"},
    {R(beta2, "beta2", REAL, "X"), .is.initial = "0.999", RANGE(0, 0.9999999), .is.help = "decay of AdamW's second moment"},
    {R(eps, "eps", REAL, "X"), .is.initial = "1e-8", RANGE(ABOVE_0, 1), .is.help = "AdamW's epsilon"},
    {R(dtype, "dtype", CHOICE, "fp32|fp64"), .is.initial = "fp32", .is.help = "fp64 only on a CPU"},
    {R(seed, "seed", SEED, "N"), .is.initial = "0", RANGE(0, (double)INT64_MAX),
     .is.help = "random seed of the points and the initial weights"},

    {R(device, "device", TEXT, "NAME"), .is.group = "Hardware", .is.initial = "auto", .is.help = DEVICE_HELP},
    {R(threads, "threads", INT32, "N"), RANGE(0, THREADS_MOST), .is.help = THREADS_HELP},
    {R(device_memory, "device-memory", SIZE, "SIZE"), .is.help = DEVICE_MEMORY_HELP "; what does not fit is recomputed"},
    {R(host_memory, "host-memory", SIZE, "SIZE"), .is.help = HOST_MEMORY_HELP},
    {R(disk_memory, "disk-memory", SIZE, "SIZE"), .is.help = DISK_MEMORY_HELP},
    {R(disk_path, "disk-path", TEXT, "DIR"), .is.help = "folder of the disk tier; default: --out, else $TMPDIR or /var/tmp"},
    {R(micro_batch, "micro-batch", INT, "N"), RANGE(0, MOST),
     .is.help = "points that pass through a layer before the next; default: planned"},
    {R(plan_file, "plan", TEXT, "FILE"), .is.help = "run exactly this plan (plan --json prints one), or say why it cannot run"},

    {R(out, "out", TEXT, "DIR"), .is.group = "Output",
     .is.help = "network, metrics.jsonl, checkpoints, report.html and summary.json; default: nothing is kept"},
    {R(eval_every, "eval-every", INT, "N"), .is.initial = "100", RANGE(0, MOST),
     .is.help = "steps between estimates of the energy and, if the solution is known, of errors"},
    {R(eval_n, "eval-n", INT, "N"), .is.initial = "4096", RANGE(1, MOST), .is.help = "Sobol points for these estimates"},
    {R(energy_sets, "energy-sets", INT, "R"), .is.initial = "8", RANGE(0, 1000),
     .is.help = "sets of --eval-n points that give the energy and its standard error; 0: none"},
    {R(save_every, "save-every", INT, "N"), .is.initial = "0", RANGE(0, MOST), .is.help = "steps between checkpoints; 0: only at the end"},
    {R(keep, "keep", INT32, "N"), .is.initial = "2", RANGE(0, 1e9), .is.help = "keep the newest N checkpoints; 0: all"},
    {R(resume, "resume", FLAG, NULL), .is.help = "continue from the newest checkpoint in --out"},
};
const option_table ritz_table = {rows, sizeof rows / sizeof *rows, sizeof (pt_ritz_options)};
