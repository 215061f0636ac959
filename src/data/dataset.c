#include "data/dataset_parts.h"

#include "base/units.h"
#include "chat/prompt.h"
#include "data/formats.h"
#include "data/token_cache.h"
#include "data/unknown.h"
#include "data/unread.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- notes ---- */

static void note(dataset *data, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void note(dataset *data, const char *fmt, ...)
{
    const size_t used = strlen(data->notice);
    va_list ap;
    va_start(ap, fmt);
    if (used + 3 < sizeof data->notice) {
        char *line = data->notice + used + (used > 0);
        vsnprintf(line, sizeof data->notice - (size_t)(line - data->notice), fmt, ap);
        if (used)
            line[-1] = '\n';
        for (; (line = strchr(line, '\n')); line++) /* of a file's name */
            *line = '?';
    }
    va_end(ap);
}

/* ---- tokens ---- */

/* The ids of a single file are read in place. */
static int open_in_place(dataset *data, const data_file *file, id_file *ids, pt_error *e)
{
    data->source_path = strdup(file->path);
    if (!data->source_path)
        return pt_fail(e, PT_FAILED, "out of memory: the path of %s", file->path);
    data->source_fd = open(file->path, O_RDONLY | O_CLOEXEC);
    if (data->source_fd < 0)
        return pt_fail_errno(e, PT_FAILED, "%s: cannot open this file", file->path);
    return id_file_open(data->source_fd, data->source_path, file->kind, ids, e);
}

static int open_cache(dataset *data, token_source *s, pt_error *e)
{
    const data_files *files = s->files;
    char path[4096];
    id_file ids;
    bool damaged;
    if (files->n == 1 && !data_kind_is_text(files->files[0].kind)) {
        int rc = open_in_place(data, &files->files[0], &ids, e);
        if (rc < 0)
            return rc;
        s->in_place = &ids;
    }
    int rc = token_cache_open(s, &data->tokens, &damaged, path, e);
    if (damaged)
        snprintf(data->notice, sizeof data->notice, "%.400s: the token cache is damaged and is made again", path);
    return rc;
}

/* Notes if a template that is not the model's own writes a special token that the tokenizer does not have. */
static void note_template(dataset *data, const dataset_options *o, const chat_source *chat)
{
    char mark[CHAT_MARK_BYTES];
    chat_source own = {0};
    const bool has_own = !chat_source_open(&own, o->model_dir, NULL, NULL);
    const bool same = has_own && chat_source_sum(&own) == chat_source_sum(chat);
    if (has_own)
        chat_source_close(&own);
    if (!same && chat_foreign_mark(chat, o->tokenizer, EXAMPLES_TODAY, mark))
        note(data,
             "%.400s: the template writes %s, for which the tokenizer has no token, so that it is read as plain text: give a template "
             "that belongs to the model",
             o->chat_template, mark);
}

/* Notes if replies would not end with the end-of-text token, though the template says so. */
static void note_end(dataset *data, const dataset_options *o, const chat_source *chat)
{
    char end[CHAT_MARK_BYTES];
    encoder *encoder;
    if (!o->tokenizer || encoder_open(o->tokenizer, &encoder, NULL))
        return;
    if (chat_end_is_text(chat, o->tokenizer, encoder, EXAMPLES_TODAY, end))
        note(data,
             "the template ends replies with %s, which the tokenizer does not recognize within text: replies end with several tokens of "
             "text, and generation stops only by chance: give a template that ends them with another token",
             end);
    encoder_close(encoder);
}

static pt_train_on asked_on(const dataset_options *o)
{
    return o->labels ? PT_TRAIN_ON_COMPLETION : o->names ? PT_TRAIN_ON_ALL : o->train_on;
}

/* Opens the token cache of records. Without a chat template the first conversation is an error; records of other kinds need none. */
static int open_examples(dataset *data, const dataset_options *o, const data_files *files, pt_data_format format, pt_train_on on,
                         pt_error *e)
{
    chat_source chat = {0};
    pt_error no_chat = {0};
    const bool has = o->model_dir && chat_source_open(&chat, o->model_dir, o->chat_template, &no_chat) == 0;
    const example_rules rules = {.format = format, .one_format = o->format != PT_DATA_AUTO, .on = on, .asked = asked_on(o),
                                 .plain = o->plain, .labels = o->labels,
                                 .scored = o->scored, .names = o->names, .padding = o->padding, .predicts = o->predicts,
                                 .tokenizer = o->tokenizer, .chat = has ? &chat : NULL, .no_chat = &no_chat,
                                 .now = EXAMPLES_TODAY};
    token_source s = {.o = o, .files = files, .rules = &rules};
    if (!o->model_dir)
        pt_fail(&no_chat, PT_FAILED, "chats need a model's chat template, but no model is given");
    int rc = open_cache(data, &s, e);
    if (rc == 0 && has && data->chats && o->chat_template)
        note_template(data, o, &chat);
    if (rc == 0 && has && data->chats)
        note_end(data, o, &chat);
    if (has)
        chat_source_close(&chat);
    return rc;
}

/* ---- examples to windows ---- */

static const char *name_of_file(void *arg, uint32_t file)
{
    const data_files *files = arg;
    return file < files->n ? files->files[file].path : "the data";
}

static int pack(dataset *data, const dataset_options *o, const data_files *files, pt_error *e)
{
    const uint64_t items = o->pairs ? data->tokens.documents / 2 : data->tokens.documents;
    const packing_options p = {.seq_len = o->seq_len, .seed = o->seed, .shuffle = o->shuffle, .alone = o->alone, .longer = o->longer,
                               .pairs = o->pairs, .scored = o->scored, .padding = o->padding, .labels = o->labels,
                               .share = share_of(o->part, o->seed, o->held, items),
                               .folder = o->cache_dir,
                               .file_name = name_of_file, .arg = (void *)files};
    data->packed = true;
    return packing_make(&data->tokens, &p, &data->packing, e);
}

/* ---- checks and notes ---- */

static const char *is(uint64_t n) { return n == 1 ? "is" : "are"; }
static const char *has(uint64_t n) { return n == 1 ? "has" : "have"; }

/* "FILE and 3 more" */
static void name_files(const data_files *files, char *out, size_t size)
{
    char more[48] = "";
    if (files->n > 1)
        snprintf(more, sizeof more, " and %zu more", files->n - 1);
    snprintf(out, size, "%.400s%s", files->files[0].path, more);
}

static int check_stream(const dataset *data, const data_files *files, bool evaluation, pt_error *e)
{
    const uint64_t n = dataset_tokens(data);
    char names[480];
    name_files(files, names, sizeof names);
    if (n < 2)
        return pt_fail(e, PT_FAILED, "%s: the data have %" PRIu64 " tokens, but at least two are needed: one to start from and one to "
                                     "predict", names, n);
    if (!evaluation && (n - 1) / (uint64_t)data->seq_len == 0)
        return pt_fail(e, PT_FAILED, "%s: the data have %" PRIu64 " tokens, but a window of sequence length %lld needs %lld: give a "
                                     "sequence length of at most %" PRIu64 ", or more data", names, n,
                       (long long)data->seq_len, (long long)data->seq_len + 1, n - 1);
    return 0;
}

/* PT_FAILED if there are too few examples or windows to split. */
static int check_share(const dataset *data, const dataset_options *o, const data_files *files, pt_error *e)
{
    char names[480];
    const uint64_t n = data->packed ? data->tokens.documents : data->share.n;
    if (o->part == SHARE_ALL || n > 1)
        return 0;
    name_files(files, names, sizeof names);
    return pt_fail(e, PT_FAILED, "%s: `eval_split` cannot split %" PRIu64 " %s: give `eval_data`, or more data", names, n,
                   data->packed ? n == 1 ? "example" : "examples"
                   : n == 1  ? "window"
                             : "windows");
}

/* The longest example that was too long, and the sequence length that it needs. "": none was. */
static void name_longest(const window_packing *p, const data_files *files, char *out, size_t size)
{
    char line[48] = "";
    out[0] = 0;
    if (!p->longest)
        return;
    if (p->longest_line)
        snprintf(line, sizeof line, ": line %" PRIu64, p->longest_line);
    snprintf(out, size, ": the longest, %.300s%s, needs `seq_len` %" PRIu64, name_of_file((void *)files, p->longest_file), line,
             p->longest);
}

/* Every example was too long, or has no learned token in its part that fits a window. */
static int fail_no_window(const dataset *data, const data_files *files, const char *names, pt_error *e)
{
    const window_packing *p = &data->packing;
    char dropped[96] = "", unlearned[160] = "", longest[420];
    name_longest(p, files, longest, sizeof longest);
    if (p->dropped)
        snprintf(dropped, sizeof dropped, "%" PRIu64 " %s longer than a window of %lld tokens", p->dropped, is(p->dropped),
                 (long long)data->seq_len);
    if (p->unlearned)
        snprintf(unlearned, sizeof unlearned, "%s%" PRIu64 " %s no token to learn in the part that fits a window of %lld token%s",
                 p->dropped ? ", and " : "", p->unlearned, has(p->unlearned), (long long)data->seq_len, plural((uint64_t)data->seq_len));
    return pt_fail(e, PT_FAILED, "%.300s: no example is left: %s%s; give a larger `seq_len`%s", names, dropped, unlearned, longest);
}

static int check_examples(const dataset *data, const dataset_options *o, const data_files *files, pt_error *e)
{
    const char *use = o->evaluation ? "evaluated" : "trained on";
    const token_tally *t = &data->tokens.tally;
    const window_packing *p = &data->packing;
    char names[480];
    name_files(files, names, sizeof names);
    if (data->tokens.ids.marked && !t->records)
        return pt_fail(e, PT_FAILED, "%s: the data have no record", names);
    if (data->tokens.ids.marked && !t->learned)
        return pt_fail(e, PT_FAILED,
                       "%s: none of the %" PRIu64 " token%s of %" PRIu64 " record%s would be %s, because there is no reply of the "
                       "assistant, or only replies of weight 0: with `train_on` all, every token is %s",
                       names, t->tokens, plural(t->tokens), t->records, plural(t->records), use, use);
    if (!p->windows)
        return fail_no_window(data, files, names, e);
    if (t->same.n && t->same.n == t->records)
        return pt_fail(e, PT_FAILED,
                       "%s: the chosen and rejected replies are the same in all records, so that nothing can be learned: give other data",
                       names);
    return 0;
}

static void sum_up(dataset *data, const dataset_options *o, pt_data_format format)
{
    const token_tally *t = &data->tokens.tally;
    const window_packing *p = &data->packing;
    const char *part = o->part == SHARE_HELD ? ", held out for evaluation" : "";
    if (data->tokens.ids.marked)
        snprintf(data->summary, sizeof data->summary,
                 "format %s%s: %" PRIu64 " of %" PRIu64 " record%s%s in %" PRIu64 " window%s, %.0f%% full; %" PRIu64 " of %" PRIu64
                 " tokens (%.0f%%) are %s",
                 format_name(format), t->others ? " and others" : "", p->examples, t->records, plural(t->records), part, p->windows,
                 plural(p->windows), 100 * (double)p->tokens / ((double)p->windows * (double)data->seq_len), p->learned, p->tokens,
                 100 * (double)p->learned / (double)(p->tokens ? p->tokens : 1),
                 o->evaluation || o->part == SHARE_HELD ? "evaluated" : "learned");
    else
        snprintf(data->summary, sizeof data->summary, "%" PRIu64 " text%s%s, a window each, %.0f%% full", p->examples,
                 plural(p->examples), part,
                 100 * (double)p->tokens / ((double)p->windows * (double)data->seq_len));
}

static void note_examples(dataset *data, const data_files *files)
{
    const token_tally *t = &data->tokens.tally;
    const window_packing *p = &data->packing;
    char longest[420];
    name_longest(p, files, longest, sizeof longest);
    const uint64_t all = p->examples + p->dropped + p->unlearned;
    if (t->unlearned)
        note(data, "%" PRIu64 " of %" PRIu64 " records %s no token to learn and %s left out", t->unlearned, t->records, has(t->unlearned),
             is(t->unlearned));
    if (p->cut)
        note(data,
             "%" PRIu64 " of %" PRIu64 " examples %s longer than a window of %lld tokens and %s cut (`long_examples` drop leaves them out)"
             "%s",
             p->cut, all, is(p->cut), (long long)data->seq_len, is(p->cut), longest);
    if (p->dropped)
        note(data, "%" PRIu64 " of %" PRIu64 " examples %s longer than a window of %lld tokens and %s left out%s", p->dropped, all,
             is(p->dropped), (long long)data->seq_len, is(p->dropped), longest);
    if (p->unlearned)
        note(data, "%" PRIu64 " of %" PRIu64 " examples %s no token to learn in the part that fits a window, and %s left out", p->unlearned,
             all, has(p->unlearned), is(p->unlearned));
}

/* Notes if a notable share of the tokens is unknown. */
static void note_unknown(dataset *data, const data_files *files)
{
    const unknown_tally *u = &data->tokens.tally.unknown;
    char line[48] = "";
    if (!unknown_matters(u))
        return;
    if (u->line)
        snprintf(line, sizeof line, ": line %" PRIu64, u->line);
    note(data,
         "%" PRIu64 " of %" PRIu64 " tokens (%.2g%%) are the unknown token, because the tokenizer has no token for their text; the first "
         "is in \"%s\" (%.200s%s): %s",
         u->unknown, u->ids, 100 * (double)u->unknown / (double)u->ids, u->text, name_of_file((void *)files, u->file), line,
         data->chats ? "give a `chat_template` whose special tokens the tokenizer has, or use a model that fits the data"
                  : "use a model whose tokenizer fits the data");
}

/* "FILE: line N" of the first of some records. */
static const char *first_place(const record_tally *t, const data_files *files, char out[280])
{
    snprintf(out, 280, "%.200s: line %" PRIu64, name_of_file((void *)files, t->file), t->line);
    return out;
}

static void note_records(dataset *data, const data_files *files)
{
    const token_tally *t = &data->tokens.tally;
    char first[280];
    if (t->same.n)
        note(data,
             "%" PRIu64 " of %" PRIu64 " records %s the same chosen and rejected reply, from which nothing is learned; the first is "
             "%s: remove such records",
             t->same.n, t->records, has(t->same.n), first_place(&t->same, files, first));
    if (t->misplaced.n)
        note(data,
             "%" PRIu64 " of %" PRIu64 " records %s a weight that has no effect; the first is %s: only messages of the assistant may have "
             "one",
             t->misplaced.n, t->records, has(t->misplaced.n), first_place(&t->misplaced, files, first));
    if (t->nulls.n)
        note(data,
             "%" PRIu64 " of %" PRIu64 " records %s null in tools or tool calls, as Parquet stores a key that is absent, and templates "
             "write it; the first is %s: remove such keys",
             t->nulls.n, t->records, has(t->nulls.n), first_place(&t->nulls, files, first));
}

/* Notes keys that look like content and were not read. */
static void note_unread(dataset *data, const data_files *files, pt_data_format format)
{
    const unread_tally *u = &data->tokens.tally.unread;
    char keys[480], line[48] = "";
    if (!u->keys[0].records)
        return;
    unread_name(u, true, keys, sizeof keys);
    if (u->line)
        snprintf(line, sizeof line, ": line %" PRIu64, u->line);
    note(data,
         "format %s does not read the keys %s, which look like content; the first is in %.200s%s: rename them (docs/chats.md has the "
         "keys of each format), or remove them",
         format_name(format), keys, name_of_file((void *)files, u->file), line);
}

static void note_endless(dataset *data, const data_files *files)
{
    size_t text = 0;
    for (size_t i = 0; i < files->n; i++)
        text += data_kind_is_text(files->files[i].kind);
    const char *so = text && data->tokens.documents > 1 ? "nothing separates documents"
                     : text < files->n && data->documents ? "each file of token ids is one document" : NULL;
    if (data->eos < 0 && so)
        note(data, "the model has no end-of-text token, so %s: set \"eos_token_id\" in config.json", so);
}

static void note_skipped(dataset *data, const data_files *files)
{
    if (files->skipped)
        note(data, "%" PRIu64 " %s of the data folders %s no data %s and %s left out: %s%s", files->skipped,
             files->skipped == 1 ? "entry" : "entries", is(files->skipped), files->skipped == 1 ? "file" : "files", is(files->skipped),
             files->first_skipped, files->skipped > 1 ? ", ..." : "");
}

static void note_splits(dataset *data, const dataset_options *o, const data_files *files)
{
    if (files->other_splits[0] && o->use != DATA_BESIDE)
        note(data, "the names of files tell splits apart: not %s: %s", o->use == DATA_TRAINS ? "trained on" : "evaluated on",
             files->other_splits);
}

/* ---- opening ---- */

static int open_stream(dataset *data, const dataset_options *o, const data_files *files, pt_error *e)
{
    token_source s = {.o = o, .files = files};
    if (o->examples)
        return pt_fail(e, PT_USAGE,
                       "`loss_per` example needs examples, but the data are one stream of text: leave the option out, or give "
                       "`no_packing`, which makes each text an example");
    int rc = open_cache(data, &s, e);
    if (rc == 0)
        rc = check_stream(data, files, o->evaluation && o->part == SHARE_ALL, e);
    if (rc < 0)
        return rc;
    data->documents = o->documents;
    data->share = share_of(o->part, o->seed, o->held, (dataset_tokens(data) - 1) / (uint64_t)data->seq_len);
    note_endless(data, files);
    note_unread(data, files, PT_DATA_TEXT);
    note_unknown(data, files);
    return check_share(data, o, files, e);
}

/* Makes each text an example. */
static int open_texts(dataset *data, const dataset_options *o, const data_files *files, pt_error *e)
{
    token_source s = {.o = o, .files = files};
    for (size_t i = 0; i < files->n; i++)
        if (!data_kind_is_text(files->files[i].kind))
            return pt_fail(e, PT_FAILED,
                           "%.400s: `no_packing` gives each text its own window, but a file of token ids has no texts: leave the option "
                           "out; `document_mask` separates the documents",
                           files->files[i].path);
    int rc = open_cache(data, &s, e);
    return rc < 0 ? rc : pack(data, o, files, e);
}

/* Classes and scores are of records. */
static int check_records(const data_files *files, pt_error *e)
{
    for (size_t i = 0; i < files->n; i++)
        if (files->files[i].kind == DATA_TEXT)
            return pt_fail(e, PT_FAILED, "%.400s: texts are scored record by record, and a .txt file has none: write each text as a line "
                                         "{\"text\": ...} of a .jsonl file", files->files[i].path);
    return 0;
}

static int check_pairs(const dataset_options *o, const data_files *files, pt_data_format format, pt_error *e)
{
    char names[480];
    const bool records = format != PT_DATA_TEXT && format != PT_DATA_TOKENS;
    const bool pairs = format == PT_DATA_PREFERENCE;
    if (o->names ? format != PT_DATA_TOKENS && !pairs : o->labels ? records : o->pairs == pairs)
        return o->names ? check_records(files, e) : 0;
    name_files(files, names, sizeof names);
    if (o->names)
        return pt_fail(e, PT_FAILED, "%s: labels of texts and conversations are learned, but these data have the format %s", names,
                       format_name(format));
    if (o->labels)
        return pt_fail(e, PT_FAILED, "%s: `task` %s needs replies to prompts with a \"label\", true or false, but these have the format %s",
                       names, o->task, format_name(format));
    if (o->pairs)
        return pt_fail(e, PT_FAILED, "%s: `task` %s needs records with \"chosen\" and \"rejected\" replies, but these have the format %s",
                       names, o->task ? o->task : "dpo", format_name(format));
    if (o->evaluation)
        return pt_fail(e, PT_FAILED,
                       "%s: records with chosen and rejected replies are evaluated by the run that trains on such (`task` dpo and others, "
                       "with `eval_data` or `eval_split`): keep only the chosen replies here, as {\"prompt\": ..., \"completion\": ...}",
                       names);
    return pt_fail(e, PT_FAILED,
                   "%s: records with chosen and rejected replies need a `task` that compares them, as `task` dpo: give it, or keep only "
                   "the chosen replies, as {\"prompt\": ..., \"completion\": ...}",
                   names);
}

static int open_data(dataset *data, const dataset_options *o, const data_files *files, pt_error *e)
{
    pt_data_format format;
    pt_train_on on = asked_on(o);
    int rc = data_recognize(files, o->columns, o->format, &format, &data->chats, e);
    dataset_options of_pairs;
    if (rc == 0 && o->predicts && o->names && o->names->n == 1 && format == PT_DATA_PREFERENCE) {
        of_pairs = *o;
        of_pairs.names = NULL;
        of_pairs.pairs = true;
        o = &of_pairs;
    }
    data->pairs = o->pairs;
    data->unlabelled = o->predicts && o->names ? o->names->n : 0;
    if (rc == 0)
        rc = check_pairs(o, files, format, e);
    if (rc == 0)
        rc = examples_learned(format, &on, e);
    if (rc < 0)
        return rc;
    const bool records = (format != PT_DATA_TEXT || o->names) && format != PT_DATA_TOKENS;
    if (!records && !o->alone)
        return open_stream(data, o, files, e);
    rc = records ? open_examples(data, o, files, format, on, e) : open_texts(data, o, files, e);
    if (rc == 0 && records)
        rc = pack(data, o, files, e);
    if (rc == 0)
        rc = check_share(data, o, files, e);
    if (rc == 0)
        rc = check_examples(data, o, files, e);
    if (rc == 0) {
        sum_up(data, o, format);
        note_examples(data, files);
        note_records(data, files);
        note_unread(data, files, format);
        note_unknown(data, files);
    }
    return rc;
}

int dataset_open(const dataset_options *o, dataset **out, pt_error *e)
{
    if (o->seq_len < 1 || o->vocab < 1 || o->vocab > INT32_MAX)
        return pt_fail(e, PT_USAGE, "sequence length %lld and vocabulary %lld must be from 1 to 2^31 - 1",
                       (long long)o->seq_len, (long long)o->vocab);
    dataset *data = calloc(1, sizeof *data);
    if (!data)
        return pt_fail(e, PT_FAILED, "out of memory: a dataset");
    *data = (dataset){.source_fd = -1,
                      .seq_len = o->seq_len,
                      .vocab = o->vocab,
                      .seed = o->seed,
                      .shuffle = o->shuffle,
                      .prompts = o->prompts,
                      .labels = o->labels,
                      .scored = o->scored,
                      .margins = o->margins,
                      .mismatched = o->mismatched,
                      .packing = {.fd = -1, .index_fd = -1},
                      .eos = o->tokenizer ? tokenizer_eos(o->tokenizer) : o->eos};
    data_files files;
    int rc = data_files_list(o->paths, o->paths_n, o->use, &files, e);
    if (rc == 0)
        rc = open_data(data, o, &files, e);
    note_splits(data, o, &files);
    note_skipped(data, &files);
    data_files_describe(&files, data->files, sizeof data->files);
    data_files_note(&files, data->notice, sizeof data->notice);
    data_files_free(&files);
    if (rc < 0) {
        dataset_close(data);
        return rc;
    }
    *out = data;
    return 0;
}

void dataset_close(dataset *data)
{
    if (!data)
        return;
    token_file_close(&data->tokens);
    packing_close(&data->packing);
    if (data->source_fd >= 0)
        close(data->source_fd);
    free(data->source_path);
    free(data);
}

uint64_t dataset_tokens(const dataset *data) { return data->packed ? data->packing.tokens : data->tokens.ids.n; }

bool dataset_apart(const dataset *data) { return data->packed || data->documents; }

bool dataset_packed(const dataset *data) { return data->packed; }

bool dataset_chats(const dataset *data) { return data->chats; }

const char *dataset_files(const dataset *data) { return data->files; }

const char *dataset_fingerprint(const dataset *data) { return data->tokens.fingerprint; }

const char *dataset_summary(const dataset *data) { return data->summary[0] ? data->summary : NULL; }

const char *dataset_notice(const dataset *data) { return data->notice[0] ? data->notice : NULL; }

/* Whether these n bytes are a line of the text. */
static bool has_line(const char *text, const char *line, size_t n)
{
    for (size_t k; *text; text += k + (text[k] == '\n')) {
        k = strcspn(text, "\n");
        if (k == n && !memcmp(text, line, n))
            return true;
    }
    return false;
}

void dataset_tell(const dataset *data, const dataset *told, const char *about, void (*notice)(void *, const char *), void *arg)
{
    char sentence[sizeof data->notice + 32];
    for (const char *line = data->notice; *line && notice; line += strspn(line, "\n")) {
        const size_t n = strcspn(line, "\n");
        snprintf(sentence, sizeof sentence, "%.30s%.*s", about, (int)n, line);
        if (!told || !has_line(told->notice, line, n))
            notice(arg, sentence);
        line += n;
    }
}
