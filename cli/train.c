#include "args.h"
#include "commands.h"
#include "exit.h"
#include "interrupt.h"
#include "progress.h"
#include "ranks.h"
#include "timings.h"

#include "base/units.h"

#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_caught(void *arg)
{
    (void)arg;
    return interrupt_signal();
}

typedef struct session {
    pt_options *options;
    pt_train_options *o; /* of them */
    const char *config;
    bool help_config, quiet, json;
    bool names_out; /* `out` was not given */
    int rank; /* -1: the process is alone */
    progress bar;
    processor_use used; /* in steps */
    pt_step first;      /* of this process */
} session;

/* ---- options ---- */

static const char usage[] = "usage: protrain train --model DIR --data PATH [options]\n\n"
                            "Trains or fine-tunes a Hugging Face model. Before the first step it plans where everything is kept and\n"
                            "whether it fits. The plan never changes the result.";

static int parse(session *s, int argc, char **argv, pt_error *e)
{
    const arg own[] = {
        ARG(TEXT, "config", &s->config, "FILE", "Options",
            "take options from this file, in YAML or JSON, such as run.yaml of another\nrun; those of the command line come first"),
        ARG(FLAG, "help-config", &s->help_config, NULL, "Options", "print such a file, with all options as comments"),
        ARG(FLAG, "quiet", &s->quiet, NULL, "Output", "no progress bar"),
        ARG(FLAG, "json", &s->json, NULL, "Output", "print one JSON object per step on stdout"),
    };
    const int failed = args_parse(COMMAND_LINE("train", usage, own), &s->options, e);
    s->o = pt_options_train(s->options);
    if (failed || !s->help_config)
        return failed;
    args_print_config(s->options);
    return 1;
}

static bool has(const char *folder, const char *name)
{
    char path[4096 + 32];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return !access(path, F_OK);
}

static int complete(session *s, pt_error *e)
{
    pt_train_options *o = s->o;
    o->notice = progress_notice;
    o->progress = progress_stage;
    o->stop = is_caught;
    o->arg = &s->bar;
    const int failed = s->config ? pt_options_read(s->options, s->config, e) : 0;
    s->names_out = !o->out && !o->resume;
    return failed ? failed : pt_options_complete(s->options, e);
}

/* ---- output ---- */

