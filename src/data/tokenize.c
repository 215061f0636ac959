#include "data/tokenize.h"

#include "base/cores.h"
#include "data/documents.h"
#include "data/formats.h"
#include "data/unknown.h"
#include "data/unread.h"
#include "text/buffer.h"
#include "text/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    PIECE_BYTES = 256 << 10,
    PIECE_BYTES_MIN = 1024,
    PIECE_BYTES_MAX = 64 << 20, /* the limit of a piece in which no place for a cut is found */
    CUT_SEARCH = 4096,          /* bytes beyond a piece that the search for a cut needs */
    JOB_SEGMENTS = 4096,
};

/* A document, a piece of one, or a record, in a job's text. */
typedef struct segment {
    size_t at, n;
    bool begins, ends;     /* it has the beginning, the end of the document */
    const char *path;
    uint32_t file;
    record_place place;    /* of the record */
    uint64_t offset;       /* of its first byte in the document */
} segment;

typedef enum job_state { JOB_FREE, JOB_FULL, JOB_DONE } job_state;

typedef struct text_job {
    job_state state;
    bool last;             /* the last text_job */
    int rc;
    pt_error error;        /* why rc < 0 */
    text_buffer text;
    segment *segments;
    size_t segments_n;
    id_list ids;
    token_example *starts; /* where documents or examples begin in `ids`, and their origin */
    size_t starts_n;
    uint64_t text_ids;     /* without BOS and EOS */
    token_tally tally;     /* of its records */
    uint64_t done_bytes;   /* of all files, when this job was filled */
} text_job;

typedef struct pipeline {
    const tokenize_options *o;
    const data_file *files;
    size_t files_n;
    size_t piece_bytes;
    int workers;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stop;             /* a thread failed: all stop */
    bool ended;            /* the last job is submitted */
    uint64_t filled, taken; /* jobs submitted by the reader, taken by workers */
    uint64_t jobs_n;
    atomic_bool unknown_seen; /* set by the writer: an earlier job has an unknown token, whose text is the one reported */
    text_job *jobs;
} pipeline;

/* ---- reader ---- */

typedef struct feeder {
    pipeline *p;
    text_job *job;              /* being filled, or NULL */
    size_t limit;          /* the size at which the current piece is cut */
    const char *path;
    uint32_t file;
    uint64_t done_bytes, file_bytes;
} feeder;

static int next_job(feeder *f, pt_error *e)
{
    pipeline *p = f->p;
    if (f->job)
        return 0;
    pthread_mutex_lock(&p->lock);
    text_job *j = &p->jobs[p->filled % p->jobs_n];
    while (!p->stop && j->state != JOB_FREE)
        pthread_cond_wait(&p->changed, &p->lock);
    bool stop = p->stop;
    pthread_mutex_unlock(&p->lock);
    if (stop)
        return pt_fail(e, PT_FAILED, "tokenizing was stopped");
    if (j->text.capacity > 8 * p->piece_bytes) { /* an exceptionally large buffer: freed */
        text_buffer_free(&j->text);
        id_list_free(&j->ids);
    }
    j->text.n = j->segments_n = j->starts_n = j->ids.n = 0;
    j->text_ids = 0;
    j->tally = (token_tally){0};
    j->rc = 0;
    j->last = false;
    f->job = j;
    return 0;
}

static void submit(feeder *f, bool last)
{
    pipeline *p = f->p;
    f->job->done_bytes = f->done_bytes + f->file_bytes;
    f->job->last = last;
    pthread_mutex_lock(&p->lock);
    f->job->state = JOB_FULL;
    p->filled++;
    p->ended = last;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    f->job = NULL;
}

static segment *current(feeder *f)
{
    return &f->job->segments[f->job->segments_n - 1];
}

static void add_segment(feeder *f, segment s)
{
    s.at = f->job->text.n;
    s.path = f->path;
    s.file = f->file;
    f->job->segments[f->job->segments_n++] = s;
    f->limit = f->p->piece_bytes + CUT_SEARCH > s.n ? f->p->piece_bytes + CUT_SEARCH : s.n; /* the rest of a long piece may be longer */
}

