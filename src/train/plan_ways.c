#include "train/plan_ways.h"

#include "base/units.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- the ways ---- */

static void train_all(pt_train_options *o)
{
    o->freeze_n = o->train_only_n = 0;
    o->lora_rank = 0;
    o->adapter = NULL;
    o->base = PT_BASE_AS_COMPUTED;
    o->optimizer = PT_OPTIMIZER_ADAMW;
    o->momentum = 0;
    o->lr_adjust = PT_LR_ADJUST_ORIGINAL;
}

static void train_in_8_bits(pt_train_options *o)
{
    train_all(o);
    o->optimizer = PT_OPTIMIZER_ADAMW8BIT;
}

enum { LORA_RANK = 16 };

static void train_adapters(pt_train_options *o)
{
    train_all(o);
    o->lora_rank = LORA_RANK;
    o->save_type = PT_SAVE_AS_STORED; /* adapters are fp32 */
}

static void train_adapters_on_4_bits(pt_train_options *o)
{
    train_adapters(o);
    o->base = PT_BASE_NF4;
}

static const struct { const char *name; void (*change)(pt_train_options *o); } rows[] = {
    {"all parameters", train_all},
    {"8-bit states", train_in_8_bits},
    {"LoRA 16", train_adapters},
    {"LoRA 16 on nf4", train_adapters_on_4_bits},
};
enum { ROWS = sizeof rows / sizeof *rows };
_Static_assert((int)ROWS <= (int)PLAN_WAYS, "there is room for all of them");

static bool trains_the_same(const pt_train_options *a, const pt_train_options *b)
{
    return a->freeze_n == b->freeze_n && a->train_only_n == b->train_only_n && a->base == b->base && a->optimizer == b->optimizer &&
           a->lora_rank == b->lora_rank && !a->adapter == !b->adapter;
}

int plan_ways_find(const pt_train_options *o, const struct exchange_cost *exchange, const plan_way *own, plan_way out[PLAN_WAYS])
{
    int n = 0;
    for (int i = 0; i < ROWS; i++) {
        pt_train_options other = *o;
        pt_error e = {0};
        plan_way way = *own;
        rows[i].change(&other);
        if (!trains_the_same(o, &other)) {
            other.plan_file = NULL; /* made for what o says */
            other.notice = NULL;    /* what is to be said was said for o */
            if (plan_way_of(&other, exchange, &way, &e))
                continue;
        }
        way.name = rows[i].name;
        out[n++] = way;
    }
    return n;
}

/* ---- in words ---- */

static void write_bytes(FILE *out, const plan_way *w)
{
    char size[32];
    int n = 0;
    for (int k = 0; k < TIERS; k++)
        if (w->bytes[k] && (w->fits || w->beyond[k]))
            fprintf(out, "%s%s %s", n++ ? ", " : w->fits ? "" : "; would with ", tier_names[k], size_format(size, w->bytes[k]));
}

char *plan_ways_text(const plan_way *ways, int n)
{
    char *text = NULL, time[32];
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return NULL;
    for (int i = 0; i < n; i++) {
        fprintf(out, "%-9s%-16s", i ? "" : "ways", ways[i].name);
        if (ways[i].fits)
            fprintf(out, "%s per step, %.0f tokens/s; ", seconds_format(time, ways[i].step_s), ways[i].tokens_per_s);
        else
            fputs("does not fit", out);
        write_bytes(out, &ways[i]);
        fputc('\n', out);
    }
    const bool failed = ferror(out);
    if (fclose(out) || failed) {
        free(text);
        return NULL;
    }
    return text;
}

json_t *plan_ways_json(const plan_way *ways, int n)
{
    json_t *all = json_array();
    for (int i = 0; i < n; i++) {
        const plan_way *w = &ways[i];
        json_t *peaks = json_object();
        for (int k = 0; k < TIERS; k++)
            json_object_set_new(peaks, tier_names[k], json_integer((json_int_t)w->bytes[k]));
        json_array_append_new(all, json_pack("{s:s, s:b, s:o, s:o, s:o}", "name", w->name, "fits", w->fits, "peak_bytes", peaks, "step_s",
                                             w->fits ? json_real(w->step_s) : json_null(), "tokens_per_s",
                                             w->fits ? json_real(w->tokens_per_s) : json_null()));
    }
    return all;
}
