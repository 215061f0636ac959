#include "train/lighter.h"

#include "train/model_options.h"

#include <stdio.h>
#include <string.h>

/* Whether a plan within the same budgets fits, with other options of what is trained. */
static int fits_with(const planning *p, pt_train_options o, pt_error *e)
{
    search_input in = p->search;
    step_shape shape;
    model *m = NULL;
    o.notice = NULL;
    int found = model_of_options(&o, &m, e);
    if (!found)
        found = shape_of_options(&o, m, &shape, e);
    if (!found && p->shape->gpu)
        step_shape_for_gpu(&shape, m);
    if (!found) {
        in.model = m;
        in.shape = &shape;
        in.from = NULL;
        found = search_fits(&in, NULL, e);
    }
    model_close(m);
    return found;
}

int lighter_states(const planning *p, char out[MISFIT_CHANGE_BYTES], pt_error *e)
{
    pt_train_options o = *p->o;
    if (o.optimizer != PT_OPTIMIZER_ADAMW || o.resume)
        return 0;
    o.optimizer = PT_OPTIMIZER_ADAMW8BIT;
    snprintf(out, MISFIT_CHANGE_BYTES, "`optimizer` adamw8bit");
    return fits_with(p, o, e);
}

/* ---- the last layers ---- */

enum { PATTERNS = 4 };
typedef struct layer_patterns { char text[PATTERNS][MODEL_NAME + 32]; const char *list[PATTERNS]; int n; } layer_patterns;

/* What stands in the names of the first layer's tensors before its number: "model.layers.". */
static bool find_prefix(const model *m, char out[MODEL_NAME])
{
    for (int i = 0; i < m->params_n; i++) {
        const char *name = m->params[i].part[0].name, *number = m->params[i].block == 1 ? strstr(name, ".0.") : NULL;
        const bool bare = m->params[i].block == 1 && !strncmp(name, "0.", 2);
        if (!number && !bare)
            continue;
        snprintf(out, MODEL_NAME, "%.*s", bare ? 0 : (int)(number + 1 - name), name);
        return true;
    }
    return false;
}

/* Shell patterns for the layers first..last, one for each ten of them. false: too many. */
static bool write_patterns(const char *prefix, int first, int last, layer_patterns *out)
{
    out->n = 0;
    for (int ten = first / 10; ten <= last / 10; ten++) {
        const int low = ten == first / 10 ? first % 10 : 0, high = ten == last / 10 ? last % 10 : 9;
        char tens[12] = "", ones[16];
        if (out->n == PATTERNS)
            return false;
        if (ten)
            snprintf(tens, sizeof tens, "%d", ten);
        if (low == high)
            snprintf(ones, sizeof ones, "%d", low);
        else if (low == 0 && high == 9)
            snprintf(ones, sizeof ones, "?");
        else
            snprintf(ones, sizeof ones, "[%d-%d]", low, high);
        snprintf(out->text[out->n], sizeof out->text[0], "%s%s%s.*", prefix, tens, ones);
        out->list[out->n] = out->text[out->n];
        out->n++;
    }
    return true;
}

static bool write_options(const layer_patterns *p, char out[MISFIT_CHANGE_BYTES])
{
    out[0] = 0;
    size_t needs = 0;
    for (int i = 0; i < p->n; i++) {
        needs += strlen(p->list[i]) + strlen("`train_only` '' ");
        misfit_append(out, MISFIT_CHANGE_BYTES, "%s`train_only` '%s'", i ? " " : "", p->list[i]);
    }
    return needs < MISFIT_CHANGE_BYTES;
}

int lighter_layers(const planning *p, char out[MISFIT_CHANGE_BYTES], pt_error *e)
{
    const int layers = (int)p->model->config.layers;
    char prefix[MODEL_NAME];
    layer_patterns patterns;
    int found = 0;
    if (!model_trains_all(p->model) || p->o->resume || !find_prefix(p->model, prefix))
        return 0;
    for (int part = 2; part <= 16 && !found; part *= 2) {
        const int n = part == 16 ? 1 : layers / part;
        pt_train_options o = *p->o;
        if (n < 1 || !write_patterns(prefix, layers - n, layers - 1, &patterns) || !write_options(&patterns, out))
            continue;
        o.train_only = patterns.list;
        o.train_only_n = patterns.n;
        found = fits_with(p, o, e);
    }
    return found;
}
