/* open.c - opens a device by name, and loads the CUDA module.
 *
 * The program itself does not need CUDA. The backend is a separate library (libprotrain_cuda.so), which is searched for when a GPU is
 * requested, in this order:
 *
 *     $PROTRAIN_CUDA_MODULE                the path of the file
 *     the folder of the program            a build tree
 *     ../LIBDIR beside that folder         an installed tree, which may have been moved
 *     the folder of libprotrain.so         programs that use the library
 *
 * It stays loaded until the process ends. If there is no driver or no module, if the module is of another build or cannot use the GPU, a
 * device requested by name is an error; "auto" uses the CPU, with a notice if there seems to be a GPU.
 */
#include "base/module.h"
#include "device/link.h"
#include "device/module.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- names ---- */

typedef enum device_choice { CHOICE_CPU, CHOICE_CUDA, CHOICE_AUTO } device_choice;

static const char PREFIX[] = "cuda:";

static int wrong_name(const char *name, pt_error *e)
{
    return pt_fail(e, PT_USAGE, "`device` is %.100s: it must be auto, cpu, cuda, cuda:N for GPU number N, or cuda:N,M,... for "
                               "several ranks", name);
}

/* N or N,N,... */
static int read_numbers(const char *name, gpu_list *out, pt_error *e)
{
    for (const char *at = name + sizeof PREFIX - 1;; at++) {
        const size_t digits = strspn(at, "0123456789");
        if (!digits || digits > 4 || out->n == GPUS_MOST)
            return wrong_name(name, e);
        out->ordinal[out->n++] = atoi(at);
        at += digits;
        if (!*at)
            return 0;
        if (*at != ',')
            return wrong_name(name, e);
    }
}

static int choice_of(const char *name, device_choice *choice, gpu_list *numbers, pt_error *e)
{
    *numbers = (gpu_list){0};
    if (!name)
        return pt_fail(e, PT_USAGE, "`device` is missing: give auto, cpu, cuda, or cuda:N");
    *choice = !strcmp(name, "cpu") ? CHOICE_CPU : !strcmp(name, "auto") ? CHOICE_AUTO : CHOICE_CUDA;
    if (*choice != CHOICE_CUDA || !strcmp(name, "cuda"))
        return 0;
    numbers->numbered = true;
    return strncmp(name, PREFIX, sizeof PREFIX - 1) ? wrong_name(name, e) : read_numbers(name, numbers, e);
}

int device_numbers(const char *name, gpu_list *out, pt_error *e)
{
    device_choice choice;
    return choice_of(name, &choice, out, e);
}

int device_name_check(const char *name, pt_error *e)
{
    gpu_list numbers;
    int failed = device_numbers(name, &numbers, e);
    if (!failed && numbers.n > 1)
        return pt_fail(e, PT_USAGE, "`device` is %.100s, but here one device computes: give cuda:%d", name, numbers.ordinal[0]);
    return failed;
}

/* ---- the module ---- */

/* Whether the driver's kernel module is loaded. Its library may still be missing, as in a container without GPU support. */
static bool gpu_is_there(void) { return !access("/dev/nvidiactl", F_OK); }

static bool driver_is_there(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (driver)
        dlclose(driver);
    return driver != NULL;
}

typedef struct cuda_module {
    device_module_open_fn *open;
    device_module_list_fn *list;
    const link_table *links;
} cuda_module;

static int load_module(cuda_module *out, pt_error *e)
{
    char path[PATH_MAX];
    if (!driver_is_there())
        return pt_fail(e, PT_FAILED,
                       gpu_is_there() ? "/dev/nvidiactl exists, but the driver's library libcuda.so.1 cannot be loaded: in a container, "
                                        "set NVIDIA_DRIVER_CAPABILITIES=compute,utility; or use `device` cpu"
                                      : "this machine has no NVIDIA driver (libcuda.so.1): install it, or use `device` cpu");
    if (!module_find("PROTRAIN_CUDA_MODULE", CUDA_MODULE_FILE, path))
        return pt_fail(e, PT_FAILED,
                       "this build of protrain has no CUDA module (%s is missing): build it where the CUDA toolkit is installed, or use "
                       "`device` cpu",
                       CUDA_MODULE_FILE);
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!module)
        return pt_fail(e, PT_FAILED,
                       "the CUDA module cannot be loaded (%.600s): install the CUDA libraries that it names, or use "
                       "`device` cpu",
                       dlerror());
    device_module_seam_fn *seam = (device_module_seam_fn *)dlsym(module, DEVICE_MODULE_SEAM);
    out->open = (device_module_open_fn *)dlsym(module, DEVICE_MODULE_OPEN);
    out->list = (device_module_list_fn *)dlsym(module, DEVICE_MODULE_LIST);
    out->links = dlsym(module, DEVICE_MODULE_LINKS);
    if (seam && out->open && out->list && out->links && seam() == device_seam())
        return 0;
    dlclose(module);
    return pt_fail(e, PT_FAILED, "%.600s belongs to another build of protrain: build or install both together", path);
}

static int cuda_open(const device_options *o, device **out, pt_error *e)
{
    cuda_module m;
    int failed = load_module(&m, e);
    return failed ? failed : m.open(o, out, e);
}

const link_table *device_links(const device *d)
{
    cuda_module m;
    return device_is_gpu(d) && !load_module(&m, NULL) ? m.links : NULL;
}

/* ---- GPUs ---- */

/* The GPUs that the name numbers, with their properties. */
static int find_numbers(const char *name, const gpu_list *usable, gpu_list *numbers, pt_error *e)
{
    for (int i = 0; i < numbers->n; i++) {
        int k = 0;
        while (k < usable->n && usable->ordinal[k] != numbers->ordinal[i])
            k++;
        if (k == usable->n)
            return pt_fail(e, PT_USAGE, "`device` %.100s: GPU %d does not exist or cannot be used: this machine has %d, counted from 0",
                           name, numbers->ordinal[i], usable->n);
        numbers->id[i] = usable->id[k];
    }
    return 0;
}

int device_gpus(const char *name, gpu_list *out, pt_error *e)
{
    device_choice choice;
    cuda_module m;
    gpu_list usable = {0};
    pt_error why = {0};
    int failed = choice_of(name, &choice, out, e);
    if (failed || choice == CHOICE_CPU || (choice == CHOICE_AUTO && !gpu_is_there() && !driver_is_there()))
        return failed;
    failed = load_module(&m, &why);
    if (!failed)
        failed = m.list(&usable, &why);
    if (choice == CHOICE_AUTO) /* device_open reports the reason */
        *out = failed ? (gpu_list){0} : usable;
    else if (failed)
        return pt_fail(e, failed, "`device` %.100s: %s", name, why.text);
    else if (out->numbered)
        return find_numbers(name, &usable, out, e);
    else
        *out = usable;
    return 0;
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
    gpu_list numbers;
    *out = *host = NULL;
    int failed = device_name_check(name, e);
    if (!failed)
        failed = choice_of(name, &choice, &numbers, e);
    if (failed)
        return failed;
    chosen.ordinal = numbers.ordinal[0];
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
    return pt_fail(e, failed, "`device` %s: %s", name, why.text);
}

void device_close(device *d, device *host)
{
    if (d && d != host)
        d->table->close(d);
    if (host)
        host->table->close(host);
}