static int feed_begin(void *arg, record_place at, pt_error *e)
{
    feeder *f = arg;
    int rc = next_job(f, e);
    if (rc == 0)
        add_segment(f, (segment){.begins = true, .place = at});
    return rc;
}

/* Submits the piece before text[cut]; the rest begins a new job. */
static int split(feeder *f, size_t cut, pt_error *e)
{
    segment *s = current(f), rest = {.place = s->place, .offset = s->offset + cut, .n = s->n - cut};
    text_job *j = f->job;
    s->n = cut;
    submit(f, false);
    int rc = next_job(f, e); /* not j, whose text stays unchanged */
    if (rc < 0)
        return rc;
    add_segment(f, rest);
    return text_buffer_append(&f->job->text, j->text.bytes + j->text.n - rest.n, rest.n, e);
}

/* Prefixes an error with the place of a piece in its file. */
static int name_place(const segment *s, pt_error *e)
{
    if (s->place.line)
        return pt_error_prefix(e, "%s: the document on line %llu", s->path, (unsigned long long)s->place.line);
    return pt_error_prefix(e, "%s: the text from byte %llu on", s->path, (unsigned long long)s->offset);
}

/* Replaces a tokenizer's error by one that names the place in the file. */
static int name_failure(const text_job *j, const segment *s, pt_error *e)
{
    const size_t bad = utf8_valid_prefix(j->text.bytes + s->at, s->n);
    if (bad == s->n || s->place.line)
        return name_place(s, e);
    return pt_fail(e, PT_FAILED, "%s: byte %llu is not UTF-8, and this tokenizer has no tokens for single bytes: convert the file to UTF-8",
                   s->path, (unsigned long long)(s->offset + bad));
}

static int cut_piece(feeder *f, pt_error *e)
{
    const segment *s = current(f);
    size_t cut = tokenizer_cut(f->p->o->tokenizer, f->job->text.bytes + s->at, s->n, f->p->piece_bytes);
    if (cut < s->n)
        return split(f, cut, e);
    if (f->limit >= PIECE_BYTES_MAX) {
        pt_fail(e, PT_FAILED, "%d MiB of text without a place where this tokenizer could cut it: split the text into several documents",
                PIECE_BYTES_MAX >> 20);
        return name_failure(f->job, s, e);
    }
    f->limit *= 2;
    return 0;
}

/* Of a stream: a record whose text alone is read. */
static int feed_record(void *arg, record_place at, const json_t *record, const text_buffer *text, pt_error *e)
{
    feeder *f = arg;
    const int rc = next_job(f, e);
    if (rc == 0)
        unread_count(record, (const text_buffer *const[]){text, NULL}, at.line, f->file, &f->job->tally.unread);
    return rc;
}

static int feed_text(void *arg, const char *p, size_t n, uint64_t file_bytes, pt_error *e)
{
    feeder *f = arg;
    f->file_bytes = file_bytes;
    if (f->p->o->rules) {
        current(f)->n += n;
        return text_buffer_append(&f->job->text, p, n, e);
    }
    while (n > 0) {
        size_t room = f->limit - current(f)->n;
        size_t take = n < room ? n : room;
        int rc = text_buffer_append(&f->job->text, p, take, e);
        if (rc < 0)
            return rc;
        current(f)->n += take;
        p += take;
        n -= take;
        if (take == room && (rc = cut_piece(f, e)) < 0)
            return rc;
    }
    return 0;
}

static int feed_end(void *arg, pt_error *e)
{
    feeder *f = arg;
    current(f)->ends = true;
    if (f->job->text.n >= f->p->piece_bytes || f->job->segments_n == JOB_SEGMENTS)
        submit(f, false);
    return 0;
}

