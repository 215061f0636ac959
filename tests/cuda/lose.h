/* lose.h - a GPU that goes away, or is heard of late, by the stand-in (standin.h). Include after cmocka.h. */
#ifndef PT_TEST_LOSE_H
#define PT_TEST_LOSE_H

#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

typedef void lose_fn(int64_t number);

/* Of the stand-in, a device of which is open: "standin_lose" or "standin_delay". */
static inline lose_fn *find_in_standin(const char *name)
{
    void *standin = dlopen(getenv("PROTRAIN_CUDA_MODULE"), RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(standin);
    lose_fn *found = (lose_fn *)dlsym(standin, name);
    dlclose(standin); /* the device keeps it */
    assert_non_null(found);
    return found;
}

static inline lose_fn *find_lose(void) { return find_in_standin("standin_lose"); }

#endif
