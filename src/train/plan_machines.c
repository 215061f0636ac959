/* plan_machines.c - one table of what several machines would do. Each machine is planned for on its own, without advice. */
#include "protrain.h"

#include "base/units.h"
#include "io/files.h"
#include "train/options.h"
#include "train/plan_ways.h"
#include "train/planning.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 64 };

typedef struct offer {
    char name[MACHINE_PATH_BYTES];
    machine_spec machine;
    plan_way ways[PLAN_WAYS];
    int ways_n, devices;
} offer;

typedef struct offers { offer *all; int n; } offers;

/* ---- their names ---- */

static int add_name(offers *x, const char *name, size_t n, pt_error *e)
{
    if (!n)
        return pt_fail(e, PT_USAGE, "`machine_file` has an empty name between commas: give names such as rtx4090,h100");
    if (x->n == MOST || n >= sizeof x->all->name)
        return pt_fail(e, PT_USAGE, "`machine_file` has more than %d machines, or a path of more than %d bytes", MOST,
                       MACHINE_PATH_BYTES - 1);
    offer *o = &x->all[x->n++];
    snprintf(o->name, sizeof o->name, "%.*s", (int)n, name);
    return 0;
}

static int find_names(offers *x, const char *list, pt_error *e)
{
    char names[MACHINE_NAMES_BYTES];
    int failed = 0;
    machine_file_names(names);
    if (!strcmp(list, "all") && !names[0])
        return pt_fail(e, PT_FAILED, "no machine files are installed: give their paths");
    for (const char *at = strcmp(list, "all") ? list : names; at && !failed;) {
        at += strspn(at, " ");
        const size_t n = strcspn(at, ",");
        failed = add_name(x, at, n, e);
        at = at[n] ? at + n + 1 : NULL;
    }
    return failed;
}

/* ---- their plans ---- */

static const plan_way *asked_of(const offer *o)
{
    for (int i = 0; i < o->ways_n; i++)
        if (o->ways[i].asked)
            return &o->ways[i];
    return NULL;
}

static int plan_for(offer *x, const pt_train_options *o, bool tell, pt_error *e)
{
    char path[MACHINE_PATH_BYTES];
    pt_train_options own = *o;
    plan_way way = {.longest = 0};
    own.machine_file = x->name;
    own.notice = tell ? o->notice : NULL; /* once */
    own.progress = NULL;
    int failed = machine_file_find(x->name, path, e);
    if (!failed)
        failed = machine_file_read(path, &x->machine, e);
    if (!failed)
        failed = plan_way_of(&own, &(exchange_cost){0}, &way, e);
    if (failed)
        return failed;
    x->devices = o->ranks ? o->ranks : x->machine.ranks;
    x->ways_n = plan_ways_find(&own, &(exchange_cost){0}, &way, x->ways);
    return 0;
}

static int by_speed(const void *a, const void *b)
{
    const plan_way *x = asked_of(a), *y = asked_of(b);
    const double xs = x ? x->tokens_per_s : 0, ys = y ? y->tokens_per_s : 0;
    return xs != ys ? (xs > ys ? -1 : 1) : strcmp(((const offer *)a)->name, ((const offer *)b)->name);
}

/* ---- in words ---- */

static const plan_way *way_named(const offer *o, const char *name)
{
    for (int i = 0; i < o->ways_n; i++)
        if (!strcmp(o->ways[i].name, name))
            return &o->ways[i];
    return NULL;
}

/* "4 x 24 + 64": GiB of each device and of the host. */
static void write_memory(const offer *o, char out[32])
{
    const double device = (double)o->machine.memory_bytes[TIER_DEVICE] / (1 << 30), host =
        (double)o->machine.memory_bytes[TIER_HOST] / (1 << 30);
    const int n = o->devices > 1 ? snprintf(out, 32, "%d x %.0f", o->devices, device) : snprintf(out, 32, "%.0f", device);
    if (host > 0)
        snprintf(out + n, 32 - (size_t)n, " + %.0f", host);
}

/* Has a file of them the price of an hour? */
static bool have_prices(const offers *x)
{
    bool any = false;
    for (int i = 0; i < x->n; i++)
        any = any || x->all[i].machine.price_per_hour > 0;
    return any;
}

static void write_head(FILE *out, const offers *x, int name_width, int64_t steps)
{
    const offer *first = &x->all[0];
    fprintf(out, "%-*s %-14s", name_width, "machine", "GiB");
    for (int i = 0; i < first->ways_n; i++)
        fprintf(out, "  %9s%s", first->ways[i].name, first->ways[i].asked ? "*" : "");
    fprintf(out, "  %9s", "longest*");
    if (steps)
        fprintf(out, "  %7s  %8s", "run*", "kWh*");
    if (steps && have_prices(x))
        fprintf(out, "  %8s", "price*");
    fputc('\n', out);
}

static void write_run(FILE *out, const offer *o, int64_t steps, bool prices)
{
    const plan_way *asked = asked_of(o);
    const double seconds = asked ? asked->step_s * (double)steps : 0;
    char time[32] = "-", energy[32] = "-", price[32] = "-";
    if (seconds > 0)
        seconds_format(time, seconds);
    if (seconds > 0 && o->machine.watts > 0)
        snprintf(energy, sizeof energy, "%.3g", seconds / 3.6e6 * o->machine.watts * o->devices);
    if (seconds > 0 && o->machine.price_per_hour > 0)
        snprintf(price, sizeof price, "%.2f", seconds / 3600 * o->machine.price_per_hour * o->devices);
    fprintf(out, "  %7s  %8s", time, energy);
    if (prices)
        fprintf(out, "  %8s", price);
}

