#include "args.h"
#include "commands.h"
#include "data_args.h"
#include "exit.h"
#include "interrupt.h"
#include "progress.h"
#include "ranks.h"
#include "timings.h"

#include "base/units.h"

#include <jansson.h>
#include <libgen.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static bool is_caught(void *arg)
{
    (void)arg;
    return interrupt_signal();
}

typedef struct session {
    pt_train_options o;
    arg_strings data, eval_data, freeze, train_only, sample;
    data_args what;
    int loss_per, task, dpo_loss;
    int precision, base, optimizer, lr_adjust, lr_schedule, save_type, init;
    bool no_shuffle, quiet, json;
    const char *resume;
    char out[4096];
    int rank; /* -1: the process is alone */
    progress bar;
    processor_use used; /* in steps */
} session;

/* ---- options ---- */

enum { NOT_GIVEN = -1 };

static const char usage[] = "usage: protrain train --model DIR --data PATH [options]\n\n"
                            "Trains or fine-tunes a Hugging Face model. Before the first step it plans where everything is kept and\n"
                            "whether it fits. The plan never changes the result.";

static int parse(session *s, int argc, char **argv, pt_error *e)
{
    pt_train_options *o = &s->o;
    const arg table[] = {
        {NULL, ARG_HEADING, NULL, NULL, "Model and data", false},
        {"--model", ARG_STRING, &o->model, "DIR",
         "Hugging Face folder: config.json, *.safetensors, tokenizer.json;\na folder without weights is trained from random weights",
         false},
        {"--init", ARG_CHOICE, &s->init, "stored|random", "random: start from random weights even if the folder has weights", false},
        {"--data", ARG_STRINGS, &s->data, "PATH", DATA_PATHS, false},
        DATA_ARGS(&s->what, o),
        {"--task", ARG_CHOICE, &s->task, "sft|dpo", "dpo: train on preferences: records with a chosen and a rejected reply", false},
        {"--beta", ARG_DOUBLE, &o->beta, "X", "dpo: how strongly to stay near the starting model; default 0.1", false},
        {"--dpo-loss", ARG_CHOICE, &s->dpo_loss, "sigmoid|ipo", "dpo: form of the loss; default sigmoid", false},
        {"--loss-per", ARG_CHOICE, &s->loss_per, "token|example",
         "give each token, or each example, the same weight in the loss; default token", false},
        {"--eval-data", ARG_STRINGS, &s->eval_data, "PATH", "data to evaluate on; repeatable", false},
        {"--eval-split", ARG_DOUBLE, &o->eval_split, "X", "hold out this share of the data, such as 0.05, and evaluate on it", false},
        {"--eval-every", ARG_INT, &o->eval_every, "N", "evaluate every N steps and at the end; default: only at the end", false},
        {"--out", ARG_STRING, &o->out, "DIR", "folder for the results; default runs/MODEL-N", false},
        {NULL, ARG_HEADING, NULL, NULL, "Length and size", false},
        {"--steps", ARG_INT, &o->steps, "N", "number of steps; default: as many as --epochs take", false},
        {"--epochs", ARG_DOUBLE, &o->epochs, "X", "passes over the data, if --steps is not given; default 1", false},
        {"--seq-len", ARG_COUNT, &o->seq_len, "N", "tokens per sequence; default: the model's maximum, at most 1024", false},
        {"--batch-size", ARG_INT, &o->batch_size, "N", "sequences per step; default 8", false},
        {"--drop-last", ARG_FLAG, &o->drop_last, NULL, "leave out the windows of an epoch that do not fill its last batch", false},
        {"--micro-batch", ARG_INT, &o->micro_batch, "N", "sequences computed at a time; never changes the result; default: planned", false},
        {"--lanes", ARG_INT32, &o->lanes, "L",
         "sum a step's gradients in L partial sums, which up to L ranks can\nshare; default: as many as --ranks", false},
        {"--no-shuffle", ARG_FLAG, &s->no_shuffle, NULL, "take the data in file order", false},
        {"--document-mask", ARG_FLAG, &o->document_mask, NULL, "attend only within a document; positions restart at each document", false},
        {"--dtype", ARG_CHOICE, &s->precision, "bf16|fp32", "bf16: bf16 compute, fp32 master weights; default bf16", false},
        TRAINED_ARGS(s),
        ADAPTER_ARGS(o),
        {"--base", ARG_CHOICE, &s->base, BASE_CHOICE, BASE_HELP, false},
        {NULL, ARG_HEADING, NULL, NULL, "Optimizer", false},
        {"--optimizer", ARG_CHOICE, &s->optimizer, OPTIMIZER_CHOICE, OPTIMIZER_HELP, false},
        {"--lr", ARG_DOUBLE, &o->lr, "X",
         "learning rate; default 5e-5, adapters 2e-4, dpo 1e-6, random weights 3e-4;\nwith muon 1e-4, dpo 1e-6, random weights 1e-3",
         false},
        {"--lr-schedule", ARG_CHOICE, &s->lr_schedule, "constant|linear|cosine", "learning rate after the warm-up; default linear", false},
        {"--warmup-steps", ARG_INT, &o->warmup_steps, "N", "steps in which the learning rate rises from 0; default 0", false},
        {"--min-lr-ratio", ARG_DOUBLE, &o->min_lr_ratio, "X", "final learning rate as a fraction of --lr; default 0", false},
        {"--weight-decay", ARG_DOUBLE, &o->weight_decay, "X", "not applied to biases and norms; default 0", false},
        {"--beta1", ARG_DOUBLE, &o->beta1, "X", "decay of AdamW's first moment; default 0.9", false},
        {"--beta2", ARG_DOUBLE, &o->beta2, "X", "decay of AdamW's second moment; default 0.999", false},
        {"--eps", ARG_DOUBLE, &o->eps, "X", "AdamW's epsilon; default 1e-8", false},
        {"--momentum", ARG_ABOVE_0, &o->momentum, "X", "muon: momentum of the matrices; default 0.95", false},
        {"--lr-adjust", ARG_CHOICE, &s->lr_adjust, "auto|original|match_rms_adamw|spectral_unclamped",
         "muon: scale a matrix's learning rate by sqrt(max(1, rows / cols));\nby 0.2 sqrt(max(rows, cols)), which makes steps as large as "
         "AdamW's;\nor by sqrt(rows / cols); auto (default): match_rms_adamw with the default\n--lr, original with a given one, as in "
         "torch.optim.Muon",
         false},
        {"--max-grad-norm", ARG_DOUBLE, &o->max_grad_norm, "X", "clip gradients to this global norm; 0: no clipping; default 1", false},
        {"--seed", ARG_SEED, &o->seed, "N", "random seed of the initial weights and of shuffling; default 0", false},
        {NULL, ARG_HEADING, NULL, NULL, "Hardware (detected if not given)", false},
        {"--device", ARG_STRING, &o->device, "NAME", "auto (usable GPUs, else the CPU), cpu, cuda, cuda:N or cuda:N,M,...", false},
        {"--ranks", ARG_INT32, &o->ranks, "N",
         "share each step between N processes of this machine (torchrun, mpirun and\n"
         "srun start them on several); with the same --lanes, their number never\n"
         "changes the result; default: one, or one for each usable GPU",
         false},
        {"--threads", ARG_INT32, &o->threads, "N", "default: all cores available to the process", false},
        {"--device-memory", ARG_SIZE, &o->device_memory, "SIZE", "memory budget, such as 8GiB; on a CPU, of RAM", false},
        {"--host-memory", ARG_SIZE, &o->host_memory, "SIZE", "RAM budget beside a GPU; on a CPU, RAM as a second tier", false},
        {"--disk-memory", ARG_SIZE, &o->disk_memory, "SIZE", "budget of disk space; 0: never use the disk", false},
        {"--disk-path", ARG_STRING, &o->disk_path, "DIR", "folder of the disk tier; default: one in --out", false},
        {"--machine", ARG_STRING, &o->machine_file, "FILE", "take memory sizes and speeds from this machine file", false},
        {"--profile", ARG_STRING, &o->profile_file, "FILE", "use this profile.json of an earlier run instead of measuring", false},
        {"--plan", ARG_STRING, &o->plan_file, "FILE", "run exactly this plan, or say why it cannot run", false},
        {NULL, ARG_HEADING, NULL, NULL, "Saving", false},
        {"--save-every", ARG_INT, &o->save_every, "N", "write a checkpoint every N steps", false},
        {"--keep", ARG_INT32, &o->keep, "N", "keep the newest N checkpoints; 0: all; default 2", false},
        {"--resume", ARG_STRING, &s->resume, "DIR", "continue from a checkpoint; default: the newest one in --out", true},
        {"--save-dtype", ARG_CHOICE, &s->save_type, "stored|fp32|bf16|fp16", "dtype of the exported weights; default: as loaded", false},
        {NULL, ARG_HEADING, NULL, NULL, "Output", false},
        {"--sample", ARG_STRINGS, &s->sample, "PROMPT", "let the model continue this text before and after training; repeatable", false},
        {"--tensorboard", ARG_FLAG, &o->tensorboard, NULL, "also write an event file, which tensorboard --logdir OUT shows", false},
        {"--trace", ARG_FLAG, &o->trace, NULL, "write the tasks of the last step to trace.json, for Perfetto", false},
        {"--quiet", ARG_FLAG, &s->quiet, NULL, "no progress bar", false},
        {"--json", ARG_FLAG, &s->json, NULL, "print one JSON object per step on stdout", false},
    };
    return args_parse(argc, argv, usage, table, sizeof table / sizeof *table, e);
}

