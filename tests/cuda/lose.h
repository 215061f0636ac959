/* lose.h - a GPU that goes away, by the stand-in (standin.h). Include after cmocka.h. */
#ifndef PT_TEST_LOSE_H
#define PT_TEST_LOSE_H

#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

typedef void lose_fn(int64_t calls);

/* Of the stand-in, a device of which is open. */
static inline lose_fn *find_lose(void)
{
    void *standin = dlopen(getenv("PROTRAIN_CUDA_MODULE"), RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(standin);
    lose_fn *lose = (lose_fn *)dlsym(standin, "standin_lose");
    dlclose(standin); /* the device keeps it */
    assert_non_null(lose);
    return lose;
}

#endif
