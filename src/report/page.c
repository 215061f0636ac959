#include "report/page.h"

#include "base/units.h"
#include "report/chart.h"
#include "report/explain.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const char head[] =
    "<meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
    "<style>\n"
    ":root{color-scheme:light dark;--page:#f6f7f9;--card:#fff;--text:#1b1f24;--soft:#667085;--rule:#e3e6ea;--c0:#2563eb;--c1:#ea7317;"
    "--c2:#139a74;--c3:#8b5cf6;--c4:#d14d8b;--c5:#9aa3af;--warn:#b45309}\n"
    "@media(prefers-color-scheme:dark){:root{--page:#101317;--card:#181c22;--text:#e6e9ee;--soft:#98a2b3;--rule:#2b313a;--c0:#6ea0ff;"
    "--c1:#ff9f4d;--c2:#3ecfa3;--c3:#b197fc;--c4:#f083b6;--c5:#6b7480;--warn:#fbbf24}}\n"
    "*{box-sizing:border-box}body{margin:0 auto;max-width:1180px;padding:28px 20px 60px;background:var(--page);color:var(--text);"
    "font:15px/1.5 system-ui,sans-serif}\n"
    "h1{font-size:26px;margin:0 0 6px;overflow-wrap:anywhere}h2{font-size:18px;margin:34px 0 10px}p{margin:2px 0}.soft{color:var(--soft)}\n"
    ".tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(160px,1fr));gap:12px;margin:20px 0}\n"
    ".tile,figure,.card{background:var(--card);border:1px solid var(--rule);border-radius:10px;padding:12px 14px;margin:0}\n"
    ".tile b{display:block;font-size:22px;line-height:1.3;font-variant-numeric:tabular-nums}.tile span{color:var(--soft);font-size:13px}\n"
    ".charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(480px,100%),1fr));gap:12px}\n"
    "figcaption{margin-bottom:6px}.key{color:var(--soft);font-size:13px;margin-left:14px;white-space:nowrap}.key i{display:inline-block;"
    "width:11px;height:11px;border-radius:3px;margin-right:5px;background:currentColor}\n"
    "svg{display:block;width:100%;height:auto}.tick{fill:var(--soft);font-size:12px}.grid{stroke:var(--rule)}"
    ".line{fill:none;stroke:currentColor;stroke-width:1.8;stroke-linejoin:round}.band{fill:currentColor;opacity:.22}.dot{fill:currentColor}"
    ".tip{fill:transparent}.tip:hover{fill:var(--soft);fill-opacity:.18}\n"
    ".series0{color:var(--c0)}.series1{color:var(--c1)}.series2{color:var(--c2)}.series3{color:var(--c3)}.series4{color:var(--c4)}"
    ".series5{color:var(--c5)}.fill{fill:currentColor}.far{stroke:var(--card);stroke-width:2;stroke-dasharray:3 2}\n"
    ".frame{fill:none;stroke:var(--rule)}.mark{stroke:var(--text);stroke-width:2}.note{color:var(--warn)}"
    "table{border-spacing:0}th{text-align:left;font-weight:400;color:var(--soft);padding:1px 18px 1px 0;vertical-align:top;"
    "white-space:nowrap}td{overflow-wrap:anywhere}"
    "pre{margin:10px 0 0;white-space:pre-wrap;font:13px/1.55 ui-monospace,monospace}\n"
    "</style>\n";

/* ---- the title ---- */

static void write_title(FILE *out, const run_folder *rf)
{
    fputs(PAGE_BEGINS "\n<html lang=\"en\"><head><title>", out);
    html_text(out, rf->name);
    fprintf(out, " - a ProTrain run</title>\n%s</head><body>\n<h1>", head);
    html_text(out, rf->name);
    fputs("</h1>\n", out);
}

