#include "train/job.h"

#include "base/units.h"
#include "chat/prompt.h"
#include "data/examples.h"
#include "io/hub.h"
#include "io/safetensors.h"
#include "optimizer/optimizer.h"
#include "task/task.h"
#include "text/tokenizer.h"
#include "train/model_options.h"
#include "train/options.h"
#include "train/preview.h"
#include "train/room.h"

#include <malloc.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- model ---- */

/* With `lr_adjust` original, updates of matrices are about as large as AdamW's at ten times the rate. */
static const double MUON_LEAST_ORIGINAL = 1e-3;

static void tell_beside(const job *j)
{
    const weights_beside b = j->layout.source ? weights_find_beside(j->model, j->layout.source) : (weights_beside){0};
    if (b.tensors)
        options_notice(&j->o, "only the text part of the model is trained; %zu other tensor%s (%.100s%s) %s saved unchanged", b.tensors,
                       plural(b.tensors), b.first, b.tensors > 1 ? ", ..." : "", b.tensors > 1 ? "are" : "is");
    else
        options_notice(&j->o, "only the text part of the model is trained and saved: the folder has no weights of the other parts");
}

/* How the weights are named, and what is saved with them: as in the checkpoint that the run continues (`from`), else as in the model's
 * folder. The file with the other parts stays open, so that later changes of the folder do not matter. */
static int open_layout(job *j, const char *from, pt_error *e)
{
    const bool multimodal = j->model->config.multimodal && !j->model->adapters;
    const char *folder = multimodal && from[0] ? from : j->model_dir;
    safetensors *st = NULL;
    int failed = 0;
    if (weights_present(folder) && (multimodal || !j->random_init))
        failed = safetensors_open(folder, &st, multimodal ? e : NULL); /* errors of other models are reported when they are loaded */
    j->layout.naming = weights_naming_of(j->model, st);
    if (multimodal)
        j->layout.source = st;
    else
        safetensors_close(st);
    if (multimodal && st && !failed)
        failed = weights_check_beside(j->model, st, e);
    if (multimodal && !failed && !from[0])
        tell_beside(j);
    return multimodal ? failed : 0;
}

/* Matrices that are in few bits cannot be trained as such. */
static void tell_few_bits(const job *j)
{
    if (json_is_object(json_object_get(j->companions.config, "quantization_config")) && !j->random_init && !j->model->adapters)
        options_notice(&j->o, "the model's folder has weights in few bits: training starts from their decoded values, and the weights are "
                              "saved unquantized");
}

/* Muon's matrices then have `lr_adjust` match_rms_adamw, with steps of 0.2 lr; AdamW's are nearly lr in the first part of a run. The
 * embeddings and norms have the same lr by AdamW, which limits it. */
static double default_lr(const job *j, bool muon)
{
    if (task_of(&j->o)->lr > 0)
        return task_of(&j->o)->lr;
    if (j->model->adapters)
        return 2e-4;
    return j->random_init ? (muon ? 1e-3 : 3e-4) : muon ? 1e-4 : 5e-5;
}

static void choose_lr(job *j)
{
    pt_train_options *o = &j->o;
    const bool is_given = o->lr > 0, adjusts = optimizers[o->optimizer]->reads_momentum;
    if (!is_given)
        o->lr = default_lr(j, adjusts);
    if (!adjusts || o->lr_adjust != PT_LR_ADJUST_AUTO)
        return;
    o->lr_adjust = is_given ? PT_LR_ADJUST_ORIGINAL : PT_LR_ADJUST_RMS;
    if (is_given && o->lr < MUON_LEAST_ORIGINAL)
        options_notice(o, "`lr` %g makes small steps with `optimizer` muon, whose `lr_adjust` is original if `lr` is given: for a rate of "
                          "AdamW give `lr_adjust` match_rms_adamw", o->lr);
}

/* tokenizer.json with the added tokens, or that of the adapter, whose run may have added some. */
static int choose_tokenizer(job *j, pt_error *e)
{
    if (!j->added.n)
        return j->o.adapter ? companions_take_tokenizer_of(&j->companions, j->o.adapter, e) : 0;
    companions_take_tokenizer(&j->companions, j->added.json, j->added.bytes);
    j->added.json = NULL;
    return 0;
}

