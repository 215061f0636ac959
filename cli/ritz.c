#include "ritz.h"

#include "args.h"
#include "commands.h"
#include "exit.h"
#include "interrupt.h"
#include "ritz_write.h"

#include <stdio.h>
#include <string.h>

static const char usage[] =
    "usage: protrain ritz --problem NAME|FILE.json [options]\n"
    "       protrain ritz ... --compare mc,sobol --seeds 10 --out DIR\n"
    "       protrain ritz ... --gradient-variance [--compare mc,sobol]\n"
    "       protrain ritz --eval DIR --at points.csv\n"
    "       protrain ritz --eval DIR --grid 65 --write u.vtk\n"
    "       protrain ritz --eval DIR --write u.onnx\n"
    "       protrain plan --problem NAME|FILE.json [options]: what would be done, and how long a step would take\n\n"
    "Solves a partial differential equation by the Deep Ritz method: a network that minimises an energy, sampled\n"
    "with random or quasi-Monte Carlo points. Problems: poisson-cosine, schroedinger-cosine, schroedinger-jump,\n"
    "harmonic, or a file (docs/deep-ritz.md).";

static int parse(ritz_session *s, int argc, char **argv, pt_options **options, pt_error *e)
{
    static const char other[] = "Other modes";
    const arg own[] = {
        ARG(FLAG, "quiet", &s->quiet, NULL, "Output", "no progress bar"),
        ARG(FLAG, "json", &s->json, NULL, "Output", "print the result as one JSON object on stdout"),
        ARG(TEXT, "compare", &s->compare, "SETS", other,
            "run with each of these sets of points, such as mc,sobol,sobol:lms,lattice:tent"),
        ARG(TEXT, "sweep", &s->sweep, "LIST", other, "--compare for each of these: n=256,1024,4096 or width=16,32,64"),
        ARG_WHOLE("seeds", &s->seeds, 1, PT_RITZ_SEEDS, other,
                  "--compare: number of seeds, default 3; --gradient-variance: of point sets, default 50"),
        ARG(FLAG, "gradient-variance", &s->gradient_variance, NULL, other,
            "variance of the gradient for 32 to --n points, before, half-way and after training"),
        ARG(TEXT, "eval", &s->eval, "DIR", other, "evaluate the trained network of this folder at the points of --at"),
        ARG(TEXT, "at", &s->at, "CSV", other, "one point per line; - is stdin"),
        ARG_WHOLE("grid", &s->grid, 2, 1 << 20, other, "--eval: at N points along each axis, instead of --at"),
        ARG(TEXT, "write", &s->write, "FILE", other,
            "--eval: into this file: .csv, .npz or .vtk (of a grid); or the network itself: .onnx"),
        ARG_WHOLE("print-points", &s->print_points, 1, (double)(INT64_MAX / 2), other,
                  "print the points of step N, their faces and weights as CSV"),
    };
    return args_parse(COMMAND_LINE("ritz", usage, own), options, e);
}

static int check_modes(const ritz_session *s, pt_error *e)
{
    if (s->at && !s->eval)
        return pt_fail(e, PT_USAGE, "--at needs --eval DIR, the folder of a trained network");
    if ((s->grid || s->write) && !s->eval)
        return pt_fail(e, PT_USAGE, "--%s needs --eval DIR, the folder of a trained network", s->grid ? "grid" : "write");
    const bool network = s->write && ritz_ends_in(s->write, ".onnx");
    if (s->eval && network && (s->at || s->grid))
        return pt_fail(e, PT_USAGE, "--write %.300s: an ONNX file holds the network, not points: leave out --%s", s->write,
                       s->at ? "at" : "grid");
    if (s->eval && !network && !s->at == !s->grid)
        return pt_fail(e, PT_USAGE, "--eval needs points: give --at points.csv%s --grid N", s->at ? ", or instead" : " or");
    if (s->print_points && (s->eval || s->compare || s->gradient_variance))
        return pt_fail(e, PT_USAGE, "--print-points prints the points of a run: leave out %s", s->eval ? "--eval" : s->compare ? "--compare"
                                                                                             : "--gradient-variance");
    if (s->sweep && (!s->compare || s->gradient_variance))
        return pt_fail(e, PT_USAGE, "--sweep needs --compare%s", s->gradient_variance ? " without --gradient-variance" : "");
    if (s->seeds && !s->compare && !s->gradient_variance)
        return pt_fail(e, PT_USAGE, "--seeds needs --compare or --gradient-variance; a run has one seed, --seed");
    if (s->o.resume && s->gradient_variance)
        return pt_fail(e, PT_USAGE, "--gradient-variance always starts from the first step: leave out --resume");
    return 0;
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
    pt_options *options;
    bool stopped = false;
    int failed = parse(&s, argc, argv, &options, &e);
    if (!failed) {
        s.o = *pt_options_ritz(options);
        failed = check_modes(&s, &e);
    }
    if (failed) {
        pt_options_close(options);
        return failed < 0 ? exit_with(&e) : 0;
    }
    s.o.notice = progress_notice;
    s.o.arg = &s.bar;
    progress_open(&s.bar, s.quiet);
    interrupt_record();
    failed = plan ? ritz_plan(&s, &e)
           : s.print_points ? ritz_print_points(&s, &e)
           : s.eval ? ritz_evaluate_file(&s, &e)
           : s.gradient_variance ? ritz_variances(&s, &e)
           : s.sweep ? ritz_sweep(&s, &e)
           : s.compare ? ritz_compare(&s, &e)
           : ritz_train(&s, &stopped, &e);
    progress_clear(&s.bar);
    int status = failed < 0 ? exit_with(&e) : 0;
    if (failed >= 0 && interrupt_signal()) {
        fprintf(stderr, "protrain: interrupted; %s\n", kept_of(&s));
        status = 128 + interrupt_signal();
    }
    pt_options_close(options);
    return status;
}

int command_ritz(int argc, char **argv) { return run_command(argc, argv, false); }
int command_ritz_plan(int argc, char **argv) { return run_command(argc, argv, true); }
