#include "io/files.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <cmocka.h>

#include "io/filter_call.h"
#include "io/scratch.h"

static void ok(int status, const pt_error *e)
{
    if (status)
        fail_msg("%s", e->text);
}

static void content_is(const char *path, const char *expected)
{
    pt_error e = {0};
    char *data;
    size_t n;
    ok(file_read_all(path, 1 << 20, &data, &n, &e), &e);
    assert_int_equal(n, strlen(expected));
    assert_string_equal(data, expected);
    free(data);
}

static int names_in(const char *folder)
{
    char command[300];
    snprintf(command, sizeof command, "exit $(ls -A '%s' | wc -l)", folder);
    return WEXITSTATUS(system(command));
}

static void a_file_is_replaced_whole(void **state)
{
    (void)state;
    pt_error e = {0};
    const char *path = scratch_path("whole/a.txt");
    ok(dir_make(scratch_path("whole"), &e), &e);
    ok(file_write_atomic(path, "first, longer", 13, &e), &e);
    content_is(path, "first, longer");
    scratch_put("whole/a.txt.tmp", "left by a writer that was killed", 32);
    ok(file_write_atomic(path, "second", 6, &e), &e);
    content_is(path, "second");
    ok(file_copy_atomic(path, scratch_path("whole/b.txt"), &e), &e);
    content_is(scratch_path("whole/b.txt"), "second");
    json_t *value = json_pack("{s:i}", "step", 3);
    ok(file_write_json(scratch_path("whole/c.json"), value, &e), &e);
    json_decref(value);
    content_is(scratch_path("whole/c.json"), "{\n  \"step\": 3\n}\n");
    assert_int_equal(names_in(scratch_path("whole")), 3);
}

/* Like /dev/stdout, by its name or by a link to it. */
static void a_stream_is_written_to_and_stays_one(void **state)
{
    (void)state;
    pt_error e = {0};
    char text[32] = "";
    struct stat st;
    ok(dir_make(scratch_path("streams"), &e), &e);
    const char *fifo = scratch_path("streams/fifo"), *link = scratch_path("streams/link");
    assert_int_equal(mkfifo(fifo, 0600) || symlink("fifo", link), 0);
    int fd = open(fifo, O_RDWR | O_NONBLOCK);
    assert_true(fd >= 0);
    ok(file_write_atomic(fifo, "first,", 6, &e), &e);
    ok(file_write_atomic(link, "second", 6, &e), &e);
    assert_int_equal(read(fd, text, sizeof text - 1), 12);
    assert_string_equal(text, "first,second");
    assert_true(!lstat(fifo, &st) && S_ISFIFO(st.st_mode));
    assert_true(!lstat(link, &st) && S_ISLNK(st.st_mode));
    assert_int_equal(names_in(scratch_path("streams")), 2);
    close(fd);
}

static void large_files_are_copied_and_read_whole(void **state)
{
    (void)state;
    pt_error e = {0};
    size_t n = 5 * 65536 + 17, back_n;
    char *data = malloc(n), *back;
    for (size_t i = 0; i < n; i++)
        data[i] = (char)(i * 31 >> 3);
    ok(file_write_atomic(scratch_path("large"), data, n, &e), &e);
    ok(file_copy_atomic(scratch_path("large"), scratch_path("copy"), &e), &e);
    ok(file_read_all(scratch_path("copy"), n, &back, &back_n, &e), &e);
    assert_int_equal(back_n, n);
    assert_memory_equal(back, data, n);
    free(back);
    assert_int_equal(file_read_all(scratch_path("copy"), n - 1, &back, &back_n, &e), PT_FAILED);
    assert_null(back);
    assert_non_null(strstr(e.text, "at most"));
    free(data);
}

