/* explain_text.c - the explanation as a screen of text. */
#include "report/explain.h"

#include "base/units.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WORTH_TELLING 0.03 /* of a step's time */

enum { BAR = 60, SCREEN = 100 /* columns */, SHARES_SHOWN = 6 /* lines of shares of time */ };

static const char letters[MEMORY_PARTS + 1] = "WOGATr";

/* The letters of a bar: each part has its share of the budget, at least one letter if it is not empty. */
static void draw_bar(const forecast *f, tier t, uint64_t budget, char out[BAR + 1])
{
    double scale = (double)(budget > f->bytes[t] ? budget : f->bytes[t]), at = 0;
    int used = 0;
    memset(out, '.', BAR);
    out[BAR] = 0;
    for (int p = 0; p < MEMORY_PARTS; p++) {
        at += (double)f->part[t][p] / scale * BAR;
        int end = (int)(at + 0.5);
        if (f->part[t][p] && end == used)
            end++;
        while (used < end && used < BAR)
            out[used++] = letters[p];
    }
}

/* Three digits: "1.16 GiB", "237 MiB". */
static const char *short_size(char buf[32], uint64_t bytes)
{
    double value;
    char unit[16];
    size_format(buf, bytes);
    if (sscanf(buf, "%lf %15s", &value, unit) == 2 && bytes >= 1024)
        snprintf(buf, 32, "%.*f %s", value < 9.995 ? 2 : value < 99.95 ? 1 : 0, value, unit);
    return buf;
}

static void write_tier(FILE *out, const explanation *x, tier t)
{
    const forecast *f = &x->forecast;
    uint64_t budget = x->budget[t];
    char bar[BAR + 1], used[32], all[32], item[64];
    draw_bar(f, t, budget, bar);
    fprintf(out, "%-8s [%s] %s of %s\n        ", tier_names[t], bar, short_size(used, f->bytes[t]), short_size(all, budget));
    int column = 8;
    for (int p = 0; p < MEMORY_PARTS; p++) {
        if (!f->part[t][p])
            continue;
        int n = snprintf(item, sizeof item, "%c %s %s", letters[p], part_names[p], short_size(used, f->part[t][p]));
        bool wrap = column + n + 2 > 98;
        fprintf(out, "%s%s %s", column > 8 ? "," : "", wrap ? "\n        " : "", item);
        column = (wrap ? 8 : column) + n + 2;
    }
    if (budget > f->bytes[t])
        fprintf(out, ",%s . free %s", column > 78 ? "\n        " : "", short_size(used, budget - f->bytes[t]));
    fputc('\n', out);
}

/* One line for each part between semicolons, or two if the name of the limit is long. */
static void write_room(FILE *out, const char *room)
{
    for (const char *word = "free     "; room && *room; word = "         ") {
        size_t n = strcspn(room, ";");
        const char *limit = n > 90 ? strstr(room, ") less ") : NULL;
        if (limit && limit < room + n) {
            fprintf(out, "%s%.*s\n", word, (int)(limit + 1 - room), room);
            n -= (size_t)(limit + 2 - room);
            room = limit + 2;
            word = "         ";
        }
        fprintf(out, "%s%.*s\n", word, (int)n, room);
        room += n + strspn(room + n, "; ");
    }
}

/* Breaks lines that are too long for the screen after a comma. */
static void write_wrapped(FILE *out, const char *word, const char *text)
{
    const size_t indent = strlen("others   ");
    while (strlen(text) > SCREEN - indent) {
        size_t n = SCREEN - indent;
        while (n > 1 && !(text[n - 1] == ',' && text[n] == ' '))
            n--;
        if (n == 1)
            break;
        fprintf(out, "%s%.*s\n", word, (int)n, text);
        text += n + 1;
        word = "         ";
    }
    fprintf(out, "%s%s\n", word, text);
}

/* Sums over the trained or the frozen chunks. Quantized matrices have more values than elements. */
typedef struct chunk_bytes { double values, weights, states, gradients; } chunk_bytes;

static double chunk_values(const packing *packing, const model *m, const chunk_t *c)
{
    double values = (double)c->elements;
    for (int i = c->piece0; i < c->piece0 + c->pieces_n; i++) {
        const piece *piece = &packing->pieces[packing->piece_of_chunk[i]];
        const param *a = &m->params[piece->param];
        if (a->storage != STORAGE_PLAIN)
            values += (double)(piece->rows * a->cols - piece_elements(packing, a, piece->row0, piece->rows));
    }
    return values;
}