/* Sets out to runs/MODEL-N with the first free N. */
static void default_out(session *s)
{
    char name[256];
    snprintf(name, sizeof name, "%s", s->o.model ? s->o.model : "model");
    for (size_t n = strlen(name); n > 1 && name[n - 1] == '/'; n--)
        name[n - 1] = 0;
    const char *slash = strrchr(name, '/'), *base = slash && slash[1] ? slash + 1 : name;
    struct stat st;
    for (int i = 1; i < 100000; i++) {
        snprintf(s->out, sizeof s->out, "runs/%s-%d", base[0] && strcmp(base, ".") ? base : "model", i);
        if (stat(s->out, &st) < 0)
            break;
    }
    s->o.out = s->out;
}

/* A run that resumes from a checkpoint writes to the checkpoint's parent folder: by the path as given if that is a run's folder, because
 * checkpoint-N may be a link to a larger disk; otherwise by the real path. */
static void folder_above(session *s)
{
    char copy[sizeof s->out], metrics[sizeof s->out + 16], real[PATH_MAX];
    snprintf(copy, sizeof copy, "%s", s->o.resume_from);
    bool named = strncmp(basename(copy), "checkpoint-", 11) == 0;
    snprintf(copy, sizeof copy, "%s", s->o.resume_from);
    snprintf(s->out, sizeof s->out, "%s", dirname(copy));
    snprintf(metrics, sizeof metrics, "%s/metrics.jsonl", s->out);
    if (!(named && !access(metrics, F_OK)) && realpath(s->o.resume_from, real))
        snprintf(s->out, sizeof s->out, "%s", dirname(real));
    s->o.out = s->out;
}