static void write_what(FILE *out, const run_folder *rf)
{
    const plan_target *t = &rf->plan.made_for;
    char count[32];
    if (rf->planned && t->model_type[0]) {
        fputs("<p>", out);
        html_text(out, t->model_type);
        fprintf(out, ", %s parameters, %lld layer%s; %lld sequence%s of %lld token%s per step, %s</p>\n",
                count_format(count, (uint64_t)t->parameters), (long long)t->layers, plural((uint64_t)t->layers), (long long)t->batch,
                plural((uint64_t)t->batch), (long long)t->seq_len, plural((uint64_t)t->seq_len),
                t->type == PT_BF16 ? "bf16" : "fp32");
        if (t->trains[0]) {
            fputs("<p>trains ", out);
            html_text(out, t->trains);
            fputs("</p>\n", out);
        }
    }
    if (rf->machine[0]) {
        fputs("<p class=\"soft\">", out);
        html_text(out, rf->machine);
        fputs("</p>\n", out);
    }
    for (int i = 0; i < rf->warnings_n; i++) {
        fputs("<p class=\"note\">warning: ", out);
        html_text(out, rf->warnings[i]);
        fputs("</p>\n", out);
    }
    for (int i = 0; i < rf->notes_n; i++) {
        fputs("<p class=\"note\">note: ", out);
        html_text(out, rf->notes[i]);
        fputs("</p>\n", out);
    }
}

/* ---- settings ---- */

static void write_value(FILE *out, const json_t *value)
{
    char *text = json_is_string(value) ? strdup(json_string_value(value)) : json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(10));
    html_text(out, text ? text : "");
    free(text);
}

static void write_setting(FILE *out, const char *name, const json_t *value)
{
    fputs("<tr><th>", out);
    html_text(out, name);
    fputs("</th><td>", out);
    for (size_t i = 0; i < json_array_size(value); i++) {
        fputs(i ? "<br>" : "", out);
        write_value(out, json_array_get(value, i));
    }
    if (!json_is_array(value))
        write_value(out, value);
    fputs("</td></tr>\n", out);
}

/* What the run was started with, and what there is of it. */
static void write_settings(FILE *out, const run_folder *rf)
{
    static const char *const words[] = {"started", "command", "protrain"};
    const char *name;
    json_t *value;
    if (!rf->summary)
        return;
    fputs("<h2>Settings</h2>\n<div class=\"card\"><table>\n", out);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if ((value = json_object_get(rf->summary, words[i])))
            write_setting(out, words[i], value);
    json_object_foreach(json_object_get(rf->summary, "settings"), name, value)
        write_setting(out, name, value);
    json_object_foreach(json_object_get(rf->summary, "data"), name, value)
        write_setting(out, name, value);
    if (rf->checkpoints[0]) {
        fputs("<tr><th>checkpoints</th><td>", out);
        html_text(out, rf->checkpoints);
        fputs("</td></tr>\n", out);
    }
    fputs("</table></div>\n", out);
}

/* ---- totals ---- */

static __attribute__((format(printf, 3, 4))) void write_tile(FILE *out, const char *value, const char *fmt, ...)
{
    char text[160];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    fprintf(out, "<div class=\"tile\"><b>%s</b><span>%s</span></div>\n", value, text);
}

static void write_speed_tiles(FILE *out, const run_folder *rf)
{
    char value[64], time[32];
    double measured = recent_median(&rf->step_s), off = 100 * run_step_error(rf), speed = recent_median(&rf->tokens_per_s);
    if (!isnan(measured) && !isnan(off))
        write_tile(out, seconds_format(time, measured), "per step; predicted %s (%+.1f%%)", seconds_format(value, rf->predicted_step_s),
                   off);
    else if (!isnan(measured))
        write_tile(out, seconds_format(time, measured), "a step");
    if (!isnan(speed)) {
        snprintf(value, sizeof value, "%.*f", speed < 100 ? 1 : 0, speed);
        write_tile(out, value, "tokens per second");
    }
}