static int read_file(feeder *f, const data_file *file, uint32_t number, pt_error *e)
{
    const document_sink sink = {f, feed_begin, feed_text, feed_end, feed_record, file->share, f->p->o->columns};
    f->path = file->path;
    f->file = number;
    f->file_bytes = 0;
    int fd = open(file->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return pt_fail_errno(e, PT_FAILED, "%s: cannot open this file", file->path);
    posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    int rc = documents_read(fd, file->path, file->kind, f->p->o->rules ? DOCUMENT_RECORD : DOCUMENT_TEXT, &sink, e);
    close(fd);
    f->file_bytes = 0;
    f->done_bytes += file->bytes;
    return rc;
}

/* The last job has the rest of the text, and the reader's error, if any. Errors in the job's documents replace it, because they come first
 * in the text. */
static void *reader_main(void *arg)
{
    pipeline *p = arg;
    feeder f = {.p = p, .done_bytes = p->o->done_bytes};
    pt_error error = {0};
    int rc = 0;
    for (size_t i = 0; i < p->files_n && rc == 0; i++)
        rc = read_file(&f, &p->files[i], p->o->first_file + (uint32_t)i, &error);
    if (next_job(&f, NULL) == 0) {
        if (rc < 0) {
            f.job->rc = rc;
            f.job->error = error;
        }
        submit(&f, true);
    }
    return NULL;
}

/* ---- workers ---- */

/* PT_FAILED if an id is outside the model's vocabulary. */
static int check_ids(const pipeline *p, const uint32_t *ids, size_t n, pt_error *e)
{
    for (size_t i = 0; i < n; i++)
        if (ids[i] >= p->o->vocab)
            return pt_fail(e, PT_FAILED, "the tokenizer gives id %u, but the model's vocabulary has %lld tokens: tokenizer and model do "
                                         "not belong together", ids[i], (long long)p->o->vocab);
    return 0;
}

static void tell_unknown(pipeline *p, text_job *j, const unknown_search *s, const uint32_t *ids, size_t n)
{
    unknown_count(s, ids, n, !atomic_load(&p->unknown_seen), &j->tally.unknown);
}

static int encode_segment(pipeline *p, encoder *encoder, text_job *j, const segment *s, pt_error *e)
{
    const tokenizer *tok = p->o->tokenizer;
    size_t first = j->ids.n;
    int rc = 0;
    if (s->begins) {
        j->starts[j->starts_n++] = (token_example){.start = j->ids.n};
        if (tokenizer_template_adds_bos(tok) && tokenizer_bos(tok) >= 0)
            rc = id_list_push(&j->ids, (uint32_t)tokenizer_bos(tok), e);
    }
    size_t from = j->ids.n;
    if (rc == 0 && s->n > 0 &&
        (rc = encoder_run(encoder, j->text.bytes + s->at, s->n, s->begins ? 0 : ENCODE_CONTINUES, &j->ids, e)) < 0)
        rc = name_failure(j, s, e);
    j->text_ids += j->ids.n - from;
    if (rc == 0)
        tell_unknown(p, j, &(unknown_search){tok, encoder, s->begins ? 0 : ENCODE_CONTINUES, j->text.bytes + s->at, s->n, s->file, 0},
                     j->ids.ids + from, j->ids.n - from);
    if (rc == 0 && s->ends && tokenizer_eos(tok) >= 0)
        rc = id_list_push(&j->ids, (uint32_t)tokenizer_eos(tok), e);
    if (rc == 0 && (rc = check_ids(p, j->ids.ids + first, j->ids.n - first, e)) < 0)
        rc = name_place(s, e);
    return rc;
}

/* ---- examples ---- */

/* The rules for a record, which may have another format than the first one. */
static int rules_of(const example_rules *all, json_t *record, const char *where, example_rules *own, pt_error *e)
{
    const pt_data_format f = format_of(record);
    *own = *all;
    if (format_fits(all->format, record))
        return 0;
    if (f == PT_DATA_AUTO)
        return format_unknown(record, where, e);
    const bool text = f == PT_DATA_TEXT && !all->labels;
    if (all->one_format || !(format_converses(f) || text) || !format_converses(all->format))
        return pt_fail(e, PT_FAILED, "%.400s: a record with %s (format %s) follows records with %s (%s): all records of a run must have "
                                     "one format, or be conversations, prompts with their replies and texts", where, format_keys(f),
                       format_name(f), format_keys(all->format), format_name(all->format));
    own->format = f;
    own->on = all->asked;
    return examples_learned(f, &own->on, e);
}

/* The number of ids up to the last learned one: later ids have no effect. */
static size_t ids_that_count(const chat_tokens *x, uint32_t *learned)
{
    size_t n = 0;
    *learned = 0;
    for (size_t i = 1; i < x->ids.n; i++)
        if (x->learned[i]) {
            ++*learned;
            n = i + 1;
        }
    return n;
}

static void count_record(record_tally *t, const segment *s)
{
    if (!t->n++) {
        t->line = s->place.line;
        t->file = s->file;
    }
}

static bool same_ids(const chat_tokens x[2])
{
    return x[0].ids.n == x[1].ids.n && !memcmp(x[0].ids.ids, x[1].ids.ids, x[0].ids.n * sizeof *x[0].ids.ids);
}

/* In place of the example that a label leaves out: two ids of the other, one place, with nothing to learn. */
static int put_nothing(text_job *j, const chat_tokens *other, pt_error *e)
{
    int rc = id_list_push(&j->ids, other->ids.ids[0], e);
    return rc < 0 ? rc : id_list_push(&j->ids, other->ids.ids[0], e);
}

/* Adds the example of a record, or its pair; nothing if one of them has no learned id. */
static int put_examples(text_job *j, const segment *s, const chat_tokens *x, int many, float margin, pt_error *e)
{
    token_example at[2];
    size_t n[2];
    bool all = true, some = false;
    for (int k = 0; k < many; k++) {
        at[k] = (token_example){.line = s->place.line, .file = s->file, .margin = k ? 0 : margin};
        n[k] = ids_that_count(&x[k], &at[k].learned);
        all = all && (n[k] > 0 || !x[k].ids.n);
        some = some || n[k] > 0;
        j->tally.tokens += x[k].ids.n;
        j->tally.learned += at[k].learned;
    }
    all = all && some;
    j->tally.records++;
    j->tally.unlearned += !all;
    int rc = 0;
    for (int k = 0; k < many && all; k++) {
        at[k].start = j->ids.n;
        j->starts[j->starts_n++] = at[k];
        if (!x[k].ids.n)
            rc = put_nothing(j, &x[1 - k], e);
        for (size_t i = 0; i < n[k] && rc == 0; i++)
            rc = id_list_push(&j->ids, x[k].ids.ids[i] | (i && x[k].learned[i] ? ID_LEARNED : 0), e);
    }
    return rc;
}

/* Messages show about 300 bytes of a place: of a long path its end. */
static void name_record(const segment *s, char out[300])
{
    enum { SHOWN = 240 };
    const size_t n = strlen(s->path);
    snprintf(out, 300, "%s%s: line %llu", n > SHOWN ? "..." : "", n > SHOWN ? s->path + n - SHOWN : s->path,
             (unsigned long long)s->place.line);
}

/* By how much the chosen reply is to be better, 0 if the record does not say; removes it. */
static int take_margin(json_t *record, const char *where, float *margin, pt_error *e)
{
    const json_t *given = json_object_get(record, "margin");
    *margin = (float)json_number_value(given);
    if (given && !json_is_null(given) && (!json_is_number(given) || !isfinite(*margin)))
        return pt_fail(e, PT_FAILED, "%.400s: \"margin\" must be a number, by how much the chosen reply is better", where);
    json_object_del(record, "margin");
    return 0;
}

static int encode_record(pipeline *p, encoder *encoder, chat_tokens *x, text_job *j, const segment *s, pt_error *e)
{
    char where[300];
    json_t *record;
    example_rules rules;
    name_record(s, where);
    int rc = record_parse(s->path, s->place, j->text.bytes + s->at, s->n, &record, e);
    columns_rename(p->o->columns, record);
    if (rc == 0)
        rc = rules_of(p->o->rules, record, where, &rules, e);
    const bool pair = example_is_pair(p->o->rules), misplaced = rc == 0 && format_has_idle_weight(record);
    const bool nulls = rc == 0 && format_has_null(record);
    float margin = 0;
    if (rc == 0 && pair && p->o->rules->scored)
        rc = take_margin(record, where, &margin, e);
    if (rc == 0)
        rc = pair ? example_make_pair(&rules, encoder, record, where, x, e) : example_make(&rules, encoder, record, where, x, e);
    for (int k = 0; k < 1 + pair && rc == 0; k++)
        if ((rc = check_ids(p, x[k].ids.ids, x[k].ids.n, e)) < 0)
            rc = pt_error_prefix(e, "%s", where);
    for (int k = 0; k < 1 + pair && rc == 0; k++)
        tell_unknown(p, j, &(unknown_search){p->o->tokenizer, encoder, 0, x[k].rendering.text.bytes, x[k].rendering.text.n, s->file,
                                             s->place.line}, x[k].ids.ids, x[k].ids.n - p->o->rules->scored);
    if (rc == 0 && pair && same_ids(x))
        count_record(&j->tally.same, s);
    j->tally.others += rc == 0 && rules.format != p->o->rules->format;
    if (rc == 0 && misplaced)
        count_record(&j->tally.misplaced, s);
    if (rc == 0 && nulls)
        count_record(&j->tally.nulls, s);
    if (rc == 0)
        unread_count(record, (const text_buffer *const[]){&x[0].rendering.text, pair ? &x[1].rendering.text : NULL}, s->place.line, s->file,
                     &j->tally.unread);
    json_decref(record);
    return rc < 0 ? rc : put_examples(j, s, x, 1 + pair, margin, e);
}

static void encode_job(pipeline *p, encoder *encoder, chat_tokens *x, text_job *j)
{
    pt_error error = {0};
    int rc = 0;
    for (size_t i = 0; i < j->segments_n && rc == 0; i++)
        rc =
            p->o->rules ? encode_record(p, encoder, x, j, &j->segments[i], &error) : encode_segment(p, encoder, j, &j->segments[i], &error);
    if (rc < 0) { /* replaces an error of the reader, which comes after this text */
        j->rc = rc;
        j->error = error;
    }
}

/* The next job to encode; NULL: no more will come. */
static text_job *take_job(pipeline *p)
{
    text_job *j = NULL;
    pthread_mutex_lock(&p->lock);
    while (!p->stop && !p->ended && p->taken == p->filled)
        pthread_cond_wait(&p->changed, &p->lock);
    if (!p->stop && p->taken < p->filled)
        j = &p->jobs[p->taken++ % p->jobs_n];
    pthread_mutex_unlock(&p->lock);
    return j;
}

static void *worker_main(void *arg)
{
    pipeline *p = arg;
    encoder *encoder = NULL;
    chat_tokens x[2] = {0};
    pt_error open_error = {0};
    int opened = encoder_open(p->o->tokenizer, &encoder, &open_error);
    for (text_job *j; (j = take_job(p));) {
        if (opened < 0) {
            j->rc = opened;
            j->error = open_error;
        } else {
            encode_job(p, encoder, x, j);
        }
        pthread_mutex_lock(&p->lock);
        j->state = JOB_DONE;
        pthread_cond_broadcast(&p->changed);
        pthread_mutex_unlock(&p->lock);
    }
    if (opened == 0)
        encoder_close(encoder);
    chat_tokens_free(&x[0]);
    chat_tokens_free(&x[1]);
    return NULL;
}

/* ---- writer ---- */

static int write_examples(const text_job *j, token_writer *w, pt_error *e)
{
    int rc = 0;
    for (size_t i = 0; i < j->starts_n && rc == 0; i++) {
        const uint64_t start = j->starts[i].start, end = i + 1 < j->starts_n ? j->starts[i + 1].start : j->ids.n;
        rc = token_writer_example(w, &j->starts[i], j->ids.ids + start, end - start, e);
    }
    return rc;
}

static int write_documents(const text_job *j, token_writer *w, pt_error *e)
{
    size_t at = 0;
    int rc = 0;
    for (size_t i = 0; i < j->starts_n && rc == 0; i++) {
        rc = token_writer_ids(w, j->ids.ids + at, j->starts[i].start - at, e);
        at = j->starts[i].start;
        if (rc == 0)
            rc = token_writer_document(w, e);
    }
    return rc < 0 ? rc : token_writer_ids(w, j->ids.ids + at, j->ids.n - at, e);
}

static void add_records(record_tally *all, const record_tally *more)
{
    const uint64_t n = all->n + more->n;
    if (!all->n)
        *all = *more;
    all->n = n;
}

static void add_tally(token_tally *all, const token_tally *more)
{
    add_records(&all->same, &more->same);
    add_records(&all->misplaced, &more->misplaced);
    add_records(&all->nulls, &more->nulls);
    unknown_add(&all->unknown, &more->unknown);
    unread_add(&all->unread, &more->unread);
    all->records += more->records;
    all->unlearned += more->unlearned;
    all->others += more->others;
    all->tokens += more->tokens;
    all->learned += more->learned;
}

static int write_all(pipeline *p, token_writer *w, uint64_t *text_ids, token_tally *tally, pt_error *e)
{
    for (uint64_t k = 0;; k++) {
        text_job *j = &p->jobs[k % p->jobs_n];
        pthread_mutex_lock(&p->lock);
        while (j->state != JOB_DONE)
            pthread_cond_wait(&p->changed, &p->lock);
        pthread_mutex_unlock(&p->lock);
        if (j->rc < 0) {
            if (e)
                *e = j->error;
            return j->rc;
        }
        int rc = p->o->rules ? write_examples(j, w, e) : write_documents(j, w, e);
        if (rc < 0)
            return rc;
        bool last = j->last;
        *text_ids += j->text_ids;
        if (tally)
            add_tally(tally, &j->tally);
        if (j->tally.unknown.unknown)
            atomic_store(&p->unknown_seen, true);
        if (p->o->progress)
            p->o->progress(p->o->progress_arg, j->done_bytes, p->o->total_bytes);
        pthread_mutex_lock(&p->lock);
        j->state = JOB_FREE;
        pthread_cond_broadcast(&p->changed);
        pthread_mutex_unlock(&p->lock);
        if (last)
            return 0;
    }
}

/* ---- all together ---- */

static int pipeline_init(pipeline *p, pt_error *e)
{
    p->piece_bytes = p->o->piece_bytes ? p->o->piece_bytes : PIECE_BYTES;
    if (p->piece_bytes < PIECE_BYTES_MIN)
        p->piece_bytes = PIECE_BYTES_MIN;
    p->workers = p->o->threads > 0 ? p->o->threads : cores_allowed();
    p->jobs_n = 2 * (uint64_t)p->workers + 2;
    p->jobs = calloc(p->jobs_n, sizeof *p->jobs);
    bool failed = !p->jobs;
    for (uint64_t i = 0; i < p->jobs_n && !failed; i++) {
        p->jobs[i].segments = malloc(JOB_SEGMENTS * sizeof *p->jobs[i].segments);
        p->jobs[i].starts = malloc(2 * JOB_SEGMENTS * sizeof *p->jobs[i].starts);
        failed = !p->jobs[i].segments || !p->jobs[i].starts;
    }
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    return failed ? pt_fail(e, PT_FAILED, "out of memory: buffers for %d tokenizing threads", p->workers) : 0;
}

static void pipeline_free(pipeline *p)
{
    for (uint64_t i = 0; p->jobs && i < p->jobs_n; i++) {
        text_buffer_free(&p->jobs[i].text);
        free(p->jobs[i].segments);
        free(p->jobs[i].starts);
        id_list_free(&p->jobs[i].ids);
    }
    free(p->jobs);
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->changed);
#ifdef __GLIBC__
    malloc_trim(0); /* memory kept by the threads' arenas would count against the run's budget */
#endif
}

static void stop(pipeline *p)
{
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

int tokenize_files(const data_file *files, size_t n, const tokenize_options *o, token_writer *w,
                   uint64_t *text_ids, token_tally *tally, pt_error *e)
{
    pipeline p = {.o = o, .files = files, .files_n = n};
    *text_ids = 0;
    int rc = pipeline_init(&p, e), started = 0;
    pthread_t *threads = rc == 0 ? calloc((size_t)p.workers + 1, sizeof *threads) : NULL;
    if (rc == 0 && !threads)
        rc = pt_fail(e, PT_FAILED, "out of memory: a list of %d threads", p.workers);
    for (; rc == 0 && started < p.workers + 1; started++)
        if ((errno = pthread_create(&threads[started], NULL, started ? worker_main : reader_main, &p)) != 0) {
            if (started > 1)
                break; /* continue with fewer threads */
            rc = pt_fail_errno(e, PT_FAILED, "cannot start a thread for tokenizing");
            break;
        }
    if (rc == 0)
        rc = write_all(&p, w, text_ids, tally, e);
    stop(&p);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    free(threads);
    pipeline_free(&p);
    return rc;
}