static void failures_name_the_path(void **state)
{
    (void)state;
    pt_error e = {0};
    char *data;
    size_t n;
    assert_int_equal(file_write_atomic(scratch_path("no/such/folder"), "x", 1, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "no/such/folder.tmp: cannot be created: No such file"));
    ok(dir_make(scratch_path("occupied/by"), &e), &e);
    assert_int_equal(file_write_atomic(scratch_path("occupied"), "x", 1, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "occupied: cannot be replaced"));
    assert_false(path_exists(scratch_path("occupied.tmp")));
    assert_int_equal(file_copy_atomic(scratch_path("absent"), scratch_path("x"), &e), PT_FAILED);
    assert_int_equal(file_copy_atomic(scratch_path("occupied"), scratch_path("x"), &e), PT_FAILED);
    assert_false(path_exists(scratch_path("x")));
    assert_int_equal(file_read_all(scratch_path("absent"), 10, &data, &n, &e), PT_FAILED);
    assert_int_equal(file_read_all(scratch_path("occupied"), 1 << 20, &data, &n, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "is a folder"));
    int full = open("/dev/full", O_WRONLY);
    assert_int_equal(fd_write_all(full, "x", 1, "/dev/full", &e), PT_FAILED);
    assert_non_null(strstr(e.text, "the disk is full: 1 B were still to be written"));
    close(full);
}

static void *drain(void *argument)
{
    int fd = *(int *)argument;
    char buffer[4096];
    while (read(fd, buffer, sizeof buffer) > 0)
        usleep(200);
    return NULL;
}

static void nothing(int signal_number) { (void)signal_number; }

static void a_limit_of_file_sizes_is_named(void **state)
{
    (void)state;
    struct rlimit all, little;
    pt_error e = {0}, before = {0};
    char data[8192] = "";
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &all);
    little = (struct rlimit){4096, all.rlim_max};
    setrlimit(RLIMIT_FSIZE, &little);
    const int failed = file_write_atomic(scratch_path("limited"), data, sizeof data, &e);
    errno = EFBIG;
    file_no_room("larger", 3 << 20, &before);
    setrlimit(RLIMIT_FSIZE, &all);
    assert_int_equal(failed, PT_FAILED);
    assert_non_null(strstr(e.text, "limited: takes another 4.00 KiB, more than the limit for files (ulimit -f): raise the limit"));
    assert_non_null(strstr(before.text, "larger: takes 3.00 MiB, more than the limit for files (ulimit -f): raise the limit"));
    assert_false(path_exists(scratch_path("limited")));
}

static void interrupted_and_short_writes_go_on(void **state)
{
    (void)state;
    pt_error e = {0};
    int pipes[2];
    pthread_t reader;
    static char data[300000];
    struct sigaction act = {.sa_handler = nothing}; /* no SA_RESTART */
    struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
    assert_int_equal(pipe(pipes), 0);
    assert_int_equal(pthread_create(&reader, NULL, drain, &pipes[0]), 0);
    sigaction(SIGALRM, &act, NULL);
    setitimer(ITIMER_REAL, &often, NULL);
    int status = fd_write_all(pipes[1], data, sizeof data, "pipe", &e);
    setitimer(ITIMER_REAL, &never, NULL);
    close(pipes[1]);
    pthread_join(reader, NULL);
    close(pipes[0]);
    ok(status, &e);
}

static void a_read_past_the_end_is_an_error(void **state)
{
    (void)state;
    pt_error e = {0};
    char data[8];
    scratch_put("five", "12345", 5);
    int fd = open(scratch_path("five"), O_RDONLY);
    ok(fd_pread_all(fd, data, 3, 2, "five", &e), &e);
    assert_memory_equal(data, "345", 3);
    assert_int_equal(fd_pread_all(fd, data, 4, 2, "five", &e), PT_FAILED);
    assert_non_null(strstr(e.text, "five: the file ends at byte 5, but 1 more bytes"));
    close(fd);
}