static void write_tiles(FILE *out, const run_folder *rf)
{
    char value[64], count[32];
    const bool replies = !isnan(rf->last_kl), pairs = !replies && !isnan(rf->last_margin);
    const char *per = replies ? " per reply" : pairs ? " per pair" : isnan(rf->last_right) ? "" : " per example";
    const char *right = replies ? "replies on their side of the KL:" : "the chosen reply preferred in";
    fputs("<div class=\"tiles\">\n", out);
    snprintf(value, sizeof value, "%.4f", rf->last_loss);
    write_tile(out, value, "loss%s after the last step; %.4f after step %lld, lowest %.4f (step %lld)", per, rf->first_loss,
               (long long)rf->first_step, rf->min_loss, (long long)rf->min_loss_step);
    snprintf(value, sizeof value, "%.4f", rf->eval_loss);
    if (!isnan(rf->last_eval_margin))
        write_tile(out, value, "evaluation loss%s; margin %.3g, %s %.0f%%", per, rf->last_eval_margin, right, 100 * rf->last_eval_accuracy);
    else if (!isnan(rf->last_eval_right))
        write_tile(out, value, "evaluation loss%s; accuracy %.0f%%", per, 100 * rf->last_eval_right);
    else if (!isnan(rf->eval_loss) && !replies)
        write_tile(out, value, "evaluation loss, perplexity %.4g; lowest %.4f (step %lld)", exp(rf->eval_loss), rf->best_eval_loss,
                   (long long)rf->best_step);
    if (!isnan(rf->last_margin)) {
        snprintf(value, sizeof value, "%.3g", rf->last_margin);
        write_tile(out, value, "reward margin; %s %.0f%%", right, 100 * rf->last_accuracy);
    }
    if (!isnan(rf->last_right)) {
        snprintf(value, sizeof value, "%.0f%%", 100 * rf->last_right);
        write_tile(out, value, "accuracy in the last step");
    }
    if (!isnan(rf->last_load)) {
        snprintf(value, sizeof value, "%.3g", rf->last_load);
        write_tile(out, value, "load of the busiest expert, 1: balanced; %.0f%% of experts idle", 100 * rf->last_idle);
    }
    snprintf(value, sizeof value, "%lld", (long long)rf->last_step);
    if (rf->first_step > 1)
        write_tile(out, value, "steps, from step %lld on", (long long)rf->first_step);
    else
        write_tile(out, value, "steps");
    if (rf->learned_tokens && rf->learned_tokens < rf->tokens)
        write_tile(out, count_format(count, (uint64_t)rf->learned_tokens), "tokens trained on, of %lld", (long long)rf->tokens);
    else if (rf->tokens)
        write_tile(out, count_format(count, (uint64_t)rf->tokens), "tokens");
    write_tile(out, seconds_format(count, rf->seconds), "in steps, without evaluations and checkpoints");
    write_speed_tiles(out, rf);
    fputs("</div>\n", out);
}

/* ---- curves ---- */

static char *plain_format(char buf[32], double x)
{
    snprintf(buf, 32, "%.4g", fabs(x) < 1e-12 ? 0 : x);
    return buf;
}

static char *share_format(char buf[32], double x)
{
    snprintf(buf, 32, "%.0f%%", 100 * x);
    return buf;
}

static char *rate_format(char buf[32], double x) { return x < 1000 ? plain_format(buf, x) : count_format(buf, (uint64_t)fmin(x, 1e18)); }

static char *time_format(char buf[32], double s) { return s > 0 ? seconds_format(buf, s) : plain_format(buf, 0); }

static bool spans_decades(const series *c)
{
    double low = INFINITY, high = 0;
    for (int i = 0; i < c->used; i++) {
        low = fmin(low, c->buckets[i].low);
        high = fmax(high, c->buckets[i].high);
    }
    return low > 0 && high > 50 * low;
}

