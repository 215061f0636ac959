/* clocked.h - profiles by a clock that tells of every op what it should take, and the files that they are kept in. */
#ifndef PT_TEST_CLOCKED_H
#define PT_TEST_CLOCKED_H

#include "profile/support.h"

#include <dirent.h>

/* ---- a clock of their own ---- */

/* Every op takes as long as it says here, so that what is timed again agrees, however busy the machine is: long enough that
 * few of them fill the time for which contention is watched. */
static int64_t clock_ns;

static inline int64_t op_ns(const op *o)
{
    const int64_t each = 1000, long_ns = 20000000;
    switch (o->kind) {
    case OP_COPY: return each + (int64_t)o->copy.bytes;
    case OP_DISK_READ: case OP_DISK_WRITE: return each + 10 * (int64_t)o->disk.bytes;
    default: return long_ns;
    }
}

static inline void clocked_submit(queue *q, const op *o)
{
    clock_ns += op_ns(o);
    real_table->submit(q, o);
}

static inline void clocked_mark(queue *q, int64_t *ns) { *ns = clock_ns; }
static inline void clocked_mark_work(queue *q, int64_t *ns) { *ns = clock_ns * q->threads; }
static inline void clocked_mark_waited(queue *q, int64_t *ns) { *ns = 0; }

static inline void clocked_open(setup *s, int config, int64_t seq_len)
{
    setup_open(s, test_configs[config], PT_F32, 4, seq_len);
    counting_table.submit = clocked_submit;
    counting_table.mark = clocked_mark;
    counting_table.mark_work = clocked_mark_work;
    counting_table.mark_waited = clocked_mark_waited;
}

/* What was measured there, in a file of its own that requests name from then on. */
static inline void write_profile(setup *s, int config, bool transfers, profile_result *p, char path[300])
{
    pt_error e = {0};
    clocked_open(s, config, 16);
    s->r.transfers = transfers;
    s->r.host_tier &= transfers;
    profile_must(s, p);
    snprintf(path, 300, "%s/p.json", scratch);
    if (profile_write(path, &s->r, p, &e))
        fail_msg("%s", e.text);
    s->r.file = path;
}

/* ---- files ---- */

/* Calls fn for each file of the cache; returns their number. */
static inline int each_file(void (*fn)(const char *path))
{
    char folder[256], path[600];
    int n = 0;
    snprintf(folder, sizeof folder, "%s/protrain", scratch);
    DIR *d = opendir(folder);
    for (struct dirent *entry; d && (entry = readdir(d));) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (fn)
            fn(path);
        n++;
    }
    if (d)
        closedir(d);
    return n;
}

static inline void read_text(const char *path, char **text)
{
    size_t n;
    assert_int_equal(file_read_all(path, 1 << 20, text, &n, NULL), 0);
}

static inline void put(const char *path, const char *text, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    fclose(f);
}

#endif
