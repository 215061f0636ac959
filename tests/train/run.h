/* run.h - short runs through the library, and what they leave in their folders. Include after cmocka.h. */
#ifndef PT_TEST_RUN_H
#define PT_TEST_RUN_H

#include "protrain.h"

#include "train/fixture.h"

#include <sys/stat.h>

enum { STEPS = 8 };

typedef struct setting { const char *fixture; pt_precision precision; double max_grad_norm; bool shuffle; pt_optimizer optimizer; } setting;

typedef struct run {
    fixture f;
    const char *data[1];
    char out[128], plan_path[160];
    pt_train_options o;
    int64_t first_step; /* from which run_until went on, 0: from none */
} run;

static inline void run_make(run *r, const setting *s, const char *out)
{
    memset(r, 0, sizeof *r);
    fixture_open(&r->f, "models", s->fixture);
    r->data[0] = r->f.tokens;
    snprintf(r->out, sizeof r->out, "%s/%s", scratch, out);
    fixture_options(&r->f, r->data, r->out, &r->o);
    r->o.precision = s->precision;
    r->o.max_grad_norm = s->max_grad_norm;
    r->o.shuffle = s->shuffle;
    r->o.optimizer = s->optimizer;
    r->o.steps = STEPS;
    r->o.save_type = PT_SAVE_AS_STORED;
    r->o.lr_schedule = PT_LR_LINEAR;
}

static inline void run_free(run *r) { fixture_close(&r->f); }

/* From where the run stands to step `until`, and a checkpoint there. */
static inline int run_until(run *r, int64_t until, pt_error *e)
{
    pt_trainer *t;
    pt_step s = {0};
    int failed = pt_trainer_open(&r->o, &t, e), more = 1;
    if (failed)
        return failed;
    pt_summary m;
    pt_trainer_summary(t, &m);
    r->first_step = m.first_step;
    for (int64_t step = m.first_step; step < until && more > 0; step++)
        more = pt_trainer_step(t, &s, e);
    failed = more < 0 ? more : pt_trainer_save(t, e);
    pt_trainer_close(t);
    return failed;
}

/* metrics.jsonl, one object a line; checks that the steps are 1 .. n. */
static inline int read_metrics(const run *r, json_t **lines, int room)
{
    char path[200], *text;
    size_t size;
    pt_error e = {0};
    int n = 0;
    snprintf(path, sizeof path, "%s/metrics.jsonl", r->out);
    must(file_read_all(path, 1u << 20, &text, &size, &e), &e);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        assert_true(n < room);
        lines[n] = json_loads(line, 0, NULL);
        assert_int_equal(json_integer_value(json_object_get(lines[n], "step")), n + 1);
        n++;
    }
    free(text);
    return n;
}

static inline bool has_checkpoint(const run *r, int step)
{
    char path[200];
    snprintf(path, sizeof path, "%s/checkpoint-%d/trainer/trainer.json", r->out, step);
    return path_exists(path);
}

/* Of which files a folder holds, with their sizes and times. */
static inline uint64_t hash_of_folder(const char *folder)
{
    char path[FILE_PATH_BYTES];
    struct dirent **entries;
    struct stat st;
    pt_error e = {0};
    uint64_t h = 1469598103934665603u;
    int n = scandir(folder, &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        const char *name = entries[i]->d_name;
        must(path_join(path, folder, name, &e), &e);
        if (strcmp(name, ".") && strcmp(name, "..") && stat(path, &st) == 0) {
            h = (h ^ (uint64_t)st.st_ino ^ (uint64_t)st.st_size << 20 ^ (uint64_t)st.st_mtim.tv_nsec) * 1099511628211u;
            h = S_ISDIR(st.st_mode) ? h ^ hash_of_folder(path) : h;
        }
        free(entries[i]);
    }
    free(entries);
    return h;
}

#endif