static void write_charts(FILE *out, const run_folder *rf)
{
    const bool replies = !isnan(rf->last_kl), classes = !isnan(rf->last_right);
    double typical = recent_median(&rf->step_s), most = isnan(typical) ? 0 : 2.5 * fmax(typical, rf->predicted_step_s);
    const chart charts[] = {
        {replies                  ? "Loss per reply"
         : classes                ? "Loss, nats per example"
         : isnan(rf->last_margin) ? "Loss, nats per token"
                                  : "Loss per pair",
         plain_format, .series = {{"training", &rf->loss, false}, {"evaluation", &rf->eval, true, rf->best_step}}},
        {"Rewards", plain_format, .series = {{"chosen", &rf->chosen, false}, {"rejected", &rf->rejected, false}}},
        {"Reward margin, chosen less rejected", plain_format,
         .series = {{"training", &rf->margin, false}, {"evaluation", &rf->eval_margin, true}}},
        {replies ? "Replies on their side of the KL" : "Pairs whose chosen reply is preferred", share_format, .from_zero = true,
         .series = {{"training", &rf->accuracy, false}, {"evaluation", &rf->eval_accuracy, true}}},
        {"Accuracy", share_format, .from_zero = true, .series = {{"training", &rf->right, false}, {"evaluation", &rf->eval_right, true}}},
        {"KL, the baseline of rewards", plain_format, .from_zero = true,
         .series = {{"training", &rf->kl, false}, {"evaluation", &rf->eval_kl, true}}},
        {"Load of the busiest expert, 1: balanced", plain_format, .from_zero = true, .series = {{"load", &rf->expert_load, false}}},
        {"Loss that balances experts", plain_format, .series = {{"loss", &rf->aux_loss, false}}},
        {"Experts without a token", share_format, .from_zero = true, .series = {{"idle", &rf->experts_idle, false}}},
        {"Gradient norm, before clipping", plain_format, .from_zero = !spans_decades(&rf->grad_norm),
         .logarithmic = spans_decades(&rf->grad_norm), .series = {{"norm", &rf->grad_norm, false}}},
        {"Learning rate", plain_format, .from_zero = true, .series = {{"lr", &rf->lr, false}}},
        {"Time per step", time_format, .from_zero = true, .most = most,
         .series = {{"measured", &rf->step, false}, {"predicted", &rf->predicted, false}}},
        {"Tokens per second", rate_format, .from_zero = true, .series = {{"measured", &rf->speed, false}}},
    };
    fputs("<div class=\"charts\">\n", out);
    for (size_t i = 0; i < sizeof charts / sizeof *charts; i++)
        chart_write(out, &charts[i]);
    fputs("</div>\n", out);
}

/* ---- where every byte lives ---- */

enum { BAR_WIDTH = 1000, BAR_HEIGHT = 34 };

static void write_rect(FILE *out, double x, double width, int colour, const char *name, uint64_t bytes)
{
    char size[32];
    fprintf(out, "<rect class=\"fill series%d\" x=\"%.1f\" y=\"1\" width=\"%.1f\" height=\"%d\"><title>%s %s</title></rect>", colour, x,
            width, BAR_HEIGHT - 2, name, size_format(size, bytes));
}

static void write_parts(FILE *out, const run_folder *rf, tier t)
{
    char size[32];
    for (int p = 0; p < MEMORY_PARTS; p++)
        if (rf->part[t][p])
            fprintf(out, "<span class=\"key\"><i class=\"series%d\"></i>%s %s</span>", p, part_names[p], size_format(size, rf->part[t][p]));
}

/* The frame is the budget, the coloured parts are the prediction, the line is the measured peak. */
static void write_bar(FILE *out, const run_folder *rf, tier t)
{
    double whole = fmax((double)rf->budget[t], fmax((double)rf->predicted_bytes[t], (double)rf->peak[t])), at = 0;
    fprintf(out, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s memory\"><rect class=\"frame\" x=\".5\" y=\".5\" width=\"%d\" "
                 "height=\"%d\"/>", BAR_WIDTH, BAR_HEIGHT, tier_names[t], BAR_WIDTH - 1, BAR_HEIGHT - 1);
    for (int p = 0; rf->parted && p < MEMORY_PARTS; p++) {
        double width = (double)rf->part[t][p] / whole * BAR_WIDTH;
        if (rf->part[t][p])
            write_rect(out, at, width, p, part_names[p], rf->part[t][p]);
        at += width;
    }
    if (!rf->parted)
        write_rect(out, 0, (double)rf->predicted_bytes[t] / whole * BAR_WIDTH, 0, "predicted", rf->predicted_bytes[t]);
    double peak = fmin((double)rf->peak[t] / whole * BAR_WIDTH, BAR_WIDTH - 1);
    fprintf(out, "<line class=\"mark\" x1=\"%.1f\" x2=\"%.1f\" y1=\"0\" y2=\"%d\"/></svg>\n", peak, peak, BAR_HEIGHT);
}