static chunk_bytes sum_chunks(const packing *packing, const model *m, bool trained)
{
    chunk_bytes sum = {0};
    for (int i = 0; i < packing->chunks_n; i++) {
        if (packing->chunks[i].trained != trained)
            continue;
        sum.values += chunk_values(packing, m, &packing->chunks[i]);
        sum.weights += (double)chunk_weight_bytes(packing, i);
        sum.states += (double)chunk_state_bytes(packing, i);
        sum.gradients += (double)chunk_gradient_bytes(packing, i);
    }
    return sum;
}

/* What is trained, and its bytes per parameter. Frozen weights include their low halves. */
static void write_trained(FILE *out, const explanation *x)
{
    const model *m = x->in->search->model;
    const packing *packing = &x->in->best->packing;
    const chunk_bytes own = sum_chunks(packing, m, true), frozen = sum_chunks(packing, m, false);
    char what[MODEL_TRAINED_TEXT];
    int n;
    model_describe_trained(m, shape_optimizer(x->in->search->shape)->name, what);
    write_wrapped(out, "trains   ", what);
    if (!x->in->search->training || !(own.values > 0))
        return;
    n = snprintf(what, sizeof what, "bytes per parameter: weights %.3g, optimizer states %.3g, gradients %.3g", own.weights / own.values,
                 own.states / own.values, own.gradients / own.values);
    if (frozen.values > 0)
        snprintf(what + n, sizeof what - (size_t)n, "; frozen parameters %.3g", (frozen.weights + frozen.states) / frozen.values);
    write_wrapped(out, "         ", what);
}

/* What all steps take. The energy is at most that of the devices at their limit, and of no other part of the machine. */
static void write_run(FILE *out, const explanation *x)
{
    const search_input *in = x->in->search;
    const double seconds = x->forecast.step_ns * 1e-9 * (double)x->in->steps, hours = seconds / 3600;
    const int64_t tokens = in->shape->batch * search_ranks(in) * in->shape->seq_len;
    char time[32], count[32];
    if (!x->in->steps)
        return;
    fprintf(out, "run      %lld step%s, %s tokens: %s", (long long)x->in->steps, plural((uint64_t)x->in->steps),
            count_format(count, (uint64_t)(tokens * x->in->steps)), seconds_format(time, seconds));
    if (x->in->watts > 0)
        fprintf(out, "; at most %.3g kWh, at %.0f W", hours * x->in->watts / 1000, x->in->watts);
    if (x->in->price_per_hour > 0)
        fprintf(out, "; costs %.*f, at %g an hour", hours * x->in->price_per_hour < 100 ? 2 : 0, hours * x->in->price_per_hour,
                x->in->price_per_hour);
    fputc('\n', out);
}

/* A rank's sequences; or its part of one. */
static const char *write_part(const step_shape *shape, char out[48])
{
    if (shape_sharers(shape) > 1)
        snprintf(out, 48, "1 / %d", shape_sharers(shape));
    else
        snprintf(out, 48, "%lld", (long long)(shape->batch / shape_parts(shape)));
    return out;
}

static void write_head(FILE *out, const explanation *x)
{
    const search_input *in = x->in->search;
    const model *m = in->model;
    const int64_t batch = shape_sequences(in->shape), length = shape_length(in->shape);
    char count[32], time[32], part[48], sure[FORECAST_SURE_BYTES];
    fprintf(out, "model    %s, %s parameters, %lld layer%s; a step is %lld sequence%s of %lld token%s, %s\n", m->config.model_type,
            count_format(count, (uint64_t)m->parameters), (long long)m->config.layers, plural((uint64_t)m->config.layers),
            (long long)batch, plural((uint64_t)batch), (long long)length, plural((uint64_t)length),
            in->shape->type == PT_BF16 ? "bf16" : "fp32");
    write_trained(out, x);
    fprintf(out, "machine  %s (%s)\n", x->in->machine, x->in->source);
    if (search_ranks(in) > 1)
        fprintf(out, "         %d ranks: each computes %s of the sequence%s, in the memory below; tokens/s counts all of them%s\n",
                search_ranks(in), write_part(in->shape, part), plural((uint64_t)batch),
                in->costs->gather.n ? "" : "; the time excludes their exchanges");
    fprintf(out, "step     %s, %.*f tokens/s", seconds_format(time, x->forecast.step_ns * 1e-9), x->tokens_per_s < 100 ? 1 : 0,
            x->tokens_per_s);
    fputs(forecast_sure_words(&x->forecast, in->costs, sure), out);
    if (x->in->tried)
        fprintf(out, "; best of %d plan%s", x->in->tried, plural((uint64_t)x->in->tried));
    fputc('\n', out);
    write_run(out, x);
}

