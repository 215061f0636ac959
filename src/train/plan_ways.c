#include "train/plan_ways.h"

#include "base/units.h"
#include "train/base.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the ways ---- */

/* Each row varies the run's own options: what a row does not set stays as it was asked for. */

static bool adapts(const pt_train_options *o) { return o->lora_rank || o->adapter; }

static void use_adamw(pt_train_options *o, pt_optimizer optimizer)
{
    o->optimizer = optimizer;
    o->momentum = 0;
    o->lr_adjust = PT_LR_ADJUST_AUTO;
}

static bool train_all(pt_train_options *o, char name[PLAN_WAY_NAME])
{
    o->freeze_n = o->train_only_n = 0;
    o->train_blocks = 0;
    o->train_also = NULL;
    o->lora_rank = 0;
    o->lora_alpha = 0;
    o->lora_targets = o->adapter = NULL;
    o->rslora = o->dora = false;
    o->base = o->base >= PT_BASE_NF4 ? PT_BASE_AS_COMPUTED : o->base;
    if (o->optimizer == PT_OPTIMIZER_ADAMW8BIT)
        use_adamw(o, PT_OPTIMIZER_ADAMW);
    snprintf(name, PLAN_WAY_NAME, "all parameters");
    return true;
}

static bool train_in_8_bits(pt_train_options *o, char name[PLAN_WAY_NAME])
{
    train_all(o, name);
    use_adamw(o, PT_OPTIMIZER_ADAMW8BIT);
    snprintf(name, PLAN_WAY_NAME, "8-bit states");
    return true;
}

static bool train_by_turns(pt_train_options *o, char name[PLAN_WAY_NAME])
{
    const int64_t asked = o->train_blocks;
    const char *also = o->train_also;
    train_all(o, name);
    o->train_blocks = asked;
    o->train_also = also;
    snprintf(name, PLAN_WAY_NAME, "%lld layer%s a turn", (long long)asked, plural((uint64_t)asked));
    return asked;
}

static bool train_chosen(pt_train_options *o, char name[PLAN_WAY_NAME])
{
    snprintf(name, PLAN_WAY_NAME, "chosen tensors");
    return o->freeze_n || o->train_only_n;
}

enum { LORA_RANK = 16 };

static bool train_adapters(pt_train_options *o, char name[PLAN_WAY_NAME])
{
    if (!adapts(o)) {
        train_all(o, name);
        use_adamw(o, PT_OPTIMIZER_ADAMW);
        o->lora_rank = LORA_RANK;
        o->save_type = PT_SAVE_AS_STORED; /* adapters are fp32 */
    }
    o->base = o->base >= PT_BASE_NF4 ? PT_BASE_AS_COMPUTED : o->base;
    if (o->adapter)
        snprintf(name, PLAN_WAY_NAME, "the adapter");
    else
        snprintf(name, PLAN_WAY_NAME, "%s %lld", o->dora ? "DoRA" : "LoRA", (long long)o->lora_rank);
    return true;
}

static void put_on(pt_train_options *o, pt_base base, char name[PLAN_WAY_NAME])
{
    train_adapters(o, name);
    o->base = base;
    snprintf(name + strlen(name), PLAN_WAY_NAME - strlen(name), " on %s", base_name(base));
}

static bool train_adapters_on_8_bits(pt_train_options *o, char name[PLAN_WAY_NAME])
{
    const bool asked = adapts(o) && o->base == PT_BASE_INT8;
    put_on(o, PT_BASE_INT8, name);
    return asked;
}

static bool train_adapters_on_4_bits(pt_train_options *o, char name[PLAN_WAY_NAME])
{
    put_on(o, PT_BASE_NF4, name);
    return true;
}

/* What is added to the options. */
static void write_options(const pt_train_options *o, const pt_train_options *way, char out[PLAN_WAY_NAME])
{
    int n = 0;
    out[0] = 0;
    if ((adapts(o) && !adapts(way)) || (o->train_blocks && !way->train_blocks)) /* options are taken away */
        return;
    if (way->optimizer == PT_OPTIMIZER_ADAMW8BIT && o->optimizer != way->optimizer)
        n = snprintf(out, PLAN_WAY_NAME, "`optimizer` adamw8bit");
    if (way->lora_rank && !adapts(o))
        n = snprintf(out, PLAN_WAY_NAME, "`lora_rank` %lld", (long long)way->lora_rank);
    if (way->base >= PT_BASE_NF4 && way->base != o->base)
        snprintf(out + n, PLAN_WAY_NAME - (size_t)n, "%s`base` %s", n ? " " : "", base_name(way->base));
}