static void write_memory(FILE *out, const run_folder *rf)
{
    char a[32], b[32], c[32];
    bool any = false;
    for (tier t = 0; t < TIERS; t++) {
        if (!rf->peak[t] && !rf->predicted_bytes[t])
            continue;
        fprintf(out, "%s<div class=\"card\"><p><b>%s</b>: used %s, predicted %s", any ? "" : "<h2>Where every byte lives</h2>\n",
                tier_names[t], size_format(a, rf->peak[t]), size_format(b, rf->predicted_bytes[t]));
        if (rf->budget[t])
            fprintf(out, ", of a budget of %s", size_format(c, rf->budget[t]));
        fputs("</p>\n", out);
        write_bar(out, rf, t);
        if (rf->parted)
            write_parts(out, rf, t);
        fputs("</div>\n", out);
        any = true;
    }
    if (any)
        fprintf(out, "<p class=\"soft\">%s; the dark line is the peak that was used%s.</p>\n",
                rf->parted ? "Colours: predicted use, at the fullest moment of a step" : "Colour: predicted use",
                rf->budget[TIER_DEVICE] ? "; the frame is the budget" : "");
}

/* ---- layers ---- */

static const char *const levels[SAVE_LEVELS] = {"input saved", "input and attention saved", "all saved"};

static void write_strip(FILE *out, const plan *plan)
{
    enum { ROW = 26 };
    double width = (double)BAR_WIDTH / plan->blocks_n;
    fprintf(out, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"what each layer saves, and where\">", BAR_WIDTH, ROW);
    for (int i = 0, n; i < plan->blocks_n; i += n) {
        const plan_block *b = &plan->blocks[i];
        for (n = 1; i + n < plan->blocks_n && b[n].level == b->level && b[n].place == b->place && plan->blocks_n > 200;)
            n++; /* equal neighbours are one box if there are many */
        fprintf(out, "<rect class=\"fill series%d%s\" x=\"%.1f\" y=\"1\" width=\"%.1f\" height=\"%d\"><title>", SAVE_LEVELS - 1 - b->level,
                b->place == TIER_DEVICE ? "" : " far", i * width, fmax(n * width - 1, 0.5), ROW - 2);
        fprintf(out, n > 1 ? "layers %d to %d" : "layer %d", i, i + n - 1);
        if (i < plan->made_for.passing)
            fputs(": nothing saved, backward does not reach it</title></rect>", out);
        else
            fprintf(out, ": %s, on the %s</title></rect>", levels[b->level], tier_names[b->place]);
    }
    fputs("</svg>\n", out);
}

static void write_layers(FILE *out, const run_folder *rf)
{
    bool seen[SAVE_LEVELS] = {false}, far = false;
    if (!rf->planned)
        return;
    fputs("<h2>What each layer saves</h2>\n<div class=\"card\">\n", out);
    write_strip(out, &rf->plan);
    for (int i = 0; i < rf->plan.blocks_n; i++) {
        seen[rf->plan.blocks[i].level] = true;
        far |= rf->plan.blocks[i].place != TIER_DEVICE;
    }
    for (int l = 0; l < SAVE_LEVELS; l++)
        if (seen[l])
            fprintf(out, "<span class=\"key\"><i class=\"series%d\"></i>%s</span>", SAVE_LEVELS - 1 - l, levels[l]);
    if (far)
        fputs("<span class=\"key\">dashed: not on the device</span>", out);
    fputs("<pre>", out);
    explain_plan(out, &rf->plan, NULL, rf->plan.made_for.passing, rf->plan.made_for.parts > 1);
    fputs("</pre></div>\n", out);
}

/* ---- the last step ---- */