/* The tables of a large vocabulary take 30 MB, which a run's budget should have: all text is made tokens before the first step. */
static void close_tokenizer(tokenizer *tok)
{
    tokenizer_close(tok);
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

/* ---- scores of labels ---- */

/* Those of the model or the adapter that goes on, else those of the data. */
static int find_labels(job *j, pt_error *e)
{
    column_names columns;
    if (task_of(&j->o)->scores != SCORES_LABELS)
        return 0;
    int failed = j->o.adapter ? labels_read(&j->labels, j->o.adapter, LABELS_FILE, e) : 0;
    if (!failed && !j->labels.n && model_scores(j->model_dir))
        failed = labels_read(&j->labels, j->model_dir, "config.json", e);
    if (failed || j->labels.n)
        return failed;
    failed = columns_parse(j->o.columns, &columns, e);
    return failed ? failed : labels_find(&j->labels, j->o.data, j->o.data_n, DATA_TRAINS, &columns, e);
}

static int take_labels(job *j, pt_error *e)
{
    char path[FILE_PATH_BYTES];
    tokenizer *tok;
    size_t n;
    const char *json = companions_tokenizer(&j->companions, &n);
    int failed = path_join(path, j->model_dir, "tokenizer.json", e);
    if (!failed && !json)
        failed = pt_fail(e, PT_FAILED, "%.400s: the model has no tokenizer: put its tokenizer.json beside config.json", path);
    if (!failed)
        failed = tokenizer_open_text(j->model_dir, path, json, n, &tok, e);
    if (failed)
        return failed;
    failed = tokenizer_padding(tok, j->model_dir, &j->padding, e);
    if (!failed)
        companions_take_labels(&j->companions, j->model, (const char *const *)j->labels.name, j->padding);
    close_tokenizer(tok);
    return failed;
}

int job_open_model(job *j, const char *from, pt_error *e)
{
    const bool resumed = from[0] != 0;
    char path[FILE_PATH_BYTES];
    snprintf(j->model_dir, sizeof j->model_dir, "%s", j->o.model);
    if (!path_is_folder(j->model_dir))
        return hub_fail_model(j->model_dir, "`model` must be a Hugging Face folder with config.json", e);
    j->o.base = base_of_adapter(j->o.base, j->o.model, j->o.adapter, resumed ? NULL : j->o.notice, j->o.arg);
    int failed = find_labels(j, e);
    if (!failed)
        failed = model_of_options(&j->o, j->labels.n, &j->added, &j->model, e);
    if (!failed)
        failed = companions_read(&j->companions, j->model_dir, j->model, e);
    if (!failed)
        failed = choose_tokenizer(j, e);
    if (!failed && task_of(&j->o)->scores)
        failed = take_labels(j, e);
    const char *template = chat_template_file(j->o.chat_template, j->o.adapter, path);
    if (!failed && template)
        failed = companions_take_template(&j->companions, template, e);
    if (failed)
        return failed;
    j->random_init = j->o.init_random || !weights_present(j->model_dir);
    if (j->random_init && !j->model->adapters)
        j->model->stored_bf16 = false;
    if (j->model->adapters && !j->random_init)
        base_mark_find(j->model, j->model_dir, j->base_mark);
    if (j->o.adapter && !resumed)
        base_mark_compare(j->model, j->model_dir, j->o.adapter, j->o.notice, j->o.arg);
    if (j->random_init && !resumed)
        options_notice(&j->o, "%s: starting from random weights (seed %llu)",
                       j->o.init_random ? "`init_random`" : "no weights in the model's folder", (unsigned long long)j->o.seed);
    if (!resumed)
        tell_few_bits(j);
    choose_lr(j);
    failed = base_open(&j->base, j->model, j->random_init ? NULL : j->model_dir, j->o.seed, e);
    if (!failed)
        failed = open_layout(j, from, e);
    return failed ? failed : room_save_type(&j->o, j->model, j->random_init || j->model->adapters, &j->save_type, e);
}

/* ---- data ---- */

/* FNV-1a. */
static void find_fingerprint(const char *text, size_t n, char out[32])
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3u;
    snprintf(out, 32, "%016llx", (unsigned long long)hash);
}

static void pass_progress(void *arg, uint64_t done, uint64_t total) { options_progress(arg, "reading the data", done, total); }