static void folders_are_made_and_removed_without_following_links(void **state)
{
    (void)state;
    pt_error e = {0};
    ok(dir_make(scratch_path("t/a//b/c/"), &e), &e);
    ok(dir_make(scratch_path("t/a/b/c"), &e), &e);
    ok(dir_make(scratch_path("kept"), &e), &e);
    scratch_put("kept/file", "x", 1);
    scratch_put("t/a/file", "x", 1);
    assert_int_equal(symlink(scratch_path("kept"), scratch_path("t/a/link")), 0);
    assert_int_equal(symlink("nowhere", scratch_path("t/dangling")), 0);
    ok(tree_remove(scratch_path("t"), &e), &e);
    assert_false(path_exists(scratch_path("t")));
    assert_true(path_exists(scratch_path("kept/file")));
    ok(tree_remove(scratch_path("t"), &e), &e); /* not there: fine */
    ok(tree_remove(scratch_path("kept/file"), &e), &e);
    scratch_put("plain", "x", 1);
    assert_int_equal(dir_make(scratch_path("plain"), &e), PT_FAILED);
    assert_non_null(strstr(e.text, "is a file"));
    assert_int_equal(dir_make(scratch_path("plain/below"), &e), PT_FAILED);
    assert_non_null(strstr(e.text, "plain/below: the folder cannot be made: Not a directory"));
}

static void free_space_is_known_for_paths_to_come(void **state)
{
    (void)state;
    pt_error e = {0};
    uint64_t there = 0, to_come = 0, here = 0;
    ok(disk_free_bytes(scratch, &there, &e), &e);
    ok(disk_free_bytes(scratch_path("not/yet/made"), &to_come, &e), &e);
    ok(disk_free_bytes("not/yet/made", &here, &e), &e);
    assert_true(there > 0 && to_come > 0 && here > 0);
    scratch_put("regular", "x", 1);
    ok(disk_free_bytes(scratch_path("regular"), &here, &e), &e);
}

static int is_memory(const char *folder)
{
    char to_come[64];
    snprintf(to_come, sizeof to_come, "%s/not/yet/made", folder);
    return disk_is_memory(folder) && disk_is_memory(to_come) && !disk_is_memory("/proc") ? 0 : 1;
}

static void a_folder_in_ram_is_known(void **state)
{
    (void)state;
    int status = on_small_disk(1 << 20, is_memory);
    if (status < 0) {
        printf("skipped: no file system can be mounted here\n");
        skip();
    }
    assert_int_equal(status, 0);
}

static void a_staged_folder_appears_when_it_is_complete(void **state)
{
    (void)state;
    pt_error e = {0};
    dir_stage s;
    char name[FILE_PATH_BYTES];
    ok(dir_stage_begin(&s, scratch_path("out/checkpoint-100/"), &e), &e);
    assert_false(path_exists(scratch_path("out/checkpoint-100")));
    ok(path_join(name, s.path, "state", &e), &e);
    ok(file_write_atomic(name, "one", 3, &e), &e);
    ok(path_join(name, s.path, "deep/er", &e), &e);
    ok(dir_make(name, &e), &e);
    ok(dir_stage_commit(&s, &e), &e);
    content_is(scratch_path("out/checkpoint-100/state"), "one");
    assert_true(path_is_folder(scratch_path("out/checkpoint-100/deep/er")));
    assert_int_equal(names_in(scratch_path("out")), 1);

    ok(dir_stage_begin(&s, scratch_path("out/checkpoint-100"), &e), &e); /* replaced in one exchange */
    ok(path_join(name, s.path, "state", &e), &e);
    ok(file_write_atomic(name, "two", 3, &e), &e);
    content_is(scratch_path("out/checkpoint-100/state"), "one");
    ok(dir_stage_commit(&s, &e), &e);
    content_is(scratch_path("out/checkpoint-100/state"), "two");
    assert_false(path_exists(scratch_path("out/checkpoint-100/deep")));

    ok(dir_stage_begin(&s, scratch_path("out/checkpoint-100"), &e), &e);
    ok(path_join(name, s.path, "state", &e), &e);
    ok(file_write_atomic(name, "three", 5, &e), &e);
    dir_stage_abort(&s);
    dir_stage_abort(&s); /* harmless */
    content_is(scratch_path("out/checkpoint-100/state"), "two");
    assert_int_equal(names_in(scratch_path("out")), 1);
}