/* ---- the plan ---- */

/* What must not be cut, as the experts of a layer, makes chunks larger than those that were asked for. */
static uint64_t largest_chunk(const plan *plan, const packing *packing)
{
    uint64_t most = packing ? 0 : (uint64_t)plan->chunk_bytes;
    for (int i = 0; packing && i < packing->chunks_n; i++)
        most = chunk_weight_bytes(packing, i) > most ? chunk_weight_bytes(packing, i) : most;
    return most;
}

const char *explain_micro(const plan *plan, bool parts)
{
    const bool one = plan->micro_batch == 1;
    return parts ? one ? "part of a sequence" : "parts of a sequence" : one ? "sequence" : "sequences";
}

/* parts: micro-batches are counted in parts of sequences. */
static void write_chunks(FILE *out, const plan *plan, const packing *packing, bool parts)
{
    int placements[TIERS] = {0}, host_updates = 0, moved = 0, sharded = 0;
    char size[32];
    for (int i = 0; i < plan->chunks_n; i++) {
        placements[plan->chunks[i].placement]++;
        host_updates += plan->chunks[i].update == TIER_HOST;
        moved += plan->chunks[i].placement != TIER_DEVICE;
        sharded += plan->chunks[i].sharded;
    }
    fprintf(out, "weights  %d chunk%s of up to %s, with states:", plan->chunks_n, plural((uint64_t)plan->chunks_n),
            short_size(size, largest_chunk(plan, packing)));
    const char *between = "";
    for (int t = 0; t < TIERS; t++)
        if (placements[t]) {
            fprintf(out, "%s %d on the %s", between, placements[t], tier_names[t]);
            between = ",";
        }
    if (sharded)
        fprintf(out, "\n         %d of them in shards, which are gathered where they are used", sharded);
    if (moved || sharded)
        fprintf(out, "\nbuffers  %d for weights, %d for updates, %d for saved activations", plan->n_buffer, plan->n_update, plan->n_swap);
    fputc('\n', out);
    fprintf(out, "updates  %s", update_time_words[plan->update]);
    if (host_updates)
        fprintf(out, ", %d of %d chunk%s on the host", host_updates, plan->chunks_n, plural((uint64_t)plan->chunks_n));
    fprintf(out, "\nbatch    micro-batches of %lld %s, %d in a row per layer\n", (long long)plan->micro_batch,
            explain_micro(plan, parts), plan->visit);
    if (plan->ranges)
        fprintf(out, "experts  by ranges: of a layer's cut matrices, each is in memory for its part of the layer alone\n");
}

static void write_layers(FILE *out, const plan *plan, int passing)
{
    char line[160];
    for (int i = 0; explain_layers(plan, passing, i, line, sizeof line); i++)
        fprintf(out, "%s%s\n", i ? "         " : "layers   ", line);
}

/* ---- what limits it ---- */

static void write_limits(FILE *out, const explanation *x)
{
    const forecast *f = &x->forecast;
    share shares[SHARES];
    char time[32];
    if (!(f->step_ns > 0))
        return;
    fprintf(out, "busy    ");
    for (int q = 0; q < QUEUES; q++)
        if (f->busy_ns[q] >= 0.005 * f->step_ns)
            fprintf(out, " %s %.0f%%", queue_names[q], 100 * f->busy_ns[q] / f->step_ns);
    fprintf(out, " of the step\n");
    int n = explain_shares(f, shares), shown = n > SHARES_SHOWN ? SHARES_SHOWN - 1 : n;
    double rest = 0;
    for (int i = shown; i < n; i++)
        rest += shares[i].ns;
    for (int i = 0; i < shown; i++)
        fprintf(out, "%s%3.0f%% %s\n", i ? "         " : "time     ", 100 * shares[i].ns / f->step_ns, shares[i].what);
    if (shown < n)
        fprintf(out, "         %3.0f%% %d other causes\n", 100 * rest / f->step_ns, n - shown);
    const double above = f->step_ns / (x->bound_ns > 0 ? x->bound_ns : f->bound_ns) - 1;
    fprintf(out, "limit    %s without any waiting; ", seconds_format(time, f->bound_ns * 1e-9));
    if (x->bound_ns > 0)
        fprintf(out, "no plan takes less than %s: ", seconds_format(time, x->bound_ns * 1e-9));
    fprintf(out, "this %s %.*f%% longer\n", x->bound_ns > 0 ? "one at most" : "plan takes", above < 0.0995 ? 1 : 0, 100 * above);
}