/* Gives the notices about a dataset. For evaluation data, only those that training data did not give, because both may be in the same
 * files. */
static void tell_data(const job *j, const dataset *data, bool evaluation)
{
    if (dataset_summary(data) && !evaluation)
        options_notice(&j->o, "%s", dataset_summary(data));
    dataset_tell(data, evaluation ? j->data : NULL, evaluation ? "evaluation: " : "", options_pass_notice, (void *)&j->o);
}

static int open_dataset(const job *j, dataset_options d, bool evaluation, dataset **out, pt_error *e)
{
    const bool others = evaluation && j->o.eval_data_n, split = j->o.eval_split > 0;
    d.paths = others ? j->o.eval_data : j->o.data;
    d.paths_n = others ? j->o.eval_data_n : j->o.data_n;
    d.part = !split ? SHARE_ALL : evaluation ? SHARE_HELD : SHARE_KEPT;
    d.use = !evaluation || split ? DATA_TRAINS : others ? DATA_EVALUATES : DATA_BESIDE;
    d.evaluation = evaluation;
    d.shuffle = j->o.shuffle && !evaluation;
    int failed = dataset_open(&d, out, e);
    if (!failed)
        tell_data(j, *out, evaluation);
    return failed;
}

/* Other programs end a text where generation_config.json says, so it names the token that ends what is trained on: the template's after a
 * reply, or the tokenizer's end of text. */
static int name_end(job *j, const char *template, const tokenizer *tok, pt_error *e)
{
    const bool chats = dataset_chats(j->data);
    const int64_t end = chats ? chat_turn_end_of(j->model_dir, template, tok, EXAMPLES_TODAY) : tokenizer_eos(tok);
    const int64_t usual = j->model->config.eos;
    const char *text;
    size_t n;
    bool continued, added = false;
    int failed = j->o.adapter ? companions_add_ends_of(&j->companions, j->o.adapter, usual, &continued, e) : 0;
    if (!failed && end >= 0 && end < j->model->config.vocab)
        failed = companions_add_end(&j->companions, end, usual, &added, e);
    if (added && !tokenizer_id_bytes(tok, (uint32_t)end, false, false, &text, &n, NULL))
        options_notice(&j->o, "%s end with %.*s (token %lld), which the model's folder does not name as an end: \"eos_token_id\" of the "
                              "saved generation_config.json has it, so that other programs stop there, too",
                       chats ? "replies" : "texts", n < 60 ? (int)n : 60, text, (long long)end);
    return failed;
}

/* A text is scored at its end: without it there is nothing to learn. */
static pt_long longer_examples(const pt_train_options *o)
{
    return task_of(o)->scores && o->long_examples == PT_LONG_CUT ? PT_LONG_DROP : o->long_examples;
}

int job_open_data(job *j, const char *cache, pt_error *e)
{
    char path[FILE_PATH_BYTES], template[FILE_PATH_BYTES], fingerprint[32] = "ids";
    tokenizer *words = NULL;
    column_names columns;
    int failed = columns_parse(j->o.columns, &columns, e);
    if (!failed)
        failed = path_join(path, j->model_dir, "tokenizer.json", e);
    size_t bytes;
    const char *json = companions_tokenizer(&j->companions, &bytes);
    if (!failed && json) {
        find_fingerprint(json, bytes, fingerprint);
        failed = tokenizer_open_text(j->model_dir, path, json, bytes, &words, e);
    }
    const dataset_options d = {.tokenizer = words, .cache_dir = cache, .tokenizer_fingerprint = fingerprint,
                               .seq_len = j->o.seq_len, .vocab = j->model->config.vocab, .seed = j->o.seed,
                               .columns = &columns, .format = j->o.data_format, .train_on = j->o.train_on, .model_dir = j->model_dir,
                               .chat_template = chat_template_file(j->o.chat_template, j->o.adapter, template),
                               .plain = j->o.plain_contents, .alone = j->o.no_packing, .longer = longer_examples(&j->o),
                               .held = j->o.eval_split, .examples = j->o.loss_per == PT_LOSS_PER_EXAMPLE,
                               .pairs = task_of(&j->o)->pairs, .task = task_of(&j->o)->name,
                               .labels = task_of(&j->o)->labels, .mismatched = j->o.batch_size,
                               .scored = task_of(&j->o)->scores, .names = j->labels.n ? &j->labels : NULL, .padding = j->padding,
                               .prompts = task_of(&j->o)->plane == TASK_PLANE_OWN,
                               .margins = task_of(&j->o)->plane == TASK_PLANE_MARGIN, .documents = j->o.document_mask,
                               .eos = j->model->config.eos,
                               .threads = j->o.threads,
                               .progress = pass_progress, .progress_arg = &j->o};
    if (!failed)
        failed = open_dataset(j, d, false, &j->data, e);
    if (!failed && options_evaluate(&j->o))
        failed = open_dataset(j, d, true, &j->eval, e);
    if (!failed) {
        const option_needs needs = options_needs(&j->o, dataset_chats(j->data), dataset_packed(j->data));
        options_tell_idle(&train_table, &j->o, &needs, j->o.notice, j->o.arg);
    }
    const bool scores = task_of(&j->o)->scores;
    if (!failed && words && !scores)
        failed = name_end(j, d.chat_template, words, e);
    const int64_t examples = j->o.preview == PT_PREVIEW_DEFAULT ? 1 : j->o.preview;
    if (!failed && words && examples && !scores)
        failed = preview_make(j->data, words, j->o.seq_len, examples, d.pairs, &j->preview, e);
    close_tokenizer(words);
    j->shape.documents = !failed && (dataset_apart(j->data) || (j->eval && dataset_apart(j->eval)));
    return failed;
}

