#include "train/events.h"

#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { RECORD_MOST = 1024, FRAME = 16 };

/* ---- checksums ---- */

uint32_t crc32c(const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    uint32_t crc = 0xffffffff;
    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
    }
    return ~crc;
}

static uint32_t masked(const void *bytes, size_t n)
{
    const uint32_t crc = crc32c(bytes, n);
    return (crc >> 15 | crc << 17) + 0xa282ead8;
}

/* ---- protobuf ---- */

typedef struct message {
    unsigned char bytes[RECORD_MOST];
    size_t n;
} message;

enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 };

/* The records consist of tags of tens of bytes and a dozen numbers, so they fit. */
static void put(message *m, const void *bytes, size_t n)
{
    memcpy(m->bytes + m->n, bytes, n);
    m->n += n;
}

static void put_varint(message *m, uint64_t x)
{
    for (; x >= 0x80; x >>= 7)
        m->bytes[m->n++] = (unsigned char)(x | 0x80);
    m->bytes[m->n++] = (unsigned char)x;
}

static void put_key(message *m, int field, int wire) { put_varint(m, (uint64_t)(field << 3 | wire)); }

static void put_bytes(message *m, int field, const void *bytes, size_t n)
{
    put_key(m, field, WIRE_BYTES);
    put_varint(m, n);
    put(m, bytes, n);
}

static void begin_event(message *m, int64_t step)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const double wall = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    m->n = 0;
    put_key(m, 1, WIRE_64);
    put(m, &wall, sizeof wall);
    put_key(m, 2, WIRE_VARINT);
    put_varint(m, (uint64_t)step);
}

static void put_value(message *summary, const char *tag, double value)
{
    message m = {.n = 0};
    const float rounded = (float)value;
    put_bytes(&m, 1, tag, strlen(tag));
    put_key(&m, 2, WIRE_32);
    put(&m, &rounded, sizeof rounded);
    put_bytes(summary, 1, m.bytes, m.n);
}

/* ---- records ---- */

static int write_record(const events *v, const message *m, pt_error *e)
{
    unsigned char record[RECORD_MOST + FRAME];
    const uint64_t length = m->n;
    const uint32_t of_length = masked(&length, sizeof length), of_data = masked(m->bytes, m->n);
    const off_t end = lseek(v->fd, 0, SEEK_END);
    memcpy(record, &length, 8);
    memcpy(record + 8, &of_length, 4);
    memcpy(record + 12, m->bytes, m->n);
    memcpy(record + 12 + m->n, &of_data, 4);
    const int failed = fd_write_all(v->fd, record, m->n + FRAME, v->path, e);
    if (failed && end >= 0)
        (void)!ftruncate(v->fd, end); /* an incomplete record would hide those after it */
    return failed;
}

static int write_summary(const events *v, int64_t step, const message *summary, pt_error *e)
{
    message m;
    begin_event(&m, step);
    put_bytes(&m, 5, summary->bytes, summary->n);
    return write_record(v, &m, e);
}

static void put_finite(message *summary, const char *tag, double value)
{
    if (isfinite(value))
        put_value(summary, tag, value);
}

static void put_evaluation(message *summary, const pt_step *step)
{
    put_value(summary, "eval/loss", step->eval_loss);
    put_finite(summary, "eval/accuracy", step->eval_accuracy);
    if (!step->pairs)
        return;
    put_finite(summary, "eval/reward_chosen", step->eval_reward_chosen);
    put_finite(summary, "eval/reward_rejected", step->eval_reward_rejected);
    put_finite(summary, "eval/reward_margin", step->eval_reward_margin);
    put_finite(summary, "eval/reward_accuracy", step->eval_reward_accuracy);
    put_finite(summary, "eval/kl", step->eval_kl);
}

int events_write(const events *v, const pt_step *step, const pt_memory *memory, int memory_n, pt_error *e)
{
    message summary = {.n = 0};
    if (v->fd < 0)
        return 0;
    put_value(&summary, "train/loss", step->loss);
    put_value(&summary, "train/grad_norm", step->grad_norm);
    put_value(&summary, "train/learning_rate", step->lr);
    put_value(&summary, "train/tokens", (double)step->tokens);
    put_value(&summary, "train/learned_tokens", (double)step->learned_tokens);
    put_value(&summary, "speed/tokens_per_s", step->tokens_per_s);
    put_value(&summary, "speed/step_s", step->step_s);
    for (int i = 0; i < memory_n; i++) {
        char tag[48];
        snprintf(tag, sizeof tag, "memory/%.16s_peak_bytes", memory[i].tier);
        put_value(&summary, tag, (double)memory[i].peak_bytes);
    }
    put_finite(&summary, "train/accuracy", step->accuracy);
    if (step->pairs) {
        put_finite(&summary, "train/reward_chosen", step->reward_chosen);
        put_finite(&summary, "train/reward_rejected", step->reward_rejected);
        put_finite(&summary, "train/reward_margin", step->reward_margin);
        put_finite(&summary, "train/reward_accuracy", step->reward_accuracy);
        put_finite(&summary, "train/kl", step->kl);
    }
    put_finite(&summary, "train/expert_load_max", step->expert_load_max);
    put_finite(&summary, "train/experts_idle", step->experts_idle);
    put_finite(&summary, "train/aux_loss", step->aux_loss);
    if (step->evaluated)
        put_evaluation(&summary, step);
    return write_summary(v, step->step, &summary, e);
}

