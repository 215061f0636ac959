#include "infer/open.h"

#include "device/device.h"
#include "io/files.h"
#include "model/weights.h"

int infer_check_options(pt_precision precision, int threads, const char *device, pt_error *e)
{
    if (threads < 0 || threads > 4096)
        return pt_fail(e, PT_USAGE, "--threads %d: it must be from 0 (all cores) to 4096", threads);
    if (precision != PT_PRECISION_BF16 && precision != PT_PRECISION_FP32)
        return pt_fail(e, PT_USAGE, "--dtype %d: it must be bf16 (%d) or fp32 (%d)", precision, PT_PRECISION_BF16, PT_PRECISION_FP32);
    return device_name_check(device, e);
}

int infer_open_model(const char *folder, model **out, pt_error *e)
{
    if (!path_is_folder(folder))
        return pt_fail(e, PT_FAILED, "%s is not a folder: --model wants a Hugging Face folder with config.json", folder);
    int failed = model_open(folder, NULL, NULL, out, e); /* what is not applied concerns training only */
    if (!failed && !weights_present(folder))
        failed = pt_fail(e, PT_FAILED, "%s has no weights (model.safetensors, or shards with their index): train the model first", folder);
    return failed;
}