/* Changes the options into the row's and names it; false: the run has no such row. */
typedef bool (*row)(pt_train_options *o, char name[PLAN_WAY_NAME]);
static const row rows[] = {train_all,      train_in_8_bits,          train_by_turns,          train_chosen,
                           train_adapters, train_adapters_on_8_bits, train_adapters_on_4_bits};
enum { ROWS = sizeof rows / sizeof *rows };
_Static_assert((int)ROWS <= (int)PLAN_WAYS, "there is room for all of them");

static bool trains_the_same(const pt_train_options *a, const pt_train_options *b)
{
    return a->freeze_n == b->freeze_n && a->train_only_n == b->train_only_n && a->base == b->base && a->optimizer == b->optimizer &&
           a->lora_rank == b->lora_rank && a->train_blocks == b->train_blocks && !a->adapter == !b->adapter;
}

int plan_ways_find(const pt_train_options *o, const struct exchange_cost *exchange, const plan_way *own, plan_way out[PLAN_WAYS])
{
    int n = 0;
    for (int i = 0; i < ROWS; i++) {
        pt_train_options other = *o;
        pt_error e = {0};
        char name[PLAN_WAY_NAME];
        if (!rows[i](&other, name))
            continue;
        plan_way way = *own;
        const bool asked = trains_the_same(o, &other);
        if (!asked) {
            other.plan_file = NULL; /* made for what o says */
            other.notice = NULL;    /* what is to be said was said for o */
            if (plan_way_of(&other, exchange, &way, &e))
                continue;
        }
        way.asked = asked;
        memcpy(way.name, name, sizeof way.name);
        write_options(o, &other, way.options);
        out[n++] = way;
    }
    return n;
}

/* ---- in words ---- */

enum { SCREEN = 100 };

typedef struct line { char text[200]; size_t n; } line;

static __attribute__((format(printf, 2, 3))) void add(line *l, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    l->n += (size_t)vsnprintf(l->text + l->n, sizeof l->text - l->n, fmt, ap);
    va_end(ap);
    l->n = l->n < sizeof l->text ? l->n : sizeof l->text - 1;
}

static void add_bytes(line *l, const plan_way *w)
{
    char size[32];
    int n = 0;
    for (int k = 0; k < TIERS; k++)
        if (w->bytes[k] && (w->fits || w->beyond[k]))
            add(l, "%s%s %s", n++ ? ", " : w->fits ? "" : "; would with ", tier_names[k], size_format(size, w->bytes[k]));
}

static uint64_t all_bytes(const plan_way *w)
{
    uint64_t sum = 0;
    for (int k = 0; k < TIERS; k++)
        sum += w->bytes[k];
    return sum;
}

/* A way above takes no more memory and is as fast: this one saves nothing. */
static bool is_of_no_use(const plan_way *ways, int i)
{
    bool beaten = false;
    for (int k = 0; k < i; k++)
        beaten = beaten || (ways[k].fits >= ways[i].fits && ways[k].tokens_per_s >= ways[i].tokens_per_s &&
                            all_bytes(&ways[k]) <= all_bytes(&ways[i]));
    return beaten && !ways[i].asked;
}

/* The ways that are faster than what was asked for, by their options. */
static void write_faster(FILE *out, const plan_way *ways, int n)
{
    const plan_way *asked = NULL;
    const char *word = "faster";
    for (int i = 0; i < n; i++)
        asked = ways[i].asked && ways[i].fits ? &ways[i] : asked;
    for (int i = 0; i < n && asked; i++)
        if (ways[i].options[0] && !ways[i].asked && ways[i].tokens_per_s > 1.03 * asked->tokens_per_s && !is_of_no_use(ways, i)) {
            fprintf(out, "%-9s%s: %.3g times as many tokens/s%s\n", word, ways[i].options, ways[i].tokens_per_s / asked->tokens_per_s,
                    *word ? " (the result changes)" : "");
            word = "";
        }
}

