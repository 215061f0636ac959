/* fuzz_run_file.c - a run as a file: options by name, in YAML or JSON. */
#include "options/run_file.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char *const commands[] = {"train", "plan", "generate", "ritz"};
    pt_options *o;
    pt_error e = {0};
    if (!n || pt_options_open(commands[data[0] % 4], &o, &e))
        return 0;
    const int failed = run_file_read(o, "run.yaml", (const char *)data + 1, n - 1, &e);
    if (failed && (!e.text[0] || !e.code))
        abort();
    const pt_option *x;
    for (int i = 0; (x = pt_options_list(o, i)); i++) { /* what was taken is a value that is taken again */
        const char *value = pt_options_get(o, x->name, 0);
        char *copy = value && pt_options_given(o, x->name) ? strdup(value) : NULL;
        if (copy && pt_options_set(o, x->name, copy, &e))
            abort();
        free(copy);
    }
    pt_options_close(o);
    return 0;
}
