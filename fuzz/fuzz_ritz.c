/* fuzz_ritz.c - any bytes as a trained Deep Ritz network's config.json, and as a checkpoint's state.json: refused with a sentence, or a
 * network that can be described, in a box; a state only of the task that is asked for. */
#include "ritz/config.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check_refusal(int failed, const pt_error *e)
{
    assert((failed == PT_FAILED || failed == PT_USAGE) && e->code == failed);
    assert(strlen(e->text) > 20 && !control_character(e->text));
}

static void config_try(const json_source *s)
{
    pt_error e = {0};
    pt_ritz_options o = {0};
    problem p = {.energy = NAN};
    ritz_network *net = calloc(1, sizeof *net);
    int failed = ritz_config_parse(s, &o, &p, &e);
    if (failed)
        check_refusal(failed, &e);
    else {
        *net = (ritz_network){.dim = p.is.dim, .width = o.width, .blocks = o.blocks, .plain = o.plain, .direct = o.no_input_layer};
        assert(p.is.dim >= 1 && o.blocks >= 1 && o.width >= 1);
        for (int64_t i = 0; i < p.is.dim; i++)
            assert(isfinite(p.is.lower[i]) && p.is.lower[i] < p.is.upper[i]);
        failed = ritz_network_describe(net, &e);
        if (failed)
            check_refusal(failed, &e);
        else
            assert(net->params > 0 && net->stages_n >= 2 && net->stages_n <= RITZ_STAGES);
    }
    problem_close(&p);
    free(net);
}

static void state_try(const json_source *s)
{
    pt_error e = {0};
    ritz_state state;
    json_t *task = json_pack("{s:s,s:i}", "problem", "own", "n", 64);
    int failed = ritz_state_parse(s, task, &state, &e);
    if (failed)
        check_refusal(failed, &e);
    else
        assert(state.step >= 0 && state.steps >= 0 && memchr(state.arithmetic, 0, sizeof state.arithmetic));
    json_decref(task);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    pt_error e = {0};
    json_source s;
    int failed = json_source_text(&s, "fuzz/config.json", (const char *)data, n, "a trained Deep Ritz network", &e);
    if (failed) {
        check_refusal(failed, &e);
        return 0;
    }
    config_try(&s);
    state_try(&s);
    json_source_close(&s);
    return 0;
}
