/* evaluate.c - the mean loss of a model over data.
 *
 *   model, data --> shape --> plan of forward alone --> executor --> losses, batch by batch
 *
 * The same schedules and blocks as in training, with weights only. Weights that do not fit into memory are streamed from the disk tier. */
#include "base/units.h"
#include "chat/source.h"
#include "data/dataset.h"
#include "infer/open.h"
#include "infer/predictions.h"
#include "io/files.h"
#include "io/safetensors.h"
#include "model/weights.h"
#include "options/table.h"
#include "search/search.h"
#include "run/budgets.h"
#include "run/evaluation.h"
#include "run/executor.h"
#include "run/misfit_text.h"
#include "run/state.h"
#include "task/task.h"
#include "train/companions.h"
#include "train/preferences.h"

#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH_TOKENS = 4096 };

typedef struct evaluation {
    const pt_evaluate_options *o;
    model *model;
    safetensors *adapter; /* NULL: none */
    tokenizer *tokenizer;
    label_names labels;   /* of a model that scores classes; n 0: it scores pairs, or tokens */
    int64_t padding;
    dataset *data;
    step_shape shape;
    uint64_t budget[TIERS];
    bool host_tier;
    const char *disk_path;
    search_result found;
    device *device, *host;
    executor *x;
    predictions predictions;
    int64_t predicted;
    evaluation_sum sum;
} evaluation;