/* ---- the step ---- */

int job_choose_shape(job *j, bool resumed, pt_error *e)
{
    const int failed = shape_of_options(&j->o, j->model, &j->shape, e);
    return failed ? failed : length_of_options(&j->o, j->model, resumed, e);
}

static int few_windows(const job *j, int64_t windows, pt_error *e)
{
    return pt_fail(e, PT_FAILED,
                   "the data fill %lld window%s of %lld tokens, and a step takes %lld, so that `drop_last` leaves out all: leave it out, "
                   "or give `batch_size` %lld or a lower `seq_len`",
                   (long long)windows, plural((uint64_t)windows), (long long)j->shape.seq_len, (long long)j->shape.batch,
                   (long long)windows);
}

/* Up to ten in a run, ten steps apart or more, in about a tenth of the run's time: a window takes a third of what it takes in training. */
static void choose_evaluations(job *j)
{
    const double training = 3.0 * (double)j->steps * (double)j->shape.batch, evaluation = (double)dataset_windows(j->eval);
    const int64_t times = (int64_t)fmax(fmin(0.1 * training / evaluation, 10), 1), apart = (j->steps + times - 1) / times;
    j->o.eval_every = apart < 10 ? 10 : apart;
    if (j->o.eval_every < j->steps)
        options_notice(&j->o, "evaluates every %lld steps: `eval_every` sets another number", (long long)j->o.eval_every);
}

int job_count_steps(job *j, pt_error *e)
{
    int64_t windows = (int64_t)dataset_windows(j->data), batch = j->shape.batch;
    j->epoch_samples = (j->o.drop_last ? windows : windows + batch - 1) / batch * batch;
    if (!j->epoch_samples)
        return few_windows(j, windows, e);
    double by_epochs = j->o.epochs * (double)(j->epoch_samples / batch);
    j->steps = j->o.steps ? j->o.steps : by_epochs < 1 ? 1 : (int64_t)(by_epochs * (1 + 1e-12)); /* 0.57 of 100 is 57, despite rounding */
    const int64_t warmup = lr_warmup_steps(&j->o, j->steps);
    if (warmup >= j->steps)
        options_notice(&j->o, "the warm-up takes %lld steps and the run has %lld: the learning rate only rises, to %.3g",
                       (long long)warmup, (long long)j->steps, lr_of_step(&j->o, j->steps, j->steps));
    if (j->eval && !j->o.eval_every)
        choose_evaluations(j);
    return 0;
}

void job_close(job *j)
{
    dataset_close(j->data);
    dataset_close(j->eval);
    free(j->preview);
    companions_free(&j->companions);
    new_tokens_close(&j->added);
    labels_free(&j->labels);
    safetensors_close((safetensors *)j->layout.source);
    base_close(&j->base);
    model_close(j->model);
}
