#include "ritz/muparser.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>

static muparser loaded;
static char why[256]; /* empty: it is loaded */

static void load(void)
{
    cpu_set_t own;
    const int known = !pthread_getaffinity_np(pthread_self(), sizeof own, &own);
    void *library = dlopen("libmuparser.so.2", RTLD_NOW | RTLD_LOCAL);
    if (known)
        pthread_setaffinity_np(pthread_self(), sizeof own, &own);
    if (!library) {
        snprintf(why, sizeof why, "%s", dlerror());
        return;
    }
#define MUPARSER_FIND(name) \
    *(void **)&loaded.name = dlsym(library, "mup" #name); \
    if (!loaded.name) \
        snprintf(why, sizeof why, "it has no mup" #name);
    MUPARSER_FUNCTIONS(MUPARSER_FIND)
#undef MUPARSER_FIND
}

int muparser_load(const muparser **out, pt_error *e)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    *out = &loaded;
    return why[0] ? pt_fail(e, PT_FAILED, "muParser, which reads expressions, cannot be loaded (%s): install libmuparser2v5", why) : 0;
}
