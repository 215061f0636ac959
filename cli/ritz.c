#include "ritz.h"

#include "args.h"
#include "commands.h"
#include "exit.h"
#include "interrupt.h"

#include <stdio.h>
#include <string.h>

static const char usage[] =
    "usage: protrain ritz --problem NAME|FILE.json [options]\n"
    "       protrain ritz ... --compare mc,sobol --seeds 10 --out DIR\n"
    "       protrain ritz ... --gradient-variance [--compare mc,sobol]\n"
    "       protrain ritz --eval DIR --at points.csv\n"
    "       protrain plan --problem NAME|FILE.json [options]: what would be done, and how long a step would take\n\n"
    "Solves a partial differential equation by the Deep Ritz method: a network that minimises an energy, sampled\n"
    "with random or quasi-Monte Carlo points. Problems: poisson-cosine, schroedinger-cosine, schroedinger-jump,\n"
    "harmonic, or a file (docs/deep-ritz.md).";

#define POINTS_HELP "mc, sobol, halton or lattice; default sobol"

static int parse(ritz_session *s, int argc, char **argv, pt_error *e)
{
    pt_ritz_options *o = &s->o;
    const arg table[] = {
        {NULL, ARG_HEADING, NULL, NULL, "Problem", false},
        {"--problem", ARG_STRING, &o->problem, "NAME", "a built-in problem, or a problem file; default poisson-cosine", false},
        {"--dim", ARG_COUNT, &o->dim, "D", "dimension of a built-in problem; default 5, harmonic 10", false},
        {NULL, ARG_HEADING, NULL, NULL, "Points", false},
        {"--points", ARG_STRING, &s->points, "KIND", POINTS_HELP, false},
        {"--randomize", ARG_CHOICE, &s->randomize, "default|none|shift|lms|owen",
         "default owen; shift for a lattice; with --compare, of --points", false},
        {"--n", ARG_INT, &o->n, "N", "points per step; default 4096", false},
        {"--n-boundary", ARG_INT, &o->n_boundary, "N",
         "points per step on all faces together, if the problem\nsamples them; default about --n", false},
        {"--redraw-every", ARG_INT, &o->redraw_every, "K", "steps between new points; 0: always the same points; default 1", false},
        {NULL, ARG_HEADING, NULL, NULL, "Network", false},
        {"--width", ARG_INT, &o->width, "M", "width of the layers; default 64", false},
        {"--blocks", ARG_INT, &s->blocks, "B", "residual blocks of two layers each, or layers of a plain network; default 4", false},
        {"--network", ARG_CHOICE, &s->network, "residual|plain", "default residual", false},
        {"--no-input-layer", ARG_FLAG, &o->no_input_layer, NULL,
         "x padded with zeros is the first block's input; needs a width of at least the dimension", false},
        {"--activation", ARG_CHOICE, &s->activation, "tanh|tanh3|relu3|softplus|sin|silu", "tanh3, relu3: their cubes; default tanh",
         false},
        {NULL, ARG_HEADING, NULL, NULL, "Training", false},
        {"--steps", ARG_COUNT, &o->steps, "N", "number of steps; default 1000", false},
        {"--lr", ARG_DOUBLE, &o->lr, "X", "learning rate; default 1e-3", false},
        {"--lr-schedule", ARG_CHOICE, &s->lr_schedule, "constant|linear|cosine|halving",
         "learning rate after the warm-up; default cosine", false},
        {"--halve-every", ARG_INT, &o->halve_every, "N", "steps after which halving halves the rate; default 5000", false},
        {"--warmup-steps", ARG_INT, &o->warmup_steps, "N", "steps in which the learning rate rises from 0; default 0", false},
        {"--min-lr-ratio", ARG_DOUBLE, &o->min_lr_ratio, "X", "final learning rate as a fraction of --lr; default 0.01", false},
        {"--weight-decay", ARG_DOUBLE, &o->weight_decay, "X", "default 0", false},
        {"--beta1", ARG_DOUBLE, &o->beta1, "X", "decay of AdamW's first moment; default 0.9", false},
        {"--beta2", ARG_DOUBLE, &o->beta2, "X", "decay of AdamW's second moment; default 0.999", false},
        {"--dtype", ARG_CHOICE, &s->dtype, "fp32|fp64", "fp64 only on a CPU; default fp32", false},
        {"--seed", ARG_SEED, &o->seed, "N", "random seed of the points and the initial weights; default 0", false},
        {NULL, ARG_HEADING, NULL, NULL, "Hardware", false},
        {"--device", ARG_STRING, &o->device, "NAME", "auto (a usable GPU, else the CPU), cpu, cuda or cuda:N", false},
        {"--threads", ARG_INT32, &o->threads, "N", "default: all cores available to the process", false},
        {"--device-memory", ARG_SIZE, &o->device_memory, "SIZE",
         "memory budget, such as 8GiB; on a CPU, of RAM; what does not fit is recomputed", false},
        {"--host-memory", ARG_SIZE, &o->host_memory, "SIZE", "RAM budget beside a GPU; on a CPU, RAM as a second tier", false},
        {"--disk-memory", ARG_SIZE, &o->disk_memory, "SIZE", "budget of disk space; 0: never use the disk", false},
        {"--disk-path", ARG_STRING, &o->disk_path, "DIR", "folder of the disk tier; default: --out, else $TMPDIR or /var/tmp", false},
        {"--micro-batch", ARG_INT, &o->micro_batch, "N", "points that pass through a layer before the next; default: planned", false},
        {"--plan", ARG_STRING, &o->plan_file, "FILE", "run exactly this plan (plan --json prints one), or say why it cannot run", false},
        {NULL, ARG_HEADING, NULL, NULL, "Output", false},
        {"--out", ARG_STRING, &o->out, "DIR", "network, metrics.jsonl, checkpoints and report.html; default: nothing is kept", false},
        {"--eval-every", ARG_INT, &o->eval_every, "N", "steps between error estimates, if the solution is known; default 100", false},
        {"--eval-n", ARG_INT, &o->eval_n, "N", "Sobol points for error estimates; default 4096", false},
        {"--save-every", ARG_INT, &o->save_every, "N", "steps between checkpoints; default 0: only at the end", false},
        {"--keep", ARG_INT32, &o->keep, "N", "keep the newest N checkpoints; 0: all; default 2", false},
        {"--resume", ARG_FLAG, &o->resume, NULL, "continue from the newest checkpoint in --out", false},
        {"--quiet", ARG_FLAG, &s->quiet, NULL, "no progress bar", false},
        {"--json", ARG_FLAG, &s->json, NULL, "print the result as one JSON object on stdout", false},
        {NULL, ARG_HEADING, NULL, NULL, "Other modes", false},
        {"--compare", ARG_STRING, &s->compare, "KINDS", "run with each of these kinds of points, such as mc,sobol", false},
        {"--seeds", ARG_COUNT, &s->seeds, "K", "--compare: number of seeds, default 3; --gradient-variance: of point sets, default 50",
         false},
        {"--gradient-variance", ARG_FLAG, &s->gradient_variance, NULL,
         "variance of the gradient for 32 to --n points, before, half-way and after training", false},
        {"--eval", ARG_STRING, &s->eval, "DIR", "evaluate the trained network of this folder at the points of --at", false},
        {"--at", ARG_STRING, &s->at, "CSV", "one point per line; - is stdin", false},
    };
    return args_parse(argc, argv, usage, table, sizeof table / sizeof *table, e);
}