/* Checks the length of the run, and sets defaults. */
static int check_length(session *s, pt_error *e)
{
    pt_train_options *o = &s->o;
    if (o->lr == 0)
        return pt_fail(e, PT_USAGE, "--lr 0 would learn nothing: give more than 0, or leave the option out");
    if (o->steps == 0)
        return pt_fail(e, PT_USAGE, "--steps 0 would train nothing: give more than 0, or leave the option out");
    if (o->steps != NOT_GIVEN && !isnan(o->epochs))
        return pt_fail(e, PT_USAGE, "--steps and --epochs both say how long to train: give one of them");
    o->lr = isnan(o->lr) ? 0 : o->lr;
    o->steps = o->steps == NOT_GIVEN ? 0 : o->steps;
    o->epochs = isnan(o->epochs) ? 1 : o->epochs;
    return 0;
}

static int complete(session *s, pt_error *e)
{
    static const pt_precision precisions[] = {PT_PRECISION_BF16, PT_PRECISION_FP32};
    s->o.data = s->data.v;
    s->o.data_n = s->data.n;
    DATA_ARGS_TAKE(&s->what, &s->o);
    s->o.loss_per = (pt_loss_per)s->loss_per;
    s->o.task = (pt_task)s->task;
    s->o.dpo_loss = (pt_dpo_loss)s->dpo_loss;
    s->o.eval_data = s->eval_data.v;
    s->o.eval_data_n = s->eval_data.n;
    s->o.sample = s->sample.v;
    s->o.sample_n = s->sample.n;
    s->o.freeze = s->freeze.v;
    s->o.freeze_n = s->freeze.n;
    s->o.train_only = s->train_only.v;
    s->o.train_only_n = s->train_only.n;
    s->o.precision = precisions[s->precision];
    s->o.base = (pt_base)s->base;
    s->o.optimizer = (pt_optimizer)s->optimizer;
    s->o.lr_adjust = (pt_lr_adjust)s->lr_adjust;
    s->o.lr_schedule = (pt_lr_schedule)s->lr_schedule;
    s->o.save_type = (pt_save_type)s->save_type;
    s->o.init_random = s->init == 1;
    s->o.shuffle = !s->no_shuffle;
    s->o.resume = s->resume != NULL;
    s->o.resume_from = s->resume && s->resume[0] ? s->resume : NULL;
    s->o.notice = progress_notice;
    s->o.progress = progress_stage;
    s->o.stop = is_caught;
    s->o.arg = &s->bar;
    if (s->o.resume && !s->o.out && !s->o.resume_from)
        return pt_fail(e, PT_USAGE, "--resume needs --out DIR, the folder of the run to continue");
    if (!s->o.out && s->o.resume_from)
        folder_above(s);
    else if (!s->o.out)
        default_out(s);
    return check_length(s, e);
}