static void say_longest(line *l, const plan_way *w)
{
    if (w->longest)
        add(l, "%s %lld", w->name, (long long)w->longest);
}

static void say_least(line *l, const plan_way *w)
{
    char size[32], time[32];
    if (w->least_step_s > 0)
        add(l, "%s %s (%s per step)", w->name, size_format(size, w->least[TIER_DEVICE]), seconds_format(time, w->least_step_s));
}

/* What is said of each way, as many in a line as fit the screen. */
static void write_each(FILE *out, const char *word, void (*say)(line *l, const plan_way *w), const char *end, const plan_way *ways, int n)
{
    line l = {.n = 0};
    for (int i = 0; i < n; i++) {
        line one = {.n = 0};
        say(&one, &ways[i]);
        if (!one.n || is_of_no_use(ways, i))
            continue;
        if (l.n && l.n + one.n + 2 + strlen(end) > SCREEN) {
            fprintf(out, "%s,\n", l.text);
            l = (line){.n = 0};
            add(&l, "%-9s%s", "", one.text);
        } else {
            add(&l, "%-*s%s", l.n ? 0 : 9, l.n ? ", " : word, one.text);
        }
    }
    if (l.n)
        fprintf(out, "%s%s\n", l.text, end);
}

/* Returns whether the line has a star, because there was no room for its explanation. */
static bool write_way(FILE *out, const char *word, const plan_way *w, int name_width)
{
    static const char asked[] = " (asked for)";
    char time[32];
    line l = {.n = 0};
    add(&l, "%-9s%-*s", word, name_width, w->name);
    if (w->fits)
        add(&l, "%s per step, %.*f tokens/s; ", seconds_format(time, w->step_s), w->tokens_per_s < 100 ? 1 : 0, w->tokens_per_s);
    else
        add(&l, "does not fit");
    add_bytes(&l, w);
    const bool star = w->asked && l.n + strlen(asked) > SCREEN;
    if (w->asked)
        add(&l, "%s", star ? " *" : asked);
    fprintf(out, "%s\n", l.text);
    return star;
}

char *plan_ways_text(const plan_way *ways, int n)
{
    char *text = NULL;
    size_t bytes, width = 16;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return NULL;
    for (int i = 0; i < n; i++)
        width = strlen(ways[i].name) + 2 > width ? strlen(ways[i].name) + 2 : width;
    const char *word = "ways";
    bool star = false;
    for (int i = 0; i < n; i++) {
        if (is_of_no_use(ways, i))
            continue;
        star |= write_way(out, word, &ways[i], (int)width);
        word = "";
    }
    if (star)
        fprintf(out, "%-9s* asked for\n", "");
    write_faster(out, ways, n);
    write_each(out, "least", say_least, " on the device", ways, n);
    write_each(out, "longest", say_longest, " tokens", ways, n);
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
        json_t *peaks = json_object(), *least = w->least_step_s > 0 ? json_object() : json_null();
        for (int k = 0; k < TIERS; k++) {
            json_object_set_new(peaks, tier_names[k], json_integer((json_int_t)w->bytes[k]));
            if (json_is_object(least))
                json_object_set_new(least, tier_names[k], json_integer((json_int_t)w->least[k]));
        }
        json_array_append_new(all, json_pack("{s:s, s:s, s:b, s:b, s:o, s:o, s:o, s:o, s:o, s:o}", "name", w->name, "options", w->options,
                                             "asked", w->asked, "fits", w->fits,
                                             "peak_bytes", peaks, "step_s", w->fits ? json_real(w->step_s) : json_null(), "tokens_per_s",
                                             w->fits ? json_real(w->tokens_per_s) : json_null(),
                                             "least_bytes", least, "least_step_s",
                                             w->least_step_s > 0 ? json_real(w->least_step_s) : json_null(),
                                             "longest_seq_len", w->longest ? json_integer((json_int_t)w->longest) : json_null()));
    }
    return all;
}