static void notice(const evaluation *v, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void notice(const evaluation *v, const char *fmt, ...)
{
    char sentence[1024];
    va_list ap;
    va_start(ap, fmt);
    text_format(sentence, sizeof sentence, fmt, ap);
    va_end(ap);
    if (v->o->notice)
        v->o->notice(v->o->arg, sentence);
}

static void progress(const evaluation *v, const char *stage, uint64_t done, uint64_t total)
{
    if (v->o->progress)
        v->o->progress(v->o->arg, stage, done, total);
}

static void pass_progress(void *arg, uint64_t done, uint64_t total) { progress(arg, "reading the data", done, total); }

/* ---- model and data ---- */

static int check_options(const pt_evaluate_options *o, pt_error *e)
{
    int failed = options_check_size(&evaluate_table, o, e);
    if (failed)
        return failed;
    if (!o->model || !o->model[0])
        return pt_fail(e, PT_USAGE, "no model: `model` names a Hugging Face folder with config.json and weights");
    if (!o->data || o->data_n < 1)
        return pt_fail(e, PT_USAGE, "no data: `data` names .txt, .jsonl, .json, .csv, .npy or .bin files, or a folder of them");
    failed = options_check_values(&evaluate_table, o, e);
    if (!failed && o->predictions)
        failed = predictions_may_write(o->predictions, e);
    return failed ? failed : device_name_check(o->device, e);
}

static int choose_seq_len(evaluation *v, int64_t *seq_len, pt_error *e)
{
    const model_config *config = &v->model->config;
    *seq_len = v->o->seq_len ? v->o->seq_len : config->max_positions < 1024 ? config->max_positions : 1024;
    if (config->position == POSITION_LEARNED && *seq_len > config->max_positions)
        return pt_fail(e, PT_FAILED, "`seq_len` is %lld, but the model has learned only %lld positions: give at most as many",
                       (long long)*seq_len, (long long)config->max_positions);
    if (*seq_len > config->max_positions)
        notice(v, "`seq_len` is %lld, more than the model's max_position_embeddings of %lld", (long long)*seq_len,
               (long long)config->max_positions);
    return 0;
}

static int refuse_predictions(const evaluation *v, pt_error *e)
{
    return pt_fail(e, PT_USAGE, "`predictions` are scores of texts, and %.400s predicts tokens: leave the option out, or give a model of "
                                "`task` reward or classify", v->o->model);
}

/* Of a model that scores labels: their names, and what does not count behind a text. One label is a score: of pairs, and with
 * `predictions` of texts, too. */
static int find_labels(evaluation *v, pt_error *e)
{
    const int64_t n = v->model->config.labels;
    if (!n)
        return v->o->predictions ? refuse_predictions(v, e) : 0;
    if (!v->tokenizer)
        return pt_fail(e, PT_FAILED, "%.400s: the model has no tokenizer: put its tokenizer.json beside config.json", v->o->model);
    int failed = tokenizer_padding(v->tokenizer, v->o->model, &v->padding, e);
    if (n == 1)
        v->labels.n = v->o->predictions ? 1 : 0;
    if (failed || n == 1)
        return failed;
    failed = labels_read(&v->labels, v->o->adapter ? v->o->adapter : v->o->model, v->o->adapter ? LABELS_FILE : "config.json", e);
    if (!failed && !v->labels.n)
        v->labels.n = n;
    if (failed || v->labels.n == n)
        return failed;
    return pt_fail(e, PT_FAILED, "%.400s: the head scores %lld labels, and %lld have names", v->o->model, (long long)n,
                   (long long)v->labels.n);
}

static int open_data(evaluation *v, int64_t seq_len, pt_error *e)
{
    char path[FILE_PATH_BYTES], template[FILE_PATH_BYTES];
    column_names columns;
    int failed = dir_check_temporary(e); /* the token cache is there */
    if (!failed)
        failed = columns_parse(v->o->columns, &columns, e);
    if (!failed)
        failed = path_join(path, v->o->model, "tokenizer.json", e);
    if (!failed && path_exists(path))
        failed = tokenizer_open_beside(v->o->model, v->o->adapter, &v->tokenizer, e);
    if (!failed)
        failed = find_labels(v, e);
    const pt_evaluate_options *o = v->o;
    dataset_options d = {.paths = o->data, .paths_n = o->data_n, .columns = &columns, .format = o->data_format, .train_on = o->train_on,
                         .model_dir = o->model,
                         .chat_template = chat_template_file(o->chat_template, o->adapter, template),
                         .plain = o->plain_contents, .alone = o->no_packing, .longer = o->long_examples, .tokenizer = v->tokenizer,
                         .seq_len = seq_len,
                         .vocab = v->model->config.vocab, .use = DATA_EVALUATES, .evaluation = true, .documents = v->o->document_mask,
                         .scored = v->model->config.labels, .margins = v->model->config.labels == 1,
                         .pairs = v->model->config.labels == 1 && !o->predictions, .task = "reward", .predicts = o->predictions,
                         .names = v->labels.n ? &v->labels : NULL, .padding = v->padding, .eos = v->model->config.eos,
                         .threads = v->o->threads, .progress = pass_progress, .progress_arg = v};
    if (!failed)
        failed = dataset_open(&d, &v->data, e);
    if (!failed && dataset_summary(v->data))
        notice(v, "%s", dataset_summary(v->data));
    if (failed)
        return failed;
    dataset_tell(v->data, NULL, "", o->notice, o->arg);
    const bool examples = dataset_packed(v->data);
    const option_needs needs = {.unmet = {[NEED_CHATS] = !dataset_chats(v->data), [NEED_TEXT] = examples, [NEED_EXAMPLES] = !examples,
                                    [NEED_CONTENTS] = !examples}};
    options_tell_idle(&evaluate_table, o, &needs, o->notice, o->arg);
    return 0;
}

/* ---- plan ---- */

static int choose_budgets(evaluation *v, pt_error *e)
{
    const pt_evaluate_options *o = v->o;
    v->disk_path = o->disk_path ? o->disk_path : dir_temporary();
    const device_options d = {.threads = machine_threads(o->threads), .notice = o->notice, .arg = o->arg};
    int failed = device_open(o->device, &d, &v->device, &v->host, e);
    const budget_request r = {.asked = {o->device_memory, o->host_memory, o->disk_memory}, .disk_path = v->disk_path, .device = v->device};
    return failed ? failed : budgets_choose(&r, v->budget, &v->host_tier, NULL, e);
}

/* Nothing is measured for one pass over the data: among the plans that fit, the one that reads least is best on any machine. The rates of
 * an ordinary processor and disk order the rest. */
static void rough_costs(const evaluation *v, costs *costs)
{
    const double operations = 500, copied = 8, read = 1.5, written = 1; /* per ns */
    const cost_curve copies = {2, {1, 1e9}, {1e4, 1e4 + 1e9 / copied}};
    double weights = (double)accumulator_elements(v->model, 1), forward = 2 * (double)v->shape.unit_rows * weights / operations;
    costs_init(costs);
    for (int level = 0; level < SAVE_LEVELS; level++)
        costs->layer[0].forward_ns[level] = forward;
    costs->head_eval_ns = 2 * (double)v->shape.unit_rows * (double)accumulator_elements(v->model, v->model->blocks_n - 1) / operations;
    costs->to_device = costs->from_device = copies;
    costs->read = (cost_curve){2, {1, 1e9}, {1e5, 1e5 + 1e9 / read}};
    costs->write = (cost_curve){2, {1, 1e9}, {1e5, 1e5 + 1e9 / written}};
    costs->task_ns = 1e4;
}

/* The memory of this machine beyond the given budgets. */
static search_room find_room(const evaluation *v, const search_input *in)
{
    search_room room = {.gpu = device_is_gpu(v->device)};
    bool host_tier;
    const budget_request all = {.asked = {PT_AUTO, room.gpu ? PT_AUTO : v->o->host_memory, PT_AUTO}, .disk_path = v->disk_path,
                                .device = v->device};
    if (budgets_choose(&all, room.has, &host_tier, NULL, NULL))
        memcpy(room.has, in->budget, sizeof room.has);
    for (tier t = 0; t < TIERS; t++)
        room.has[t] = room.has[t] > in->budget[t] ? room.has[t] : in->budget[t];
    return room;
}

static int refuse(const evaluation *v, const search_input *in, pt_error *e)
{
    const search_room room = find_room(v, in);
    search_ways w;
    char budgets[256], changes[3 * MISFIT_CHANGE_BYTES] = "", one[MISFIT_CHANGE_BYTES];
    budgets_notice_disk(&(budget_request){.asked = {[TIER_DISK] = v->o->disk_memory}, .disk_path = v->disk_path, .notice = v->o->notice,
                                          .arg = v->o->arg});
    int failed = search_find_ways(in, &room, false, &w, e);
    if (failed)
        return failed;
    for (int i = 0; i < w.n; i++) {
        const size_t used = strlen(changes);
        misfit_say_change(in, &room, w.way[i].budget, "is free here", one);
        snprintf(changes + used, sizeof changes - used, "%s, or ", one);
    }
    misfit_say_budgets(in, budgets, sizeof budgets);
    return pt_fail(e, PT_DOES_NOT_FIT, "it does not fit into %s: give %sa lower `seq_len`", budgets, changes);
}

static int choose_plan(evaluation *v, pt_error *e)
{
    costs costs;
    rough_costs(v, &costs);
    search_input in = {.model = v->model, .shape = &v->shape, .costs = &costs, .host_tier = v->host_tier,
                       .threads = machine_threads(v->o->threads), .threads_bytes = v->device->info.threads_bytes};
    memcpy(in.budget, v->budget, sizeof in.budget);
    int failed = search_plan(&in, &v->found, e);
    return failed == PT_DOES_NOT_FIT ? refuse(v, &in, e) : failed;
}

static bool compares(const evaluation *v) { return v->model->config.labels == 1 && dataset_pairs(v->data); }

static int open_executor(evaluation *v, int64_t seq_len, pt_error *e)
{
    uint64_t windows = dataset_eval_windows(v->data);
    int64_t batch = BATCH_TOKENS / seq_len;
    batch = batch < 1 ? 1 : (uint64_t)batch > windows ? (int64_t)windows : batch;
    step_shape_init(&v->shape, v->model, v->o->precision == PT_PRECISION_BF16 ? PT_BF16 : PT_F32, batch, seq_len);
    v->shape.documents = dataset_apart(v->data);
    if (compares(v)) {
        v->shape.linear = v->shape.weighted = true;
        v->shape.compare = task_reward.rule(NULL);
    }
    if (v->o->predictions) {
        head_layout l;
        head_layout_init(&l, v->model, &v->shape);
        v->shape.scores = l.ld;
    }
    if (device_is_gpu(v->device))
        step_shape_for_gpu(&v->shape, v->model);
    int failed = choose_plan(v, e);
    executor_options x = {.device = v->device, .host = v->host, .schedules = 1u << SCHEDULE_EVAL, .disk_path = v->disk_path,
                          .threads = v->o->threads,
                          .input = {v->model, &v->shape, &v->found.best.packing, &v->found.best.plan, false, v->host_tier}};
    memcpy(x.budget, v->budget, sizeof x.budget);
    if (!failed)
        failed = executor_open(&x, &v->x, e);
    char size[32];
    if (!failed && executor_bytes(v->x, TIER_DISK))
        notice(v, "the weights do not fit into memory: %s are written to %s and read again for every batch",
               size_format(size, executor_bytes(v->x, TIER_DISK)), v->disk_path);
    return failed;
}

static int load_weights(evaluation *v, pt_error *e)
{
    safetensors *st;
    state state;
    int failed = safetensors_open(v->o->model, &st, e);
    if (failed)
        return failed;
    if (v->model->config.labels && !v->adapter && !weights_have_scores(v->model, st)) {
        safetensors_close(st);
        return pt_fail(e, PT_FAILED, "%.400s: there is no tensor score.weight, which scores the labels: train the model first",
                       v->o->model);
    }
    state_open(&state, v->x);
    failed = v->adapter ? state_load_adapted(&state, st, v->adapter, 0, e) : state_load(&state, st, e);
    if (!failed)
        weights_notice_unused(v->model, st, v->o->notice, v->o->arg);
    int closed = state_close(&state, failed ? NULL : e);
    safetensors_close(st);
    return failed ? failed : closed;
}

/* ---- the loss ---- */

static bool pass_windows(void *arg, uint64_t done, uint64_t total)
{
    progress(arg, "evaluating", done, total);
    return true;
}

/* As many pairs as if they were targets. */
static int sum_pairs(evaluation *v, const evaluation_pass *pass, pt_error *e)
{
    const job j = {.eval = v->data, .shape = v->shape, .o.task = PT_TASK_REWARD};
    preference_evaluation all;
    const int failed = preferences_evaluate(&j, NULL, v->x, pass, &all, e);
    v->sum = (evaluation_sum){.loss = all.sum.loss, .tokens = (int64_t)dataset_tokens(v->data), .learned = all.sum.pairs,
                              .right = all.sum.right, .bad_window = isfinite(all.sum.loss) ? -1 : 0};
    return failed;
}

/* A pass has one argument. */
static int pass_ran(void *arg, uint64_t first, uint64_t n, pt_error *e)
{
    return predictions_take(&((evaluation *)arg)->predictions, first, n, e);
}

static int sum_losses(evaluation *v, pt_error *e)
{
    const evaluation_pass pass = {pass_windows, v->o->predictions ? pass_ran : NULL, v};
    int failed = compares(v) ? sum_pairs(v, &pass, e) : evaluation_run(v->x, v->data, &pass, &v->sum, e);
    if (!failed && !v->sum.learned && !v->o->predictions)
        return pt_fail(e, PT_FAILED,
                       "%s: no token of the data is a target: with `document_mask`, a document of one token has none; leave the option "
                       "out, or give other data",
                       v->o->data[0]);
    if (failed || v->sum.bad_window < 0)
        return failed;
    return pt_fail(e, PT_FAILED,
                   "%s: the loss of window %lld, or of one of the %lld after it, is not finite: the weights are damaged, or too large for "
                   "bf16 (try `precision` fp32)",
                   v->o->model, (long long)v->sum.bad_window, (long long)v->shape.batch - 1);
}

static int open_predictions(evaluation *v, pt_error *e)
{
    if (!v->o->predictions)
        return 0;
    v->predictions = (predictions){.path = v->o->predictions, .x = v->x, .data = v->data, .names = &v->labels};
    return predictions_open(&v->predictions, e);
}

static int evaluate(evaluation *v, pt_error *e)
{
    int64_t seq_len = 0;
    int failed = infer_open_adapted(v->o->model, v->o->adapter, v->o->notice, v->o->arg, &v->model, &v->adapter, e);
    const infer_base base = {v->o->model, v->o->adapter, v->o->base, v->o->precision, v->o->notice, v->o->arg};
    if (!failed)
        failed = infer_store_base(&base, v->model, e);
    if (!failed)
        failed = choose_seq_len(v, &seq_len, e);
    if (!failed)
        failed = open_data(v, seq_len, e);
    if (!failed)
        failed = choose_budgets(v, e);
    if (!failed)
        failed = open_executor(v, seq_len, e);
    if (!failed)
        failed = load_weights(v, e);
    if (!failed)
        failed = open_predictions(v, e);
    if (!failed)
        failed = sum_losses(v, e);
    return failed || !v->o->predictions ? failed : predictions_write(&v->predictions, &v->predicted, e);
}

int pt_evaluate(const pt_evaluate_options *o, pt_evaluation *out, pt_error *e)
{
    if (!o)
        return pt_fail_null(e, "pt_evaluate", "the options");
    if (!out)
        return pt_fail_null(e, "pt_evaluate", "the place for the result");
    evaluation v = {.o = o};
    int failed = check_options(o, e);
    if (!failed)
        failed = evaluate(&v, e);
    if (!failed) {
        out->tokens = v.sum.tokens;
        out->learned_tokens = v.sum.learned;
        out->accuracy = (double)v.sum.right / (double)v.sum.learned;
        out->loss = v.sum.loss / (double)v.sum.learned;
        out->perplexity = v.sum.learned ? fmin(exp(out->loss), DBL_MAX) : NAN;
        out->predictions = v.predicted;
    }
    predictions_close(&v.predictions);
    executor_close(v.x);
    device_close(v.device, v.host);
    search_result_free(&v.found);
    dataset_close(v.data);
    tokenizer_close(v.tokenizer);
    labels_free(&v.labels);
    safetensors_close(v.adapter);
    model_close(v.model);
    return failed;
}