/* ---- output ---- */

static void print_saving(const pt_train_options *o)
{
    if (o->save_every == 1)
        fputs("saves    a checkpoint every step", stderr);
    else
        fprintf(stderr, "saves    a checkpoint every %lld steps", (long long)o->save_every);
    if (o->keep)
        fprintf(stderr, ", and keeps the newest %d (--keep 0 keeps all)\n", o->keep);
    else
        fputs(", and keeps all\n", stderr);
}

/* Is the run one that had ended before? A notice has said so. */
static bool is_complete(const pt_trainer *t)
{
    pt_summary m;
    pt_trainer_summary(t, &m);
    return m.complete;
}

static void print_summary(const session *s, const pt_trainer *t)
{
    pt_summary m;
    char count[32], tokens[32], a[32], b[32];
    pt_trainer_summary(t, &m);
    fprintf(stderr, "model    %s, %s parameters, %lld layer%s\n", m.model_type, pt_count_text(count, (uint64_t)m.parameters),
            (long long)m.layers, plural((uint64_t)m.layers));
    fprintf(stderr, "trains   %s\n", m.trains);
    fprintf(stderr, "data     %s tokens, %lld window%s of %lld", pt_count_text(tokens, (uint64_t)m.tokens), (long long)m.windows,
            plural((uint64_t)m.windows), (long long)m.seq_len);
    const long long rest = (long long)(m.windows % m.batch_size);
    if (rest && s->o.drop_last)
        fprintf(stderr, "; each epoch leaves out %lld, which do not fill a batch", rest);
    else if (rest)
        fprintf(stderr, "; the last step of an epoch has %lld", rest);
    fprintf(stderr, "\nfiles    %s\n", m.files);
    if (m.eval_files[0])
        fprintf(stderr, "eval     %s\n", m.eval_files);
    fprintf(stderr, "machine  %s, %d thread%s (%s)\n", m.machine, m.threads, plural((uint64_t)m.threads), m.costs);
    if (m.room[0])
        fprintf(stderr, "free     %s\n", m.room);
    fprintf(stderr, "plan     %s\n", m.plan);
    for (int i = 0; i < m.memory_n; i++)
        if (m.memory[i].predicted_bytes)
            fprintf(stderr, "         %s: %s of a budget of %s\n", m.memory[i].tier, pt_size_text(a, m.memory[i].predicted_bytes),
                    pt_size_text(b, m.memory[i].budget_bytes));
    fprintf(stderr, "step     %s predicted%s: %s\n", pt_seconds_text(a, m.predicted_step_s), m.sure, m.limits);
    char ranks[32] = "";
    if (s->o.ranks > 1)
        snprintf(ranks, sizeof ranks, " on %d ranks", s->o.ranks);
    if (m.first_step < m.steps)
        fprintf(stderr, "run      steps %lld to %lld of %lld sequence%s%s, into %s\n", (long long)m.first_step + 1, (long long)m.steps,
                (long long)m.batch_size, plural((uint64_t)m.batch_size), ranks, s->o.out);
    if (m.first_step < m.steps && s->o.save_every)
        print_saving(&s->o);
    else
        fprintf(stderr, "run      step %lld of %lld is done: writing the model into %s; give more --steps to train on\n",
                (long long)m.steps, (long long)m.steps, s->o.out);
}