static void write_less_wear(FILE *out, const explanation *x)
{
    wear_way ways[WEAR_WAYS];
    double now;
    char text[512], size[32];
    const int ways_n = explain_wear(x, &now, ways);
    int n = snprintf(text, sizeof text, "about, per million tokens (now %s)", short_size(size, (uint64_t)(now * 1e6)));
    for (int i = 0; i < ways_n; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%s %s: %s", i ? "," : ";", ways[i].options,
                      short_size(size, (uint64_t)(ways[i].bytes_per_token * 1e6)));
    if (ways_n)
        write_wrapped(out, "less     ", text);
}

static void write_disk(FILE *out, const explanation *x)
{
    const forecast *f = &x->forecast;
    char written[32], all[32], wear[FORECAST_WEAR_BYTES];
    if (x->budget[TIER_DISK] && !f->bytes[TIER_DISK] && f->again_ns > WORTH_TELLING * f->step_ns)
        fprintf(out, "disk     not used: everything fits into memory, and a disk wears; a lower budget may be faster\n");
    if (!f->written_bytes || !(f->step_ns > 0))
        return;
    fprintf(out, "wear     %s written to the disk per step", short_size(written, f->written_bytes));
    if (x->in->steps)
        fprintf(out, ", %s in this run", short_size(all, f->written_bytes * (uint64_t)x->in->steps));
    fprintf(out, "\n         %s\n", forecast_wear(f, wear));
    write_less_wear(out, x);
}

/* Whether it is the name of another system's policy. */
static bool is_of_system(const char *name)
{
    bool is = false;
    for (policy p = POLICY_ZERO_OFFLOAD; p < POLICIES; p++)
        is = is || strcmp(name, policy_names[p]) == 0;
    return is;
}

static void write_rival_name(const rival *r, char *out, size_t n)
{
    if (!strcmp(r->name, policy_names[POLICY_PROTRAIN]))
        snprintf(out, n, "as the %s paper plans", r->name);
    else
        snprintf(out, n, is_of_system(r->name) ? "as %s plans" : "%s", r->name);
}

/* The first line says that plans are compared with this one. */
static void write_rival(FILE *out, bool first, const rival *r)
{
    char text[320], name[120];
    write_rival_name(r, name, sizeof name);
    if (r->slower < 0.0005)
        snprintf(text, sizeof text, "%s: as fast%s", name, first ? " as this plan" : "");
    else if (r->slower < 1)
        snprintf(text, sizeof text, "%s: %.1f%% slower%s, %s", name, 100 * r->slower, first ? " than this plan" : "", r->why);
    else
        snprintf(text, sizeof text, "%s: takes %.3g times as long%s, %s", name, 1 + r->slower, first ? " as this plan" : "", r->why);
    write_wrapped(out, first ? "others   " : "         ", text);
}

static void write_helps(FILE *out, const explanation *x)
{
    for (int i = 0; i < x->helps_n; i++)
        fprintf(out, "%s%s: %.0f%% more tokens/s\n", i ? "         " : "helps    ", x->helps[i].what, 100 * x->helps[i].gain);
}

void explain_plan(FILE *out, const plan *plan, const packing *packing, int passing, bool parts)
{
    write_chunks(out, plan, packing, parts);
    write_layers(out, plan, passing);
}

static void write_inside(FILE *out, const explanation *x)
{
    for (int t = 0; t < TIERS; t++)
        if (x->forecast.bytes[t])
            write_tier(out, x, t);
    write_room(out, x->in->room);
    explain_plan(out, &x->in->best->plan, &x->in->best->packing, model_passing_layers(x->in->search->model),
                 shape_parts(x->in->search->shape) > 1);
    write_limits(out, x);
    write_disk(out, x);
}

char *explain_text(const explanation *x, unsigned parts)
{
    char *text = NULL;
    size_t n;
    FILE *out = open_memstream(&text, &n);
    if (!out)
        return NULL;
    if (parts & EXPLAIN_ANSWER) {
        write_head(out, x);
        write_helps(out, x);
    }
    if (parts & EXPLAIN_INSIDE)
        write_inside(out, x);
    for (int i = 0; i < x->rivals_n && parts & EXPLAIN_OTHERS; i++)
        write_rival(out, !i, &x->rivals[i]);
    bool failed = ferror(out);
    if (fclose(out) || failed) {
        free(text);
        return NULL;
    }
    return text;
}
