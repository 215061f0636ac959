#include "train/card.h"

#include "base/units.h"
#include "report/metrics_file.h"
#include "task/task.h"
#include "text/buffer.h"
#include "train/options.h"
#include "train/settings.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char first_lines[] = "---\n# Written by protrain; without this line it is kept.\n";

typedef struct card {
    const trainer *t;
    text_buffer text;
    int failed;
    char base[512]; /* name of the base model; "": none */
} card;

static void add(card *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add(card *c, const char *fmt, ...)
{
    char line[8192];
    va_list ap;
    va_start(ap, fmt);
    const int n = vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    if (!c->failed)
        c->failed = text_buffer_append(&c->text, line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1, NULL);
}

/* The last part of a path. */
static const char *last_part(const char *path, char out[256])
{
    size_t end = strlen(path), start;
    while (end > 1 && path[end - 1] == '/')
        end--;
    for (start = end; start && path[start - 1] != '/'; start--) {}
    snprintf(out, 256, "%.*s", (int)(end - start), path + start);
    return out;
}

/* A folder of the hub's cache, .../models--OWNER--NAME/snapshots/COMMIT, has the hub's name of the model; any other its own. */
static void find_base(card *c)
{
    static const char mark[] = "/models--";
    char name[256];
    const char *path = c->t->job.model_dir, *cached = strstr(path, mark);
    if (c->t->job.random_init)
        return;
    if (!cached) {
        snprintf(c->base, sizeof c->base, "%s", last_part(path, name));
        return;
    }
    cached += strlen(mark);
    const char *parts = strstr(cached, "--");
    const int n = (int)strcspn(cached, "/");
    if (parts && parts < cached + n)
        snprintf(c->base, sizeof c->base, "%.*s/%.*s", (int)(parts - cached), cached, (int)(cached + n - parts - 2), parts + 2);
    else
        snprintf(c->base, sizeof c->base, "%.*s", n, cached);
}

/* Text in a cell of a table, or in quotes: without what would end it. */
static void add_plain(card *c, const char *text)
{
    for (; *text; text++)
        add(c, "%c", *text == '|' || *text == '"' || *text == '\\' || iscntrl((unsigned char)*text) ? ' ' : *text);
}

static void add_header(card *c)
{
    const bool adapter = c->t->job.model->adapters;
    add(c, "%slibrary_name: %s\n", first_lines, adapter ? "peft" : "transformers");
    if (c->base[0]) {
        add(c, "base_model: \"");
        add_plain(c, c->base);
        add(c, "\"\nbase_model_relation: %s\n", adapter ? "adapter" : "finetune");
    }
    add(c, "pipeline_tag: text-%s\ntags:\n- protrain\n- generated_from_trainer\n",
        c->t->job.model->config.labels ? "classification" : "generation");
    if (c->base[0] || c->t->job.o.task != PT_TASK_SFT)
        add(c, "- %s\n", task_of(&c->t->job.o)->name);
    if (adapter)
        add(c, "- lora\n");
    add(c, "---\n\n");
}

static int keep_line(void *arg, const metrics_line *line, pt_error *e)
{
    (void)e;
    *(metrics_line *)arg = *line;
    return 0;
}

static void add_losses(card *c)
{
    const counters *at = &c->t->at;
    char path[FILE_PATH_BYTES];
    uint64_t torn;
    metrics_line last = {0};
    if (!path_join(path, c->t->out.path, "metrics.jsonl", NULL) && !metrics_file_read(path, keep_line, &last, &torn, NULL) && last.step)
        add(c, "| training loss, step %lld | %.4f |\n", (long long)last.step, last.loss);
    if (!at->best_step)
        return;
    add(c, "| evaluation loss, the last | %.4f |\n", at->eval_loss);
    add(c, "| evaluation loss, the best (step %lld) | %.4f |\n", (long long)at->best_step, at->best_eval);
}

static void add_table(card *c)
{
    const trainer *trainer = c->t;
    char trains[MODEL_TRAINED_TEXT], settings[4096], name[256];
    const bool adapter = trainer->job.model->adapters;
    model_describe_trained(trainer->job.model, shape_optimizer(&trainer->job.shape)->name, trains);
    settings_describe(&trainer->job, settings, sizeof settings);
    add(c, "# ");
    add_plain(c, last_part(trainer->out.path, name));
    add(c, "\n\n");
    if (c->base[0]) {
        add(c, "%s of %s, trained with protrain %s.\n\n", adapter ? "An adapter" : "A fine-tuned model", c->base, pt_version());
    } else
        add(c, "A model trained from random weights with protrain %s.\n\n", pt_version());
    add(c, "| | |\n|---|---|\n| data | ");
    for (int i = 0; i < trainer->job.o.data_n; i++) { /* their names alone: the card is published */
        add_plain(c, i ? ", " : "");
        add_plain(c, last_part(trainer->job.o.data[i], name));
    }
    add(c, " |\n| steps | %lld of %lld sequences of %lld tokens; %lld tokens in all |\n", (long long)trainer->at.step,
        (long long)trainer->job.shape.batch, (long long)trainer->job.shape.seq_len, (long long)trainer->at.tokens);
    add(c, "| trained | ");
    add_plain(c, trains);
    add(c, " |\n| settings | ");
    add_plain(c, settings);
    add(c, " |\n");
    add_losses(c);
    add(c, "\nThe same run again: `protrain train --config run.yaml`.\n");
}

int card_write(const trainer *trainer, pt_error *e)
{
    card c = {.t = trainer};
    char path[FILE_PATH_BYTES];
    int failed = path_join(path, trainer->out.path, "README.md", e);
    if (failed || file_may_replace(path, "out", first_lines, "model card", NULL))
        return failed;
    find_base(&c);
    add_header(&c);
    add_table(&c);
    failed = c.failed ? pt_fail(e, PT_FAILED, "%.400s: out of memory", path) : file_write_atomic(path, c.text.bytes, c.text.n, e);
    text_buffer_free(&c.text);
    return failed;
}
