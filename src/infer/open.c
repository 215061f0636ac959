#include "infer/open.h"

#include "io/files.h"
#include "io/hub.h"
#include "io/safetensors.h"
#include "model/adapter.h"
#include "model/base_mark.h"
#include "model/weights.h"
#include "train/base.h"

static int open_beside(const char *folder, const char *rope_scaling, const char *adapter, model **out, pt_error *e)
{
    const model_changes changes = {.rope_scaling = rope_scaling};
    if (!path_is_folder(folder))
        return hub_fail_model(folder, "`model` must be a Hugging Face folder with config.json", e);
    int failed = model_open_beside(folder, &changes, adapter, NULL, NULL, out, e); /* what is not applied concerns training only */
    if (!failed && !weights_present(folder))
        failed = pt_fail(e, PT_FAILED, "%s has no weights (model.safetensors, or shards with their index): train the model first", folder);
    return failed;
}

int infer_open_model(const char *folder, model **out, pt_error *e) { return open_beside(folder, NULL, NULL, out, e); }

int infer_open_adapted(const char *folder, const char *adapter, void (*notice)(void *, const char *), void *arg, model **out,
                       safetensors **weights, pt_error *e)
{
    char path[FILE_PATH_BYTES], rope[ROPE_MARK];
    *weights = NULL;
    int failed = open_beside(folder, base_mark_rope(adapter, rope), adapter, out, e);
    if (failed || !adapter)
        return failed;
    failed = model_adapt_like(*out, adapter, notice, arg, e);
    if (!failed)
        adapter_set_dropout(*out, 0);
    if (!failed)
        base_mark_compare(*out, folder, adapter, notice, arg);
    if (!failed)
        failed = path_join(path, adapter, ADAPTER_WEIGHTS, e);
    return failed ? failed : safetensors_open(path, weights, e);
}

int infer_store_base(const infer_base *b, model *m, pt_error *e)
{
    return base_apply_whole(base_of_adapter(b->base, b->folder, b->adapter, b->notice, b->arg), b->precision, m, e);
}
