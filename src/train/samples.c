#include "train/samples.h"

#include "base/units.h"
#include "chat/source.h"
#include "report/samples_file.h"
#include "text/buffer.h"
#include "train/base.h"
#include "train/options.h"

enum { SAMPLE_TOKENS = 64, SHOWN_BYTES = 400 };

/* As a user's message, if the model was trained to reply. */
static int begin(pt_generator *g, const char *prompt, bool chats, pt_error *e)
{
    if (!chats)
        return pt_generator_prompt(g, prompt, strlen(prompt), SAMPLE_TOKENS, e);
    pt_generator_forget(g);
    return pt_generator_say(g, prompt, strlen(prompt), SAMPLE_TOKENS, e);
}

static int say(pt_generator *g, const char *prompt, bool chats, text_buffer *out, pt_error *e)
{
    const char *text;
    size_t bytes;
    int more = begin(g, prompt, chats, e);
    out->n = 0;
    if (more < 0)
        return more;
    while ((more = pt_generator_next(g, &text, &bytes, e)) > 0) {
        const int failed = text_buffer_append(out, text, bytes, e);
        if (failed)
            return failed;
    }
    return more < 0 ? more : text_buffer_append(out, "", 1, e);
}

/* On one line of a screen. */
static void show(const trainer *trainer, const said_sample *s)
{
    char line[SHOWN_BYTES + 1];
    size_t n = 0;
    for (const char *p = s->text; *p && n < SHOWN_BYTES; p++)
        line[n++] = (unsigned char)*p < ' ' ? ' ' : *p;
    line[n] = 0;
    options_notice(&trainer->job.o, "after %lld step%s the model %s \"%.200s\": %s", (long long)s->step,
                   plural((uint64_t)s->step), dataset_chats(trainer->job.data) ? "replies to" : "continues", s->prompt, line);
}

static int say_all(trainer *trainer, bool trained, said_samples *all, pt_error *e)
{
    const pt_train_options *o = &trainer->job.o;
    const bool adapters = trainer->job.model->adapters;
    char path[FILE_PATH_BYTES];
    pt_generate_options g;
    pt_generator *generator;
    text_buffer text = {0};
    pt_generate_defaults(&g);
    g.model = trained && !adapters ? trainer->out.path : o->model;
    g.adapter = !adapters ? NULL : trained ? trainer->out.path : o->adapter;
    g.chat_template = chat_template_file(o->chat_template, o->adapter, path);
    g.plain_contents = o->plain_contents;
    g.base = o->base >= PT_BASE_NF4 && base_is_whole(trainer->job.model) ? o->base : PT_BASE_AS_COMPUTED;
    g.temperature = 0;
    g.repetition_penalty = 1;
    g.precision = o->precision;
    g.device = o->device;
    g.threads = o->threads;
    g.device_memory = o->device_memory;
    g.progress = o->progress;
    g.arg = o->arg;
    if (o->base >= PT_BASE_NF4 && !g.base && !trained)
        options_notice(o, "samples are made without `base` %s, because some matrices of layers are trained", base_name(o->base));
    int failed = pt_generator_open(&g, &generator, e);
    for (int i = 0; i < o->sample_n && !failed; i++) {
        failed = say(generator, o->sample[i], dataset_chats(trainer->job.data), &text, e);
        if (!failed)
            failed = said_add(all, trainer->at.step, o->sample[i], text.bytes, e);
        if (!failed)
            show(trainer, &all->list[all->n - 1]);
    }
    text_buffer_free(&text);
    pt_generator_close(generator);
    return failed;
}

void samples_take(trainer *trainer, bool trained)
{
    char path[FILE_PATH_BYTES];
    said_samples all;
    pt_error e = {0};
    if (!trainer->job.o.sample_n)
        return;
    int failed = path_join(path, trainer->out.path, SAMPLES_NAME, &e);
    if (!failed)
        failed = said_read(path, &all, &e);
    if (!failed) {
        said_cut(&all, trainer->at.step);
        failed = say_all(trainer, trained, &all, &e);
        if (!failed)
            failed = said_write(path, &all, &e);
        said_free(&all);
    }
    if (failed)
        options_notice(&trainer->job.o, "no samples after %lld step%s: %.800s", (long long)trainer->at.step,
                       plural((uint64_t)trainer->at.step), e.text);
}
