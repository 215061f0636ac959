/* fuzz_matmul_table.c - libFuzzer target: a table of matmul algorithms. */
#include "device/cuda/matmul_table.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char GPU[] = "sm_90, 132 multiprocessors, cuBLASLt 130100";

/* A line that was read is written as a line that is read as the same. */
static void check_lines(const matmul_table *t)
{
    for (int i = 0; i < t->n; i++) {
        char text[sizeof "gpu \n" + sizeof GPU + MATMUL_LINE_BYTES];
        matmul_table again = {0};
        int used = snprintf(text, sizeof text, "gpu %s\n", GPU);
        matmul_line_write(&t->lines[i].key, t->lines[i].words, text + used);
        if (matmul_table_add(&again, text, strlen(text), "again", GPU, NULL) || again.n != 1 ||
            memcmp(&again.lines->key, &t->lines[i].key, sizeof again.lines->key) ||
            memcmp(again.lines->words, t->lines[i].words, sizeof again.lines->words))
            abort();
        matmul_table_close(&again);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    matmul_table t = {0};
    pt_error e = {0};
    int rc = matmul_table_add(&t, (const char *)data, n, "fuzz", GPU, &e);
    if (rc < 0 && (!e.text[0] || !strstr(e.text, "fuzz:")))
        abort();
    if (!rc)
        check_lines(&t);
    matmul_table_close(&t);
    return 0;
}