/* The same object as the line in metrics.jsonl. */
static void print_step_json(const pt_step *p, const pt_summary *m)
{
    char key[64];
    json_t *line = json_pack("{s:I, s:f, s:f, s:f, s:I, s:I, s:f, s:f, s:f}", "step", (json_int_t)p->step, "loss", p->loss, "grad_norm",
                             p->grad_norm,
                             "lr", p->lr, "tokens", (json_int_t)p->tokens, "learned_tokens", (json_int_t)p->learned_tokens, "step_s",
                             p->step_s, "predicted_step_s", p->predicted_step_s, "tokens_per_s", p->tokens_per_s);
    if (p->pairs) {
        json_object_set_new(line, "reward_chosen", json_real(p->reward_chosen));
        json_object_set_new(line, "reward_rejected", json_real(p->reward_rejected));
        json_object_set_new(line, "reward_margin", json_real(p->reward_margin));
        json_object_set_new(line, "reward_accuracy", json_real(p->reward_accuracy));
    }
    for (int i = 0; i < m->memory_n; i++) {
        snprintf(key, sizeof key, "%s_peak_bytes", m->memory[i].tier);
        json_object_set_new(line, key, json_integer((json_int_t)m->memory[i].peak_bytes));
        snprintf(key, sizeof key, "%s_predicted_bytes", m->memory[i].tier);
        json_object_set_new(line, key, json_integer((json_int_t)m->memory[i].predicted_bytes));
        snprintf(key, sizeof key, "%s_budget_bytes", m->memory[i].tier);
        json_object_set_new(line, key, json_integer((json_int_t)m->memory[i].budget_bytes));
    }
    if (p->evaluated)
        json_object_set_new(line, "eval_loss", isfinite(p->eval_loss) ? json_real(p->eval_loss) : json_null());
    if (p->evaluated && p->pairs) {
        json_object_set_new(line, "eval_reward_chosen", json_real(p->eval_reward_chosen));
        json_object_set_new(line, "eval_reward_rejected", json_real(p->eval_reward_rejected));
        json_object_set_new(line, "eval_reward_margin", json_real(p->eval_reward_margin));
        json_object_set_new(line, "eval_reward_accuracy", json_real(p->eval_reward_accuracy));
    }
    json_dumpf(line, stdout, JSON_COMPACT);
    json_decref(line);
    puts("");
    fflush(stdout);
}

static void print_evaluation(const pt_step *p)
{
    fprintf(stderr, "step %lld: evaluation loss %.4f", (long long)p->step, p->eval_loss);
    if (p->pairs)
        fprintf(stderr, ", margin %.3f, chosen %.0f%%", p->eval_reward_margin, 100 * p->eval_reward_accuracy);
    fputc('\n', stderr);
}

static void print_step(session *s, const pt_trainer *t, const pt_step *p)
{
    pt_summary m;
    char text[160];
    pt_trainer_summary(t, &m);
    if (s->json)
        print_step_json(p, &m);
    snprintf(text, sizeof text, "step %lld/%lld  loss %.4f  %.0f tok/s", (long long)p->step, (long long)m.steps, p->loss, p->tokens_per_s);
    if (p->pairs)
        snprintf(text, sizeof text, "step %lld/%lld  loss %.4f  margin %.3f  chosen %.0f%%  %.0f tok/s", (long long)p->step,
                 (long long)m.steps, p->loss, p->reward_margin, 100 * p->reward_accuracy, p->tokens_per_s);
    if (p->evaluated) {
        progress_clear(&s->bar);
        print_evaluation(p);
    }
    progress_draw(&s->bar, "training", (uint64_t)p->step, (uint64_t)m.steps, text);
}