static int busiest(const timeline *t, int side, int q, int column)
{
    int best = -1;
    for (int k = 0; k < TIMELINE_KINDS; k++) {
        float busy = t->busy[side][q][k][column];
        if (busy > 0.1f && (best < 0 || busy > t->busy[side][q][best][column]))
            best = k;
    }
    return best;
}

static void write_row(FILE *out, const timeline *t, int side, int q, double y, double height)
{
    enum { LEFT = 160 };
    double column = (double)(BAR_WIDTH - LEFT) / TIMELINE_COLUMNS;
    for (int i = 0, n; i < TIMELINE_COLUMNS; i += n) {
        int kind = busiest(t, side, q, i);
        for (n = 1; i + n < TIMELINE_COLUMNS && busiest(t, side, q, i + n) == kind;)
            n++;
        if (kind >= 0)
            fprintf(out, "<rect class=\"fill series%d\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>", kind, LEFT + i * column, y,
                    n * column, height);
    }
    fprintf(out, "<text class=\"tick\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s, %s</text>", LEFT - 8, y + height - 4, queue_names[q],
            side == TIMELINE_PREDICTED ? "predicted" : "ran");
}

static bool is_used(const timeline *t, int q)
{
    for (int side = 0; side < TIMELINE_SIDES; side++)
        for (int i = 0; i < TIMELINE_COLUMNS; i++)
            if (busiest(t, side, q, i) >= 0)
                return true;
    return false;
}

static void write_timeline(FILE *out, const timeline *t)
{
    enum { ROW = 18, PAIR = 46 };
    char time[32];
    int rows = 0, row = 0;
    if (!t)
        return;
    for (int q = 0; q < QUEUES; q++)
        rows += is_used(t, q);
    fprintf(out, "<h2>The last step, predicted and measured</h2>\n<div class=\"card\"><svg viewBox=\"0 0 %d %d\" role=\"img\" "
                 "aria-label=\"what each queue did\">", BAR_WIDTH, rows * PAIR);
    for (int q = 0; q < QUEUES; q++) {
        if (!is_used(t, q))
            continue;
        for (int side = 0; side < TIMELINE_SIDES; side++)
            write_row(out, t, side, q, row * PAIR + side * (ROW + 2), ROW);
        row++;
    }
    fputs("</svg>", out);
    for (int k = 0; k < TIMELINE_KINDS; k++)
        fprintf(out, "<span class=\"key\"><i class=\"series%d\"></i>%s</span>", k, timeline_kind_names[k]);
    fprintf(out, "<p class=\"soft\">%s from left to right.</p></div>\n", seconds_format(time, t->seconds));
}

/* Each prompt once, with its texts by step below. */
static void write_samples(FILE *out, const said_samples *s)
{
    if (!s->n)
        return;
    fputs("<h2>What the model writes</h2>\n<div class=\"card\">", out);
    for (int i = 0; i < s->n; i++) {
        bool told = false;
        for (int k = 0; k < i; k++)
            told = told || !strcmp(s->list[k].prompt, s->list[i].prompt);
        if (told)
            continue;
        fputs("<p><b>", out);
        html_text(out, s->list[i].prompt);
        fputs("</b></p>\n", out);
        for (int k = i; k < s->n; k++) {
            if (strcmp(s->list[k].prompt, s->list[i].prompt))
                continue;
            fprintf(out, "<p class=\"soft\">after %lld step%s</p><pre>", (long long)s->list[k].step,
                    plural((uint64_t)s->list[k].step));
            html_text(out, s->list[k].text);
            fputs("</pre>\n", out);
        }
    }
    fputs("</div>\n", out);
}

char *page_make(const run_folder *rf, size_t *n)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, n);
    if (!out)
        return NULL;
    write_title(out, rf);
    write_what(out, rf);
    write_tiles(out, rf);
    write_charts(out, rf);
    write_settings(out, rf);
    write_samples(out, &rf->samples);
    write_memory(out, rf);
    write_layers(out, rf);
    write_timeline(out, rf->timeline);
    fputs("</body></html>\n", out);
    bool failed = ferror(out);
    if (fclose(out) || failed) {
        free(text);
        return NULL;
    }
    return text;
}