int events_write_evaluation(const events *v, const pt_step *step, pt_error *e)
{
    message summary = {.n = 0};
    if (v->fd < 0)
        return 0;
    put_evaluation(&summary, step);
    return write_summary(v, step->step, &summary, e);
}

/* ---- reading back ---- */

static bool take_varint(const unsigned char **p, const unsigned char *end, uint64_t *x)
{
    *x = 0;
    for (int shift = 0; *p < end && shift < 64; shift += 7) {
        const unsigned char byte = *(*p)++;
        *x |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return true;
    }
    return false;
}

/* The step of an Event, 0 if it has none; -1: it is not an Event. */
static int64_t step_of(const unsigned char *p, size_t n)
{
    const unsigned char *end = p + n;
    uint64_t key, x, step = 0;
    while (p < end) {
        if (!take_varint(&p, end, &key))
            return -1;
        size_t skip = 0;
        switch (key & 7) {
        case WIRE_VARINT:
            if (!take_varint(&p, end, &x))
                return -1;
            step = key >> 3 == 2 ? x : step;
            break;
        case WIRE_64: skip = 8; break;
        case WIRE_32: skip = 4; break;
        case WIRE_BYTES:
            if (!take_varint(&p, end, &x) || x > (uint64_t)(end - p))
                return -1;
            skip = (size_t)x;
            break;
        default: return -1;
        }
        if (skip > (size_t)(end - p))
            return -1;
        p += skip;
    }
    return step > INT64_MAX ? -1 : (int64_t)step;
}

/* Number of bytes of the leading records whose step is at most `step`. */
static off_t bytes_until(FILE *f, int64_t step)
{
    unsigned char head[12], data[RECORD_MOST + 4];
    off_t bytes = 0;
    while (fread(head, 1, sizeof head, f) == sizeof head) {
        uint64_t length;
        uint32_t crc;
        memcpy(&length, head, 8);
        memcpy(&crc, head + 8, 4);
        if (crc != masked(head, 8) || length > RECORD_MOST || fread(data, 1, (size_t)length + 4, f) != length + 4)
            break;
        memcpy(&crc, data + length, 4);
        const int64_t at = step_of(data, (size_t)length);
        if (crc != masked(data, (size_t)length) || at < 0 || at > step)
            break;
        bytes += (off_t)(length + FRAME);
    }
    return bytes;
}

/* Another program may have appended records of its own; they are cut off, like lines of metrics.jsonl. */
static int cut_back(const char *path, int64_t step, off_t *bytes, pt_error *e)
{
    FILE *f = fopen(path, "re");
    *bytes = 0;
    if (!f)
        return errno == ENOENT ? 0 : pt_fail_errno(e, PT_FAILED, "%.400s cannot be read", path);
    *bytes = bytes_until(f, step);
    const bool unreadable = ferror(f);
    fclose(f);
    if (unreadable)
        return pt_fail_errno(e, PT_FAILED, "%.400s cannot be read", path);
    return truncate(path, *bytes) ? pt_fail_errno(e, PT_FAILED, "%.400s: cannot truncate the file after step %lld", path,
                                                  (long long)step) : 0;
}

static int write_version(const events *v, pt_error *e)
{
    static const char version[] = "brain.Event:2";
    message m;
    begin_event(&m, 0);
    put_bytes(&m, 3, version, strlen(version));
    return write_record(v, &m, e);
}

int events_open(events *v, const char *out, int64_t step, bool write, pt_error *e)
{
    off_t bytes;
    v->fd = -1;
    int failed = path_join(v->path, out, EVENTS_NAME, e);
    if (!failed)
        failed = cut_back(v->path, step, &bytes, e);
    if (failed || !write)
        return failed;
    v->fd = open(v->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (v->fd < 0)
        return pt_fail_errno(e, PT_FAILED, "%.400s cannot be written", v->path);
    return bytes ? 0 : write_version(v, e);
}

int events_sync(const events *v, pt_error *e)
{
    const bool failed = v->fd >= 0 && fsync(v->fd) && errno != EINVAL && errno != EROFS;
    return failed ? pt_fail_errno(e, PT_FAILED, "%.400s cannot be synced to the disk", v->path) : 0;
}

void events_close(events *v)
{
    if (v->fd >= 0)
        close(v->fd);
    v->fd = -1;
}