static void print_report(const session *s, const pt_trainer *t, const pt_step *last)
{
    pt_summary m;
    char a[32], b[32];
    pt_trainer_summary(t, &m);
    if (last->step_s > 0 && last->pairs)
        fprintf(stderr, "loss %.4f, margin %.3f, chosen %.0f%% after step %lld\n", last->loss, last->reward_margin,
                100 * last->reward_accuracy, (long long)last->step);
    else if (last->step_s > 0)
        fprintf(stderr, "loss %.4f after step %lld\n", last->loss, (long long)last->step);
    timings_print(t, &m, &s->used);
    for (int i = 0; i < m.memory_n; i++)
        if (m.memory[i].predicted_bytes)
            fprintf(stderr, "%s memory: predicted %s, used %s\n", m.memory[i].tier, pt_size_text(a, m.memory[i].predicted_bytes),
                pt_size_text(b, m.memory[i].peak_bytes));
    if (m.process_peak_bytes)
        fprintf(stderr, "process: %s at its peak, measuring and loading before the first step included\n",
                pt_size_text(a, m.process_peak_bytes));
}

/* ---- the run ---- */

static int interrupted(session *s, pt_trainer *t, const pt_step *last, pt_error *e)
{
    progress_clear(&s->bar);
    int failed = pt_trainer_save(t, e);
    if (failed)
        return ranks_exit_with(s->rank, e);
    progress_clear(&s->bar);
    print_report(s, t, last);
    pt_summary m;
    pt_trainer_summary(t, &m);
    fprintf(stderr, "interrupted after step %lld: a checkpoint is written; run the same command with --out '%s' --resume to continue\n",
            (long long)(last->step ? last->step : m.first_step), s->o.out);
    return 128 + (interrupt_signal() ? interrupt_signal() : SIGTERM); /* another rank may have got the signal */
}

static int run(session *s, pt_trainer *t, pt_error *e)
{
    pt_step step = {0};
    int more = 1;
    const bool several = s->o.ranks > 1; /* several ranks stop together, when a step says so */
    const processor_use before = processor_use_now();
    while ((several || !interrupt_signal()) && (more = pt_trainer_step(t, &step, e)) > 0 && !step.stopped)
        if (step.step_s > 0)
            print_step(s, t, &step);
    const processor_use after = processor_use_now();
    if (!several)
        s->used = (processor_use){after.work_ns - before.work_ns, after.waited_ns - before.waited_ns};
    progress_clear(&s->bar);
    if (more < 0)
        return ranks_exit_with(s->rank, e);
    if (more > 0)
        return interrupted(s, t, &step, e);
    int failed = pt_trainer_finish(t, e);
    progress_clear(&s->bar);
    if (failed)
        return ranks_exit_with(s->rank, e);
    if (!is_complete(t))
        print_report(s, t, &step);
    if (!s->json)
        printf("%s\n", s->o.out);
    return 0;
}

/* A check that would fail in every rank. */
static int check_launch(const pt_train_options *o, pt_error *e)
{
    if (o->ranks > o->batch_size)
        return pt_fail(e, PT_USAGE, "--ranks %d is more than --batch-size %lld: each rank needs at least one sequence", o->ranks,
                       (long long)o->batch_size);
    return 0;
}

int command_train(int argc, char **argv)
{
    session *s = calloc(1, sizeof *s);
    pt_error e = {0};
    pt_trainer *t = NULL;
    if (!s)
        return 1;
    pt_train_defaults(&s->o);
    s->o.lr = s->o.epochs = NAN; /* not given */
    s->o.steps = NOT_GIVEN;
    s->lr_schedule = PT_LR_LINEAR;
    int status = parse(s, argc, argv, &e);
    if (status == 1) {
        free(s);
        return 0;
    }
    int rank = -1;
    if (!status)
        status = complete(s, &e);
    if (!status)
        status = pt_ranks_find(&s->o, &rank, &e);
    if (!status && s->o.ranks > 1 && rank < 0) {
        status = check_launch(&s->o, &e)
                     ? exit_with(&e)
                     : ranks_run(s->o.ranks, argc, argv, s->o.out == s->out && !s->resume ? s->out : NULL);
        free(s);
        return status;
    }
    s->rank = rank;
    if (!status && rank >= 0)
        ranks_join_in(rank);
    progress_open(&s->bar, s->quiet || s->json);
    if (!status) {
        status = pt_trainer_open(&s->o, &t, &e);
        progress_clear(&s->bar);
        interrupt_record(); /* before the first step there is nothing to save */
    }
    if (status) {
        status = ranks_exit_with(rank, &e);
    } else {
        if (!is_complete(t))
            print_summary(s, t);
        status = run(s, t, &e);
    }
    pt_trainer_close(t);
    free(s);
    return status;
}