static int check_modes(const ritz_session *s, pt_error *e)
{
    if (s->at && !s->eval)
        return pt_fail(e, PT_USAGE, "--at needs --eval DIR, the folder of a trained network");
    if (s->eval && !s->at)
        return pt_fail(e, PT_USAGE, "--eval needs points: give --at points.csv");
    if (s->seeds > PT_RITZ_SEEDS)
        return pt_fail(e, PT_USAGE, "--seeds is %lld: 1 to %d", (long long)s->seeds, PT_RITZ_SEEDS);
    if (s->seeds && !s->compare && !s->gradient_variance)
        return pt_fail(e, PT_USAGE, "--seeds needs --compare or --gradient-variance; a run has one seed, --seed");
    if (s->o.resume && s->gradient_variance)
        return pt_fail(e, PT_USAGE, "--gradient-variance always starts from the first step: leave out --resume");
    if (s->blocks < 1 || s->blocks > 256)
        return pt_fail(e, PT_USAGE, "there are %lld blocks: 1 to 256 are possible", (long long)s->blocks);
    return 0;
}

static void take_choices(ritz_session *s)
{
    s->o.blocks = (int)s->blocks;
    s->o.randomize = (pt_ritz_randomize)s->randomize;
    s->o.activation = (pt_ritz_activation)s->activation;
    s->o.lr_schedule = (pt_ritz_lr_schedule)s->lr_schedule;
    s->o.dtype = (pt_ritz_dtype)s->dtype;
    s->o.plain = s->network == 1;
    s->o.notice = progress_notice;
    s->o.arg = &s->bar;
}

/* What an interrupted run leaves, for its message. */
static const char *kept_of(const ritz_session *s)
{
    if (!s->o.out)
        return "nothing is kept";
    return s->gradient_variance ? "report.html has what was measured" : "give --resume to continue";
}

static int run_command(int argc, char **argv, bool plan)
{
    static ritz_session s;
    pt_error e = {0};
    pt_ritz_points kinds[PT_RITZ_KINDS];
    bool stopped = false;
    pt_ritz_defaults(&s.o);
    s.lr_schedule = (int)s.o.lr_schedule;
    s.blocks = s.o.blocks;
    int failed = parse(&s, argc, argv, &e);
    if (failed == 1)
        return 0;
    if (!failed)
        failed = check_modes(&s, &e);
    if (!failed && (failed = ritz_kinds(s.points, "sobol", kinds, &e)) > 0)
        failed = failed > 1 ? pt_fail(&e, PT_USAGE, "--points takes one kind: give several to --compare") : 0;
    if (failed)
        return exit_with(&e);
    s.o.points = kinds[0];
    take_choices(&s);
    progress_open(&s.bar, s.quiet);
    interrupt_record();
    failed = plan ? ritz_plan(&s, &e)
           : s.eval ? ritz_evaluate_file(&s, &e)
           : s.gradient_variance ? ritz_variances(&s, &e)
           : s.compare ? ritz_compare(&s, &e)
           : ritz_train(&s, &stopped, &e);
    progress_clear(&s.bar);
    if (failed < 0)
        return exit_with(&e);
    if (!interrupt_signal())
        return 0;
    fprintf(stderr, "protrain: interrupted; %s\n", kept_of(&s));
    return 128 + interrupt_signal();
}

int command_ritz(int argc, char **argv) { return run_command(argc, argv, false); }
int command_ritz_plan(int argc, char **argv) { return run_command(argc, argv, true); }
