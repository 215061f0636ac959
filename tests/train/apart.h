/* apart.h - each test of a program in a process of its own. A process that has opened a GPU can fork none that opens one too, so that tests
 * which fork would depend on those that ran before. Include after cmocka.h. */
#ifndef PT_TEST_APART_H
#define PT_TEST_APART_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static inline bool passes_apart(const struct CMUnitTest *test, CMFixtureFunction set_up, CMFixtureFunction tear_down)
{
    const struct CMUnitTest one[] = {*test};
    int status;
    fflush(NULL);
    pid_t child = fork();
    if (!child)
        exit(cmocka_run_group_tests(one, set_up, tear_down));
    if (child < 0 || waitpid(child, &status, 0) != child)
        return perror(test->name), false;
    if (WIFSIGNALED(status))
        fprintf(stderr, "%s: ended by signal %d\n", test->name, WTERMSIG(status));
    return WIFEXITED(status) && !WEXITSTATUS(status);
}

/* The exit status of the program. */
#define RUN_APART(tests, set_up, tear_down) run_apart(tests, sizeof(tests) / sizeof *(tests), set_up, tear_down)

static inline int run_apart(const struct CMUnitTest *tests, size_t n, CMFixtureFunction set_up, CMFixtureFunction tear_down)
{
    int failed = 0;
    for (size_t i = 0; i < n; i++)
        failed += !passes_apart(&tests[i], set_up, tear_down);
    return failed != 0;
}

#endif
