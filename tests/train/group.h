/* group.h - processes of a test that are ranks of one run, by the environment that torchrun leaves. Include after cmocka.h. */
#ifndef PT_TEST_GROUP_H
#define PT_TEST_GROUP_H

#include "comm/together.h"
#include "io/scratch.h"
#include "program.h"

static inline void set_number(const char *name, int n)
{
    char text[16];
    snprintf(text, sizeof text, "%d", n);
    setenv(name, text, 1);
}

static inline const char *err_of(int rank)
{
    char name[16];
    snprintf(name, sizeof name, "err%d", rank);
    return scratch_path(name);
}

/* The environment of all ranks. */
static inline void group_begin(int ranks)
{
    setenv("MASTER_ADDR", "localhost", 1);
    set_number("MASTER_PORT", free_port());
    set_number("WORLD_SIZE", ranks);
}

/* In a folder, from which its relative paths are; NULL: where the test is. */
static inline pid_t group_start(const arguments *a, int rank, const char *folder)
{
    set_number("RANK", rank);
    if (folder)
        assert_int_equal(chdir(folder), 0);
    const pid_t started = program_start(a, "/dev/null", err_of(rank));
    if (folder)
        assert_int_equal(chdir("/"), 0);
    return started;
}

static inline void group_end(void)
{
    static const char *const names[] = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
}

#endif
