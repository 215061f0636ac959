/* open.c - which device a name means, and the CUDA module.
 *
 * The program itself needs no CUDA: the backend is a library of its own (libprotrain_cuda.so) that is looked for
 * when a GPU is asked for, in this order:
 *
 *     $PROTRAIN_CUDA_MODULE                the file itself
 *     the folder of the program            a build tree
 *     ../LIBDIR beside that folder         an installed tree, wherever it was moved
 *     the folder of libprotrain.so         programs that use the library
 *
 * It stays loaded until the process ends. What can go wrong: no driver, no module, a module of another build, a GPU that
 * the module cannot use; asked for by name each is an error, with "auto" a notice and the CPU. Where nothing shows that there is a GPU,
 * not even that.
 */
#include "base/module.h"
#include "device/module.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- names ---- */

typedef enum device_choice { CHOICE_CPU, CHOICE_CUDA, CHOICE_AUTO } device_choice;

static int choice_of(const char *name, device_choice *choice, int *ordinal, pt_error *e)
{
    *ordinal = 0;
    if (!name)
        return pt_fail(e, PT_USAGE, "--device is missing: give auto, cpu, cuda, or cuda:N");
    *choice = !strcmp(name, "cpu") ? CHOICE_CPU : !strcmp(name, "auto") ? CHOICE_AUTO : CHOICE_CUDA;
    if (*choice != CHOICE_CUDA || !strcmp(name, "cuda"))
        return 0;
    size_t digits = !strncmp(name, "cuda:", 5) ? strspn(name + 5, "0123456789") : 0;
    if (!digits || digits > 4 || name[5 + digits])
        return pt_fail(e, PT_USAGE, "--device %.100s: it must be auto, cpu, cuda, or cuda:N for the GPU number N", name);
    *ordinal = atoi(name + 5);
    return 0;
}

int device_name_check(const char *name, pt_error *e)
{
    device_choice choice;
    int ordinal;
    return choice_of(name, &choice, &ordinal, e);
}

/* ---- the module ---- */

/* The kernel's side of a driver, whose library may still be missing: a container has what it was given. */
static bool gpu_is_there(void) { return !access("/dev/nvidiactl", F_OK); }

static bool driver_is_there(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (driver)
        dlclose(driver);
    return driver != NULL;
}

static int cuda_open(const device_options *o, device **out, pt_error *e)
{
    char path[PATH_MAX];
    if (!driver_is_there())
        return pt_fail(e, PT_FAILED,
                       gpu_is_there() ? "/dev/nvidiactl is there, and the driver's library libcuda.so.1 cannot be loaded: in a "
                       "container, give it NVIDIA_DRIVER_CAPABILITIES=compute,utility; or use --device cpu"
                       : "no NVIDIA driver on this machine (libcuda.so.1): install it, or use --device cpu");
    if (!module_find("PROTRAIN_CUDA_MODULE", CUDA_MODULE_FILE, path))
        return pt_fail(e, PT_FAILED, "this build of protrain has no CUDA module (%s is not beside it): build where the CUDA toolkit is, "
                       "or use --device cpu", CUDA_MODULE_FILE);
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!module)
        return pt_fail(e, PT_FAILED, "the CUDA module cannot be loaded (%.600s): install the CUDA libraries that it names, or use "
                       "--device cpu", dlerror());
    device_module_seam_fn *seam = (device_module_seam_fn *)dlsym(module, DEVICE_MODULE_SEAM);
    device_module_open_fn *open = (device_module_open_fn *)dlsym(module, DEVICE_MODULE_OPEN);
    if (seam && open && seam() == device_seam())
        return open(o, out, e);
    dlclose(module);
    return pt_fail(e, PT_FAILED, "%.600s belongs to another build of protrain: build or install both together", path);
}

/* ---- devices ---- */

static void notice(const device_options *o, const char *sentence)
{
    if (o->notice)
        o->notice(o->arg, sentence);
}

int device_open(const char *name, const device_options *o, device **out, device **host, pt_error *e)
{
    device_choice choice;
    device_options chosen = *o;
    *out = *host = NULL;
    int failed = choice_of(name, &choice, &chosen.ordinal, e);
    if (failed)
        return failed;
    failed = device_cpu_open(&chosen, host, e);
    if (failed)
        return failed;
    *out = *host;
    if (choice == CHOICE_CPU || (choice == CHOICE_AUTO && !gpu_is_there() && !driver_is_there()))
        return 0;
    pt_error why = {0};
    failed = cuda_open(&chosen, out, &why);
    if (!failed)
        return 0;
    if (choice == CHOICE_AUTO) {
        char sentence[sizeof why.text + 32];
        snprintf(sentence, sizeof sentence, "computing on the CPU: %s", why.text);
        notice(o, sentence);
        *out = *host;
        return 0;
    }
    device_close(*host, *host);
    *out = *host = NULL;
    return pt_fail(e, failed, "--device %s: %s", name, why.text);
}

void device_close(device *d, device *host)
{
    if (d && d != host)
        d->table->close(d);
    if (host)
        host->table->close(host);
}
