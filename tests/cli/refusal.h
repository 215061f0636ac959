/* refusal.h - what the program says when it refuses, and files for it to refuse. Include after cmocka.h. */
#ifndef PT_TEST_REFUSAL_H
#define PT_TEST_REFUSAL_H

#include "cli/files.h"
#include "io/files.h"

#include <dirent.h>
#include <sys/stat.h>

/* ---- running ---- */

/* The last line of what the program said, and the only one of its kind; notes and the summary of the run may come before. */
static inline const char *last_sentence(const char *text, const char *name)
{
    const char *line = text;
    for (const char *end = strchr(text, '\n'); end && end[1]; end = strchr(line, '\n')) {
        if (strncmp(line, "protrain: ", 10) == 0)
            fail_msg("%s: more than a sentence: %s", name, text);
        line = end + 1;
    }
    return line;
}

/* No model, checkpoint or unfinished file. */
static inline void assert_nothing_left(const char *out, const char *name)
{
    struct dirent **entries;
    int n = scandir(out, &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        const char *file = entries[i]->d_name;
        if (strstr(file, ".tmp") || strstr(file, ".safetensors") || strcmp(file, "config.json") == 0 || strcmp(file, ".lock") == 0)
            fail_msg("%s: %s is left", name, file);
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
}

static inline void check_sentence(const char *name, int status, int expected, words said)
{
    const char *text = text_of(scratch_path("err"));
    const char *line = last_sentence(text, name);
    if (status != expected || strncmp(line, "protrain: ", 10) != 0)
        fail_msg("%s: exit status %d, not %d: %s", name, status, expected, text);
    for (; *said; said++)
        if (!strstr(line, *said))
            fail_msg("%s: \"%s\" is not in: %s", name, *said, line);
}

static inline int run_program(words args)
{
    arguments a = {0};
    add_argument(&a, args[0]);
    add_arguments(&a, args + 1);
    return program_wait(program_start(&a, "/dev/null", scratch_path("err")));
}

/* ---- files ---- */

/* A copy of a fixture's folder, to be damaged. */
static inline const char *copy_model(const char *name)
{
    static char copy[128];
    pt_error e = {0};
    struct dirent **entries;
    snprintf(copy, sizeof copy, "%s/model", scratch);
    assert_int_equal(tree_remove(copy, &e) || dir_make(copy, &e), 0);
    int n = scandir(fixture(name), &entries, NULL, alphasort);
    assert_true(n > 2);
    for (int i = 0; i < n; i++) {
        char from[800], to[400];
        snprintf(from, sizeof from, "%s/%s", fixture(name), entries[i]->d_name);
        snprintf(to, sizeof to, "%s/%s", copy, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.')
            assert_int_equal(file_copy_atomic(from, to, &e), 0);
        free(entries[i]);
    }
    free(entries);
    return copy;
}

typedef struct blob { char *bytes; size_t n; } blob;

static inline blob read_blob(const char *name)
{
    blob b;
    pt_error e = {0};
    assert_int_equal(file_read_all(scratch_path(name), 1u << 30, &b.bytes, &b.n, &e), 0);
    return b;
}

#endif
