#include "model/patterns.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *layer_number(const param *p, const char *name, size_t *length)
{
    char number[16];
    if (p->kind->block != BLOCK_LAYER)
        return NULL;
    *length = (size_t)snprintf(number, sizeof number, "%d", p->block - 1);
    for (const char *at = strchr(name, '.'); at; at = strchr(at + 1, '.'))
        if (!strncmp(at + 1, number, *length) && at[1 + *length] == '.')
            return at + 1;
    return NULL;
}

/* The number of an expert in a name: *length digits; NULL: none. */
static const char *expert_number(const char *name, size_t *length)
{
    static const char before[] = ".experts.";
    const char *at = strstr(name, before);
    at = at ? at + strlen(before) : name;
    *length = at > name ? strspn(at, "0123456789") : 0;
    return *length && at[*length] == '.' ? at : NULL;
}

bool name_of_experts(const param *p, int part, char out[MODEL_NAME])
{
    const char *name = p->part[part].name;
    size_t length, other;
    const char *at = expert_number(name, &length);
    if (!at) {
        snprintf(out, MODEL_NAME, "%s", name);
        return true;
    }
    snprintf(out, MODEL_NAME, "%.*s*%s", (int)(at - name), name, at + length);
    for (int k = 0; k < part; k++) {
        const char *earlier = p->part[k].name, *in = expert_number(earlier, &other);
        if (in && !strcmp(in + other, at + length) && in - earlier == at - name && !strncmp(earlier, name, (size_t)(at - name)))
            return false;
    }
    return true;
}

char *layer_ranges(const bool *layers, int n, char *out, size_t bytes)
{
    size_t used = 0;
    out[0] = 0;
    for (int i = 0; i < n; i++) {
        int last = i;
        while (layers[i] && last + 1 < n && layers[last + 1])
            last++;
        if (layers[i] && used < bytes)
            used += (size_t)snprintf(out + used, bytes - used, last > i ? "%s%d-%d" : "%s%d", used ? ", " : "", i, last);
        i = last;
    }
    return out;
}

/* ---- a list ---- */

static int append(name_patterns *p, const char *text, pt_error *e)
{
    char **more = realloc(p->pattern, (size_t)(p->n + 1) * sizeof *more), *copy = strdup(text);
    p->pattern = more ? more : p->pattern;
    if (!more || !copy) {
        free(copy);
        return pt_fail(e, PT_FAILED, "out of memory");
    }
    p->pattern[p->n++] = copy;
    return 0;
}

void patterns_close(name_patterns *p)
{
    for (int i = 0; i < p->n; i++)
        free(p->pattern[i]);
    free(p->pattern);
    *p = (name_patterns){0};
}

/* ---- digits ---- */

/* A bit for each digit: "[0-35]", or the digit alone. */
static void write_digits(unsigned digits, char out[16])
{
    int n = 0, count = __builtin_popcount(digits);
    n += snprintf(out, 16, count > 1 ? "[" : "%s", "");
    for (int i = 0; i < 10; i++) {
        int last = i;
        if (!(digits & 1u << i))
            continue;
        while (last + 1 < 10 && (digits & 1u << (last + 1)))
            last++;
        n += snprintf(out + n, 16 - (size_t)n, last > i + 1 ? "%d-%d" : last > i ? "%d%d" : "%d", i, last);
        i = last;
    }
    snprintf(out + n, 16 - (size_t)n, count > 1 ? "]" : "%s", "");
}

/* Layers by hundreds and tens: the last digits of each ten. */
enum { TENS = (MODEL_MAX_LAYERS + 9) / 10 };
typedef struct tens { unsigned last[TENS]; } tens;

/* Tens of the same hundred with the same last digits are one pattern; layers below ten have one digit. */
static int append_layers(name_patterns *out, const char *before, size_t before_n, const tens *t, const char *after, pt_error *e)
{
    tens left = *t;
    int failed = 0;
    for (int i = 0; i < TENS && !failed; i++) {
        char hundreds[16] = "", middle[16] = "", last[16], text[MODEL_NAME + 64];
        unsigned same = 0;
        const unsigned digits = left.last[i];
        if (!digits)
            continue;
        for (int k = i; k < TENS && k / 10 == i / 10 && i; k++)
            if (left.last[k] == digits) {
                same |= 1u << k % 10;
                left.last[k] = 0;
            }
        if (i >= 10)
            snprintf(hundreds, sizeof hundreds, "%d", i / 10);
        if (i)
            write_digits(same, middle);
        write_digits(digits, last);
        snprintf(text, sizeof text, "%.*s%s%s%s%s", (int)before_n, before, hundreds, middle, last, after);
        failed = append(out, text, e);
    }
    return failed;
}

/* ---- names ---- */

/* Is it the same name in another layer? */
static bool is_alike(const param *p, const char *name, const param *q, const char *other)
{
    size_t a, b;
    const char *at = layer_number(p, name, &a), *in = layer_number(q, other, &b);
    return at && in && at - name == in - other && !strncmp(name, other, (size_t)(at - name)) && !strcmp(at + a, in + b);
}

/* The layers of the set that have this name; true: an earlier parameter of the set has it, too. */
static bool find_layers(const model *m, const bool *set, int i, const char *name, tens *out)
{
    *out = (tens){{0}};
    for (int q = 0; q < m->params_n; q++)
        for (int k = 0; k < m->params[q].parts && set[q]; k++)
            if (is_alike(&m->params[i], name, &m->params[q], m->params[q].part[k].name)) {
                if (q < i)
                    return true;
                out->last[(m->params[q].block - 1) / 10] |= 1u << (m->params[q].block - 1) % 10;
            }
    return false;
}

int patterns_of(const model *m, const bool *set, name_patterns *out, pt_error *e)
{
    int failed = 0;
    *out = (name_patterns){0};
    for (int i = 0; i < m->params_n && !failed; i++)
        for (int k = 0; k < m->params[i].parts && set[i] && !failed; k++) {
            char name[MODEL_NAME];
            size_t length;
            tens layers;
            if (!name_of_experts(&m->params[i], k, name))
                continue;
            const char *at = layer_number(&m->params[i], name, &length);
            if (!at)
                failed = append(out, name, e);
            else if (!find_layers(m, set, i, m->params[i].part[k].name, &layers))
                failed = append_layers(out, name, (size_t)(at - name), &layers, at + length, e);
        }
    return failed;
}
