/* scratch.h - a temporary folder for a test program, and a disk that is small enough to fill. */
#ifndef TEST_SCRATCH_H
#define TEST_SCRATCH_H

#include "io/files.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

static char scratch[64];

static inline int scratch_make(void **state)
{
    (void)state;
    strcpy(scratch, "/tmp/pt-io-XXXXXX");
    return !mkdtemp(scratch);
}

static inline int scratch_remove(void **state)
{
    (void)state;
    return tree_remove(scratch, NULL);
}

/* scratch/name; the result stands until 8 more calls. */
static inline const char *scratch_path(const char *name)
{
    static char paths[8][256];
    static int next;
    char *p = paths[next++ % 8];
    snprintf(p, sizeof paths[0], "%s/%s", scratch, name);
    return p;
}

static inline void scratch_put(const char *name, const void *data, size_t n)
{
    FILE *f = fopen(scratch_path(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* Runs `body` in a child process whose /mnt is an empty disk of `bytes`. Its exit status, or -1
 * where such a disk cannot be made here. */
static inline int on_small_disk(size_t bytes, int (*body)(const char *folder))
{
    char options[32];
    snprintf(options, sizeof options, "size=%zu", bytes);
    fflush(NULL);
    pid_t child = fork();
    if (!child) {
        setenv("CMOCKA_TEST_ABORT", "1", 1); /* what fails there must not go on with the tests */
        bool mounted = (!unshare(CLONE_NEWNS) || !unshare(CLONE_NEWUSER | CLONE_NEWNS)) &&
                       !mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
                       !mount("small", "/mnt", "tmpfs", 0, options);
        _exit(mounted ? body("/mnt") : 77);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

#endif
