/* fuzz_vocabulary.c - any bytes as the tokenizer.json of a model that is exported: a vocabulary in llama.cpp's terms, or a refusal with a
 * sentence. */
#include "gguf/vocabulary.h"
#include "io/files.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void told(void *arg, const char *sentence)
{
    assert(strlen(sentence) > 10);
    ++*(int *)arg;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static char folder[64];
    char path[128];
    pt_error e = {0};
    tokenizer *t;
    gguf_writer *w;
    int sentences = 0;
    const int32_t stops[] = {0, 1, 2, 3};
    if (!folder[0]) {
        strcpy(folder, "/dev/shm/pt-fuzz-XXXXXX");
        assert(mkdtemp(folder));
    }
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    FILE *f = fopen(path, "wb");
    assert(f && fwrite(data, 1, n, f) == n && !fclose(f));
    if (tokenizer_open(folder, &t, &e))
        return 0;
    assert(!gguf_create("/dev/null", &w, &e));
    const bool gemma4 = n % 2;
    const vocabulary v = {folder, t, 1 + n % 64, gemma4 ? 0 : -1, stops, 4, gemma4, NULL, told, &sentences};
    if (gguf_put_vocabulary(w, &v, &e))
        assert(e.code == PT_FAILED && strlen(e.text) > 20);
    gguf_close(w);
    tokenizer_close(t);
    return 0;
}