/* In a child of its own, where exchanging two names ends in this error: 0 replaced, 1 refused, 77 no such filter here. */
static int replace_without_exchange(const char *folder, int error)
{
    dir_stage s;
    char name[FILE_PATH_BYTES];
    fflush(NULL);
    pid_t child = fork();
    if (!child) {
        if (!filter_call(SYS_renameat2, 4, RENAME_EXCHANGE, SECCOMP_RET_ERRNO | (unsigned)error) ||
            !renameat2(AT_FDCWD, folder, AT_FDCWD, folder, RENAME_EXCHANGE))
            _exit(77);
        _exit(dir_stage_begin(&s, folder, NULL) || path_join(name, s.path, "state", NULL) || file_write_atomic(name, "two", 3, NULL) ||
              dir_stage_commit(&s, NULL));
    }
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

static void a_folder_is_replaced_where_names_cannot_be_exchanged(void **state)
{
    (void)state;
    static const int errors[] = {EINVAL, ENOSYS, EOPNOTSUPP, EPERM, EIO};
    pt_error e = {0};
    for (int i = 0; i < 5; i++) {
        const bool replaced = errors[i] != EIO; /* which says nothing of what can be done */
        ok(dir_make(scratch_path("in-two/checkpoint-7/deep/er"), &e), &e);
        scratch_put("in-two/checkpoint-7/state", "one", 3);
        int status = replace_without_exchange(scratch_path("in-two/checkpoint-7"), errors[i]);
        if (status == 77)
            skip(); /* no filters here */
        assert_int_equal(status, !replaced);
        content_is(scratch_path("in-two/checkpoint-7/state"), replaced ? "two" : "one");
        assert_int_equal(path_exists(scratch_path("in-two/checkpoint-7/deep")), !replaced);
        assert_int_equal(names_in(scratch_path("in-two")), 1);
    }
}

/* As by containers whose processes have the same numbers. */
static void two_writers_of_one_number_do_not_meet(void **state)
{
    (void)state;
    pt_error e = {0};
    dir_stage one, two;
    ok(dir_stage_begin(&one, scratch_path("both/checkpoint-1"), &e), &e);
    ok(dir_stage_begin(&two, scratch_path("both/checkpoint-1"), &e), &e);
    assert_string_not_equal(one.path, two.path);
    ok(dir_stage_commit(&two, &e), &e);
    ok(dir_stage_commit(&one, &e), &e);
    assert_int_equal(names_in(scratch_path("both")), 1);
}

static void what_was_put_aside_comes_back_after_a_crash(void **state)
{
    (void)state;
    pt_error e = {0};
    ok(dir_make(scratch_path("aside/checkpoint-7.before-12"), &e), &e);
    scratch_put("aside/checkpoint-7.before-12/state", "old", 3);
    ok(dir_make(scratch_path("aside/checkpoint-7.tmp-12"), &e), &e);
    ok(dir_make(scratch_path("aside/checkpoint-8.before-12"), &e), &e);
    ok(dir_make(scratch_path("aside/checkpoint-8"), &e), &e);
    ok(dir_make(scratch_path("aside/mine.before-12"), &e), &e);
    dir_stages_clean(scratch_path("aside"), "checkpoint-0");
    content_is(scratch_path("aside/checkpoint-7/state"), "old");
    assert_true(path_exists(scratch_path("aside/checkpoint-8")) && path_exists(scratch_path("aside/mine.before-12")));
    assert_int_equal(names_in(scratch_path("aside")), 3);
}

static void what_a_killed_writer_left_is_removed_and_nothing_else(void **state)
{
    (void)state;
    pt_error e = {0};
    dir_stage s, other;
    ok(dir_make(scratch_path("kill"), &e), &e);
    fflush(NULL);
    pid_t child = fork();
    if (!child) {
        char name[FILE_PATH_BYTES];
        if (!dir_stage_begin(&s, scratch_path("kill/checkpoint-100"), NULL) && !path_join(name, s.path, "x", NULL) &&
            !file_write_atomic(name, "half", 4, NULL))
            kill(getpid(), SIGKILL);
        _exit(1);
    }
    int status;
    waitpid(child, &status, 0);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(names_in(scratch_path("kill")), 1);
    static const char *const bystanders[] = {"kill/checkpoint-100.tmp-x", "kill/checkpoint-.tmp-5", "kill/notes.tmp-5",
        "kill/checkpoint-5", "kill/my-checkpoint-100.tmp-5", "kill/checkpoint-100.tmp5"};
    for (int i = 0; i < 6; i++)
        ok(dir_make(scratch_path(bystanders[i]), &e), &e);
    ok(dir_stage_begin(&other, scratch_path("kill/checkpoint-300"), &e), &e); /* alive, and cleans */
    assert_int_equal(names_in(scratch_path("kill")), 7);
    ok(dir_stage_begin(&s, scratch_path("kill/checkpoint-200"), &e), &e);
    assert_true(path_is_folder(other.path));
    ok(dir_stage_commit(&other, &e), &e);
    ok(dir_stage_commit(&s, &e), &e);
    assert_int_equal(names_in(scratch_path("kill")), 8);
    for (int i = 0; i < 6; i++)
        assert_true(path_is_folder(scratch_path(bystanders[i])));
}

/* Killed at a random moment while a folder is discarded: all of it is under its name, or nothing. */
static void what_is_discarded_is_never_half_there(void **state)
{
    (void)state;
    enum { FILES = 200 };
    pt_error e = {0};
    char folder[200], name[64];
    snprintf(folder, sizeof folder, "%s", scratch_path("gone/checkpoint-1"));
    for (int round = 0; round < 20; round++) {
        ok(dir_make(folder, &e), &e);
        for (int i = 0; i < FILES; i++) {
            snprintf(name, sizeof name, "gone/checkpoint-1/%d", i);
            scratch_put(name, "x", 1);
        }
        fflush(NULL);
        pid_t child = fork();
        if (!child)
            _exit(tree_discard(folder, NULL));
        usleep((useconds_t)round * 150);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        if (path_exists(folder))
            assert_int_equal(names_in(folder), FILES);
    }
    ok(tree_discard(folder, &e), &e);
    ok(tree_discard(folder, &e), &e); /* not there: fine */
    assert_false(path_exists(folder));
    dir_stage s;
    ok(dir_stage_begin(&s, scratch_path("gone/checkpoint-2"), &e), &e); /* clears away what was left */
    dir_stage_abort(&s);
    assert_int_equal(names_in(scratch_path("gone")), 0);
}

static void a_staged_folder_does_not_replace_a_file(void **state)
{
    (void)state;
    pt_error e = {0};
    dir_stage s;
    scratch_put("taken", "mine", 4);
    ok(dir_stage_begin(&s, scratch_path("taken"), &e), &e);
    assert_int_equal(dir_stage_commit(&s, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "taken: the finished folder cannot be given this name"));
    content_is(scratch_path("taken"), "mine");
    assert_false(path_exists(s.path));
    assert_int_equal(dir_stage_begin(&s, scratch_path("taken/below"), &e), PT_FAILED);
}

static void a_second_run_into_the_same_folder_is_refused(void **state)
{
    (void)state;
    pt_error e = {0};
    dir_lock first, second;
    char expected[64];
    ok(dir_lock_take(&first, scratch, &e), &e);
    assert_int_equal(dir_lock_take(&second, scratch, &e), PT_FAILED);
    snprintf(expected, sizeof expected, "another run (pid %d) is writing here", (int)getpid());
    assert_non_null(strstr(e.text, expected));
    assert_int_equal(truncate(scratch_path(".lock"), 0), 0); /* as it is before the first has written its number */
    assert_int_equal(dir_lock_take(&second, scratch, &e), PT_FAILED);
    assert_non_null(strstr(e.text, "another run is writing here"));
    dir_lock_release(&first);
    assert_false(path_exists(scratch_path(".lock")));
    ok(dir_lock_take(&second, scratch, &e), &e);
    dir_lock_release(&second);
    dir_lock_release(&second); /* harmless */

    fflush(NULL);
    pid_t child = fork();
    if (!child) {
        if (!dir_lock_take(&first, scratch, NULL))
            kill(getpid(), SIGKILL);
        _exit(1);
    }
    int status;
    waitpid(child, &status, 0);
    assert_true(path_exists(scratch_path(".lock")));
    ok(dir_lock_take(&first, scratch, &e), &e); /* a killed run does not hold the folder */
    dir_lock_release(&first);
    assert_int_equal(dir_lock_take(&first, scratch_path("not/there"), &e), PT_FAILED);
    assert_non_null(strstr(e.text, "cannot write into this folder: No such file"));
}

static int fill_up(const char *folder)
{
    pt_error e = {0};
    char path[FILE_PATH_BYTES], *data = malloc(3 << 20);
    memset(data, 7, 3 << 20);
    if (path_join(path, folder, "state.json", &e) || file_write_atomic(path, "old", 3, &e))
        return 1;
    if (file_write_atomic(path, data, 3 << 20, &e) != PT_FAILED || !strstr(e.text, "state.json: the disk is full") ||
        !strstr(e.text, "still to be written"))
        return 2;
    content_is(path, "old");
    free(data);
    return names_in(folder) == 1 ? 0 : 3;
}

static void a_full_disk_leaves_the_old_content(void **state)
{
    (void)state;
    int status = on_small_disk(1 << 20, fill_up);
    if (status < 0)
        skip(); /* no small disk can be mounted here */
    assert_int_equal(status, 0);
}

static void *rewrite(void *argument)
{
    char *path = argument, data[5001];
    for (int i = 0; i < 40; i++) {
        memset(data, 'a' + i % 26, sizeof data);
        if (file_write_atomic(path, data, sizeof data - (size_t)(i % 2) * 2000, NULL))
            return "failed";
    }
    return NULL;
}

static void writers_of_one_file_do_not_mix(void **state)
{
    (void)state;
    pthread_t threads[3];
    char path[256];
    snprintf(path, sizeof path, "%s", scratch_path("shared"));
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, rewrite, path), 0);
    for (int i = 0; i < 3; i++) {
        void *result;
        pthread_join(threads[i], &result);
        assert_null(result);
    }
    char *data;
    size_t n;
    pt_error e = {0};
    ok(file_read_all(path, 1 << 20, &data, &n, &e), &e);
    assert_true(n == 5001 || n == 3001);
    for (size_t i = 1; i < n; i++)
        assert_int_equal(data[i], data[0]);
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_replaced_whole),
        cmocka_unit_test(a_stream_is_written_to_and_stays_one),
        cmocka_unit_test(large_files_are_copied_and_read_whole),
        cmocka_unit_test(failures_name_the_path),
        cmocka_unit_test(a_limit_of_file_sizes_is_named),
        cmocka_unit_test(interrupted_and_short_writes_go_on),
        cmocka_unit_test(a_read_past_the_end_is_an_error),
        cmocka_unit_test(folders_are_made_and_removed_without_following_links),
        cmocka_unit_test(free_space_is_known_for_paths_to_come),
        cmocka_unit_test(a_folder_in_ram_is_known),
        cmocka_unit_test(a_staged_folder_appears_when_it_is_complete),
        cmocka_unit_test(a_folder_is_replaced_where_names_cannot_be_exchanged),
        cmocka_unit_test(two_writers_of_one_number_do_not_meet),
        cmocka_unit_test(what_was_put_aside_comes_back_after_a_crash),
        cmocka_unit_test(what_a_killed_writer_left_is_removed_and_nothing_else),
        cmocka_unit_test(what_is_discarded_is_never_half_there),
        cmocka_unit_test(a_staged_folder_does_not_replace_a_file),
        cmocka_unit_test(a_second_run_into_the_same_folder_is_refused),
        cmocka_unit_test(a_full_disk_leaves_the_old_content),
        cmocka_unit_test(writers_of_one_file_do_not_mix),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