static void print_saving(const pt_train_options *o, const char *best_metric)
{
    if (o->keep_best)
        fprintf(stderr, "saves    the checkpoint with the best %s\n", best_metric);
    if (!o->save_every)
        return;
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

/* At most so many letters a line, cut between the options. */
static void print_settings(const char *text)
{
    enum { MOST = 110 };
    fputs("settings ", stderr);
    while (strlen(text) > MOST) {
        size_t n = MOST;
        while (n && text[n - 1] != ',')
            n--;
        n = n ? n : strlen(text);
        fprintf(stderr, "%.*s\n%9s", (int)n, text, "");
        text += n + strspn(text + n, " ");
    }
    fprintf(stderr, "%s\n", text);
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
    if (rest && s->o->drop_last)
        fprintf(stderr, "; each epoch leaves out %lld, which do not fill a batch", rest);
    else if (rest)
        fprintf(stderr, "; the last step of an epoch has %lld", rest);
    fprintf(stderr, "\nfiles    %s\n", m.files);
    if (m.eval_files[0])
        fprintf(stderr, "eval     %s\n", m.eval_files);
    print_settings(m.settings);
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
    if (s->o->ranks > 1)
        snprintf(ranks, sizeof ranks, " on %d ranks", s->o->ranks);
    if (m.first_step < m.steps)
        fprintf(stderr, "run      steps %lld to %lld of %lld sequence%s%s, into %s\n", (long long)m.first_step + 1, (long long)m.steps,
                (long long)m.batch_size, plural((uint64_t)m.batch_size), ranks, s->o->out);
    else
        fprintf(stderr, "run      step %lld of %lld is done: writing the model into %s; give more --steps to train on\n",
                (long long)m.steps, (long long)m.steps, s->o->out);
    if (m.first_step < m.steps)
        print_saving(s->o, m.best_metric);
}

/* The first examples. What is learned has a colour, or stands between marks. */
static void print_preview(const session *s, const pt_trainer *t)
{
    const bool terminal = isatty(STDERR_FILENO);
    const char *text = terminal || s->o->preview > 0 ? pt_trainer_preview(t) : NULL;
    if (!text || !*text)
        return;
    fprintf(stderr, "learns   what is %s:\n         ", terminal ? "\033[32mgreen\033[0m" : "between \u00bb and \u00ab");
    for (; *text; text++)
        if (*text == PT_LEARNED_BEGINS)
            fputs(terminal ? "\033[32m" : "\u00bb", stderr);
        else if (*text == PT_LEARNED_ENDS)
            fputs(terminal ? "\033[0m" : "\u00ab", stderr);
        else if (*text == PT_EXAMPLE_ENDS)
            fputs(text[1] ? "         --------\n         " : "", stderr);
        else if (*text == '\n' && text[1] && text[1] != PT_EXAMPLE_ENDS)
            fputs("\n         ", stderr);
        else
            fputc(*text, stderr);
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
        json_object_set_new(line, "kl", json_real(p->kl)); /* what is nan is left out */
    }
    json_object_set_new(line, "accuracy", json_real(p->accuracy)); /* what is nan is left out */
    if (!isnan(p->expert_load_max)) {
        json_object_set_new(line, "expert_load_max", json_real(p->expert_load_max));
        json_object_set_new(line, "experts_idle", json_real(p->experts_idle));
        json_object_set_new(line, "aux_loss", json_real(p->aux_loss)); /* what is nan is left out */
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
    if (p->evaluated)
        json_object_set_new(line, "eval_accuracy", json_real(p->eval_accuracy));
    if (p->evaluated && p->pairs) {
        json_object_set_new(line, "eval_reward_chosen", json_real(p->eval_reward_chosen));
        json_object_set_new(line, "eval_reward_rejected", json_real(p->eval_reward_rejected));
        json_object_set_new(line, "eval_reward_margin", json_real(p->eval_reward_margin));
        json_object_set_new(line, "eval_reward_accuracy", json_real(p->eval_reward_accuracy));
        json_object_set_new(line, "eval_kl", json_real(p->eval_kl));
    }
    json_dumpf(line, stdout, JSON_COMPACT);
    json_decref(line);
    puts("");
    fflush(stdout);
}

/* ", margin 0.123, chosen 75%"; with labels ", margin 0.123, kl 0.045": a step may lack replies of one kind. */
static const char *rewards_text(double margin, double accuracy, double kl, char out[80])
{
    const int n = isnan(margin) ? 0 : snprintf(out, 80, ", margin %.3f", margin);
    if (isnan(kl))
        snprintf(out + n, 80 - (size_t)n, ", chosen %.0f%%", 100 * accuracy);
    else
        snprintf(out + n, 80 - (size_t)n, ", kl %.3f", kl);
    return out;
}

/* Of pairs and of classes; "": of tokens. */
static const char *result_text(const pt_step *p, bool evaluation, char out[80])
{
    const double accuracy = evaluation ? p->eval_accuracy : p->accuracy;
    out[0] = 0;
    if (p->pairs)
        return evaluation ? rewards_text(p->eval_reward_margin, p->eval_reward_accuracy, p->eval_kl, out)
                          : rewards_text(p->reward_margin, p->reward_accuracy, p->kl, out);
    if (!isnan(accuracy))
        snprintf(out, 80, ", accuracy %.0f%%", 100 * accuracy);
    return out;
}

static void print_evaluation(const pt_step *p)
{
    char result[80];
    fprintf(stderr, "step %lld: evaluation loss %.4f%s\n", (long long)p->step, p->eval_loss, result_text(p, true, result));
}

static void print_step(session *s, const pt_trainer *t, const pt_step *p)
{
    pt_summary m;
    char text[160], result[80];
    pt_trainer_summary(t, &m);
    if (s->json)
        print_step_json(p, &m);
    snprintf(text, sizeof text, "step %lld/%lld  loss %.4f%s  %.0f tok/s", (long long)p->step, (long long)m.steps, p->loss,
             result_text(p, false, result), p->tokens_per_s);
    if (p->evaluated) {
        progress_clear(&s->bar);
        print_evaluation(p);
    }
    progress_draw(&s->bar, "training", (uint64_t)p->step, (uint64_t)m.steps, text);
}

/* How well the run went: the last lines that it prints. */
static void print_losses(const session *s, const pt_summary *m, const pt_step *last)
{
    char result[80];
    if (last->step_s > 0) {
        fprintf(stderr, "loss %.4f%s after step %lld", last->loss, result_text(last, false, result), (long long)last->step);
        if (s->first.step != last->step)
            fprintf(stderr, " (%.4f after step %lld)", s->first.loss, (long long)s->first.step);
        fputc('\n', stderr);
    }
    if (m->best_step && s->o->keep_best > PT_KEEP_BEST_EVAL_LOSS)
        fprintf(stderr, "evaluation loss %.4f; best %s %.4f after step %lld\n", m->eval_loss, m->best_metric, m->best_value,
                (long long)m->best_step);
    else if (m->best_step)
        fprintf(stderr, "evaluation loss %.4f, lowest %.4f after step %lld\n", m->eval_loss, m->best_eval_loss, (long long)m->best_step);
}

static void print_times(const session *s, const pt_trainer *t, const pt_summary *m)
{
    char a[32], b[32];
    timings_print(t, m, &s->used);
    for (int i = 0; i < m->memory_n; i++)
        if (m->memory[i].predicted_bytes)
            fprintf(stderr, "%s memory: predicted %s, used %s\n", m->memory[i].tier, pt_size_text(a, m->memory[i].predicted_bytes),
                    pt_size_text(b, m->memory[i].peak_bytes));
    if (m->process_peak_bytes)
        fprintf(stderr, "process: %s at its peak, measuring and loading before the first step included\n",
                pt_size_text(a, m->process_peak_bytes));
}

static void print_report(const session *s, const pt_trainer *t, const pt_step *last)
{
    pt_summary m;
    pt_trainer_summary(t, &m);
    print_times(s, t, &m);
    print_losses(s, &m, last);
}

/* Where the model is and what to type next; without a tokenizer, no text can be generated. */
static void print_next(const session *s, const pt_trainer *t)
{
    pt_summary m;
    pt_trainer_summary(t, &m);
    const pt_train_options *o = s->o;
    const bool adapter = o->lora_rank || o->adapter;
    const char *model = adapter ? o->model : o->out;
    if (o->keep_best && m.best_step)
        fprintf(stderr, "the %s of step %lld, with the best %s (%.4f), is in %s; next:\n", adapter ? "adapter" : "trained model",
                (long long)m.model_step, m.best_metric, m.best_value, o->out);
    else
        fprintf(stderr, "the %s is in %s; next:\n", adapter ? "adapter" : "trained model", o->out);
    if (o->task == PT_TASK_REWARD || o->task == PT_TASK_CLASSIFY)
        fprintf(stderr, "  protrain eval --model '%s'%s%s%s --data FILE\n", model, adapter ? " --adapter '" : "", adapter ? o->out : "",
                adapter ? "'" : "");
    else if (has(model, "tokenizer.json"))
        fprintf(stderr, "  protrain generate --model '%s'%s%s%s --prompt 'TEXT'\n", model, adapter ? " --adapter '" : "",
                adapter ? o->out : "", adapter ? "'" : "");
    fprintf(stderr, "  protrain report '%s'\n", o->out);
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
    fprintf(stderr, "interrupted after step %lld: a checkpoint is written; protrain train --resume '%s' continues\n",
            (long long)(last->step ? last->step : m.first_step), s->o->out);
    return 128 + (interrupt_signal() ? interrupt_signal() : SIGTERM); /* another rank may have got the signal */
}

static int run(session *s, pt_trainer *t, pt_error *e)
{
    pt_step step = {0};
    int more = 1;
    const bool several = s->o->ranks > 1; /* several ranks stop together, when a step says so */
    const processor_use before = processor_use_now();
    while ((several || !interrupt_signal()) && (more = pt_trainer_step(t, &step, e)) > 0 && !step.stopped)
        if (step.step_s > 0) {
            s->first = s->first.step ? s->first : step;
            print_step(s, t, &step);
        }
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
    if (!is_complete(t)) {
        print_report(s, t, &step);
        print_next(s, t);
    }
    if (!s->json)
        printf("%s\n", s->o->out);
    return 0;
}

/* A check that would fail in every rank. */
static int check_launch(const pt_train_options *o, pt_error *e)
{
    const int64_t parts = o->ranks / o->batch_size;
    if (o->ranks > o->batch_size && (o->ranks % o->batch_size || parts & (parts - 1)))
        return pt_fail(e, PT_USAGE,
                       "--ranks %d is more than --batch-size %lld, and a sequence is shared by 2, 4, 8 ... ranks: give --ranks %lld or "
                       "--batch-size %d", o->ranks, (long long)o->batch_size, (long long)o->batch_size, o->ranks);
    return 0;
}

/* Starts the ranks of the run, each of which is this program again. */
static int start_ranks(session *s, int argc, char **argv)
{
    pt_error e = {0};
    if (check_launch(s->o, &e))
        return exit_with(&e);
    return ranks_run(s->o->ranks, argc, argv, s->names_out ? s->o->out : NULL);
}

static int open_and_run(session *s, pt_error *e)
{
    pt_trainer *t = NULL;
    if (s->rank >= 0)
        ranks_join_in(s->rank);
    progress_open(&s->bar, s->quiet || s->json);
    const int failed = pt_trainer_open(s->o, &t, e);
    progress_clear(&s->bar);
    interrupt_record(); /* before the first step there is nothing to save */
    if (failed)
        return ranks_exit_with(s->rank, e);
    if (!is_complete(t)) {
        print_preview(s, t);
        print_summary(s, t);
    }
    const int status = run(s, t, e);
    pt_trainer_close(t);
    return status;
}

int command_train(int argc, char **argv)
{
    session s = {.rank = -1};
    pt_error e = {0};
    int status = parse(&s, argc, argv, &e);
    if (!status)
        status = complete(&s, &e);
    if (!status)
        status = pt_ranks_find(s.o, &s.rank, &e);
    if (status)
        status = status < 0 ? ranks_exit_with(s.rank, &e) : 0;
    else if (s.o->ranks > 1 && s.rank < 0)
        status = start_ranks(&s, argc, argv);
    else
        status = open_and_run(&s, &e);
    pt_options_close(s.options);
    return status;
}