static void write_row(FILE *out, const offers *x, const offer *o, int name_width, int64_t steps)
{
    const offer *first = &x->all[0];
    char text[32];
    write_memory(o, text);
    fprintf(out, "%-*s %-14s", name_width, o->name, text);
    for (int i = 0; i < first->ways_n; i++) {
        const plan_way *w = way_named(o, first->ways[i].name);
        const int width = (int)strlen(first->ways[i].name) + first->ways[i].asked;
        snprintf(text, sizeof text, "-");
        if (w && w->fits)
            snprintf(text, sizeof text, "%.*f", w->tokens_per_s < 100 ? 1 : 0, w->tokens_per_s);
        fprintf(out, "  %*s", width > 9 + first->ways[i].asked ? width : 9 + first->ways[i].asked, text);
    }
    const plan_way *asked = asked_of(o);
    snprintf(text, sizeof text, asked && asked->longest ? "%lld" : "-", (long long)(asked ? asked->longest : 0));
    fprintf(out, "  %9s", text);
    if (steps)
        write_run(out, o, steps, have_prices(x));
    fputc('\n', out);
}

static char *table_of(const offers *x, const pt_train_options *o)
{
    char *text = NULL;
    size_t bytes;
    int width = 8;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return NULL;
    for (int i = 0; i < x->n; i++)
        width = (int)strlen(x->all[i].name) > width ? (int)strlen(x->all[i].name) : width;
    write_head(out, x, width, o->steps);
    for (int i = 0; i < x->n; i++)
        write_row(out, x, &x->all[i], width, o->steps);
    fprintf(out, "\ntokens/s of each way to train, computed from the machine files, not measured; -: does not fit\n"
                 "GiB: of device and host; longest: tokens of the longest sequence that fits; *: as asked for\n");
    if (o->steps)
        fprintf(out, "kWh: at most, of the devices alone%s\n", have_prices(x) ? "; price: in the currency of the machine file" : "");
    const bool failed = ferror(out);
    if (fclose(out) || failed) {
        free(text);
        return NULL;
    }
    return text;
}

static json_t *offer_json(const offer *o, int64_t steps)
{
    const plan_way *asked = asked_of(o);
    const double seconds = asked ? asked->step_s * (double)steps : 0;
    json_t *one = json_pack("{s:s, s:s, s:i, s:I, s:I, s:o}", "machine", o->name, "name", o->machine.name, "devices", o->devices,
                            "device_memory_bytes", (json_int_t)o->machine.memory_bytes[TIER_DEVICE], "host_memory_bytes",
                            (json_int_t)o->machine.memory_bytes[TIER_HOST], "ways", plan_ways_json(o->ways, o->ways_n));
    if (one && seconds > 0)
        json_object_set_new(one, "total_s", json_real(seconds));
    if (one && seconds > 0 && o->machine.watts > 0)
        json_object_set_new(one, "total_kwh", json_real(seconds / 3.6e6 * o->machine.watts * o->devices));
    if (one && seconds > 0 && o->machine.price_per_hour > 0)
        json_object_set_new(one, "total_price", json_real(seconds / 3600 * o->machine.price_per_hour * o->devices));
    return one;
}

static char *json_of(const offers *x, int64_t steps)
{
    json_t *all = json_array();
    for (int i = 0; i < x->n; i++)
        json_array_append_new(all, offer_json(&x->all[i], steps));
    char *text = json_dumps(all, JSON_INDENT(2));
    json_decref(all);
    return text;
}

static int plan_each(offers *x, const pt_train_options *o, pt_error *e)
{
    int failed = find_names(x, o->machine_file, e);
    for (int i = 0; i < x->n && !failed; i++) {
        if (o->progress)
            o->progress(o->arg, "planning for machines", (uint64_t)i, (uint64_t)x->n);
        failed = plan_for(&x->all[i], o, !i, e);
    }
    if (!failed && !strcmp(o->machine_file, "all"))
        qsort(x->all, (size_t)x->n, sizeof *x->all, by_speed);
    return failed;
}

int pt_plan_machines(const pt_train_options *o, bool json, char **out, pt_error *e)
{
    if (!o)
        return pt_fail_null(e, "pt_plan_machines", "the options");
    if (!out)
        return pt_fail_null(e, "pt_plan_machines", "the place for the table");
    *out = NULL;
    if (!o->machine_file)
        return pt_fail(e, PT_USAGE, "`machine_file` is missing: give the names of machines between commas, or all");
    if (o->plan_file || o->profile_file)
        return pt_fail(e, PT_USAGE, "`%s` is of one machine, and several are asked for: give one, or leave it out",
                       o->plan_file ? "plan_file" : "profile_file");
    int failed = options_check_plan(o, e);
    offers x = {.all = failed ? NULL : calloc(MOST, sizeof *x.all)};
    if (!failed && !x.all)
        failed = pt_fail(e, PT_FAILED, "out of memory");
    if (!failed)
        failed = plan_each(&x, o, e);
    if (!failed && !(*out = json ? json_of(&x, o->steps) : table_of(&x, o)))
        failed = pt_fail(e, PT_FAILED, "out of memory");
    free(x.all);
    return failed;
}
