/* Who started this process, by what launchers leave in the environment. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "comm/join.h"
#include "comm/launcher.h"
#include "comm/pmi.h"

#include <stdio.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char *const names[] = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
                                    "TORCHELASTIC_USE_AGENT_STORE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                    "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE", "PMI_RANK", "PMI_SIZE", "PMI_FD", "MPI_LOCALNRANKS",
                                    "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST", "SLURM_JOB_ID", "SLURM_STEP_ID",
                                    "SLURM_NTASKS", "SLURM_STEP_NUM_NODES", "LOCAL_WORLD_SIZE", "PROTRAIN_RANK", "PROTRAIN_RUN_KEY",
                                    "PROTRAIN_RUN_KEY_FILE"};

/* "NAME=VALUE NAME=VALUE": that, and nothing else. */
static void set_environment(const char *all)
{
    char copy[512], *rest;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
    snprintf(copy, sizeof copy, "%s", all);
    for (char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        *strchr(word, '=') = 0;
        setenv(word, word + strlen(word) + 1, 1);
    }
}

static launcher found(const char *all)
{
    launcher l;
    pt_error e = {0};
    set_environment(all);
    if (launcher_find(&l, &e))
        fail_msg("%s: %s", all, e.text);
    return l;
}

static void nobody_did(void **unused)
{
    (void)unused;
    static const char *const all[] = {"", "RANK=3", "WORLD_SIZE=8", "SLURM_PROCID=0 SLURM_NTASKS=8" /* a batch script */};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const launcher l = found(all[i]);
        assert_null(l.by);
        assert_int_equal(l.ranks, 1);
    }
}

static void torchrun_did(void **unused)
{
    (void)unused;
    const launcher a = found("RANK=3 WORLD_SIZE=8 MASTER_ADDR=node1 MASTER_PORT=29501");
    assert_int_equal(a.rank, 3);
    assert_int_equal(a.ranks, 8);
    assert_string_equal(a.address, "node1");
    assert_int_equal(a.port, 29501);
    assert_int_equal(a.ports, 1);
    const launcher b = found("RANK=3 WORLD_SIZE=8 MASTER_ADDR=node1 MASTER_PORT=29501 TORCHELASTIC_USE_AGENT_STORE=True");
    assert_int_equal(b.port, 29502); /* torchrun has the other */
    assert_true(b.ports > 1);
    const launcher c = found("RANK=0 WORLD_SIZE=8 MASTER_ADDR=node1 MASTER_PORT=29502"), d = found("RANK=1 WORLD_SIZE=8 MASTER_ADDR=node1 "
                                                                                               "MASTER_PORT=29502");
    assert_true(a.key != c.key && c.key == d.key);
    assert_int_equal(found("RANK=0 WORLD_SIZE=2 MASTER_ADDR=node1").port, 29500);
}

/* After a node has joined, torchrun's agents have counted different numbers of restarts, and rank 0's machine may have several names. */
static void what_differs_between_machines_is_not_in_the_key(void **unused)
{
    (void)unused;
#define TWO(rank, address, id, count) "RANK=" rank " WORLD_SIZE=2 MASTER_ADDR=" address " MASTER_PORT=29501 TORCHELASTIC_RUN_ID=" id \
                                      " TORCHELASTIC_RESTART_COUNT=" count
    const launcher a = found(TWO("0", "localhost", "7", "1")), b = found(TWO("1", "node1", "7", "0"));
    const launcher c = found(TWO("1", "node1", "8", "0"));
    assert_true(a.key == b.key && b.key != c.key);
}

static void mpirun_did(void **unused)
{
    (void)unused;
    const launcher a = found("OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=4 PMIX_NAMESPACE=17"),
                   b = found("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=4 PMIX_NAMESPACE=18");
    assert_int_equal(a.rank, 1);
    assert_int_equal(a.ranks, 4);
    assert_string_equal(a.address, "localhost");
    assert_true(a.key != b.key);
    assert_string_equal(found("OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=2").address, "");
    assert_string_equal(found("OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=2 MASTER_ADDR=node1").address,
                        "node1");
}

/* What MPICH's mpirun answers at PMI_FD. */
static void *answer(void *arg)
{
    const int fd = *(const int *)arg;
    FILE *f = fdopen(fd, "r+");
    char line[256], value[64] = "", command[32];
    while (f && fgets(line, sizeof line, f)) {
        pmi_value(line, "cmd", command, sizeof command);
        if (!strcmp(command, "put"))
            pmi_value(line, "value", value, sizeof value);
        fseek(f, 0, SEEK_CUR);
        if (!strcmp(command, "init"))
            fputs("cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n", f);
        else if (!strcmp(command, "get_my_kvsname"))
            fputs("cmd=my_kvsname kvsname=kvs_17\n", f);
        else if (!strcmp(command, "put"))
            fputs("cmd=put_result rc=0 msg=success\n", f);
        else if (!strcmp(command, "barrier_in"))
            fputs("cmd=barrier_out\n", f);
        else if (!strcmp(command, "get"))
            fprintf(f, "cmd=get_result rc=0 msg=success value=%s\n", value[0] ? value : "0123456789abcdef/node9");
        else
            fputs("cmd=finalize_ack\n", f);
        fflush(f);
    }
    if (f)
        fclose(f);
    return NULL;
}

static void mpich_is_asked(void **unused)
{
    (void)unused;
    for (int rank = 0; rank < 2; rank++) {
        int fd[2];
        char environment[160];
        pthread_t thread;
        pt_error e = {0};
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
        assert_int_equal(pthread_create(&thread, NULL, answer, &fd[1]), 0);
        snprintf(environment, sizeof environment, "PMI_RANK=%d PMI_SIZE=2 MPI_LOCALNRANKS=%d PMI_FD=%d", rank, 2 - rank, fd[0]);
        launcher l = found(environment);
        const uint64_t key = l.key;
        assert_string_equal(l.address, "");
        if (launcher_ask(&l, &e))
            fail_msg("%s", e.text);
        assert_string_equal(l.address, rank ? "node9" : "localhost");
        assert_true(l.key != key);
        close(fd[0]);
        pthread_join(thread, NULL);
    }
}

/* Two runs of the same job name have different keys: rank 0 draws one. */
static void mpich_passes_a_random_key(void **unused)
{
    (void)unused;
    uint64_t key[2];
    for (int i = 0; i < 2; i++) {
        int fd[2];
        char environment[160];
        pthread_t thread;
        pt_error e = {0};
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fd), 0);
        assert_int_equal(pthread_create(&thread, NULL, answer, &fd[1]), 0);
        snprintf(environment, sizeof environment, "PMI_RANK=0 PMI_SIZE=2 MPI_LOCALNRANKS=2 PMI_FD=%d", fd[0]);
        launcher l = found(environment);
        assert_int_equal(launcher_ask(&l, &e), 0);
        key[i] = l.key;
        close(fd[0]);
        pthread_join(thread, NULL);
    }
    assert_true(key[0] != key[1]);
}

/* Of a rank whose environment is this, with the key that the user gives. */
static uint64_t key_of(const char *environment)
{
    pt_error e = {0};
    launcher l = found(environment);
    if (launcher_ask(&l, &e))
        fail_msg("%s: %s", environment, e.text);
    return l.key;
}

static void the_key_of_a_run_can_be_given(void **unused)
{
    (void)unused;
#define RUN "RANK=1 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=29500"
    char path[] = "/tmp/pt-key-XXXXXX", by_file[200];
    launcher l;
    pt_error e = {0};
    const int fd = mkstemp(path);
    snprintf(by_file, sizeof by_file, RUN " PROTRAIN_RUN_KEY_FILE=%s", path);
    l = found(by_file);
    assert_int_equal(launcher_ask(&l, &e), PT_USAGE);
    assert_true(strstr(e.text, path) && strstr(e.text, "PROTRAIN_RUN_KEY_FILE"));
    assert_int_equal(write(fd, "secret\n", 7), 7);
    assert_true(key_of(by_file) == key_of(RUN " PROTRAIN_RUN_KEY=secret"));
    assert_true(key_of(RUN) != key_of(RUN " PROTRAIN_RUN_KEY=secret"));
    assert_true(key_of(RUN " PROTRAIN_RUN_KEY=other") != key_of(RUN " PROTRAIN_RUN_KEY=secret"));
    setenv("PROTRAIN_RUN_KEY", "secret", 1);
    setenv("PROTRAIN_RUN_KEY_FILE", path, 1);
    assert_int_equal(launcher_ask(&l, &e), PT_USAGE);
    close(fd);
    unlink(path);
    unsetenv("PROTRAIN_RUN_KEY");
    assert_int_equal(launcher_ask(&l, &e), PT_FAILED);
    assert_non_null(strstr(e.text, path));
}

/* Whatever else is said of where rank 0 is. */
static void ranks_of_one_machine_meet_on_it_alone(void **unused)
{
    (void)unused;
    static const char *const all[] = {"RANK=1 WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=node1 MASTER_PORT=29500",
                                      "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_SIZE=2 MASTER_ADDR=node1",
                                      "PMI_RANK=1 PMI_SIZE=2 MPI_LOCALNRANKS=2 MASTER_ADDR=node1",
                                      "SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NUM_NODES=1 SLURM_STEP_NODELIST=node1"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        pt_error e = {0};
        launcher l = found(all[i]);
        assert_int_equal(launcher_ask(&l, &e), 0);
        assert_string_equal(l.address, "localhost");
    }
    assert_string_equal(found("RANK=1 WORLD_SIZE=2 LOCAL_WORLD_SIZE=1 MASTER_ADDR=node1 MASTER_PORT=29500").address, "node1");
}

static void srun_did(void **unused)
{
    (void)unused;
    const launcher a = found("SLURM_PROCID=2 SLURM_STEP_NUM_TASKS=4 SLURM_STEP_NODELIST=n[07-08] SLURM_JOB_ID=5 SLURM_STEP_ID=0");
    assert_int_equal(a.rank, 2);
    assert_int_equal(a.ranks, 4);
    assert_string_equal(a.address, "n07");
    assert_true(a.port >= 1024 && a.ports > 1);
    assert_true(a.key != found("SLURM_PROCID=2 SLURM_STEP_NUM_TASKS=4 SLURM_STEP_NODELIST=n[07-08] SLURM_JOB_ID=5 SLURM_STEP_ID=1").key);
    /* what started the process last is nearest to it */
    assert_int_equal(found("SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=2 RANK=5 WORLD_SIZE=16 MASTER_ADDR=n07 MASTER_PORT=29500").ranks, 16);
}

static void first_hosts(void **unused)
{
    (void)unused;
    static const char *const all[][2] = {{"node1", "node1"}, {"node1,node2", "node1"}, {"node[07-12,20],login1", "node07"},
                                         {"n[3,5]", "n3"}, {"rack1-n[001-004]", "rack1-n001"}, {"", ""}, {"[", ""}, {"a[", "a"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char out[256];
        launcher_first_host(all[i][0], out, sizeof out);
        assert_string_equal(out, all[i][1]);
    }
}

static void what_is_no_number_is_refused(void **unused)
{
    (void)unused;
    static const char *const all[][2] = {{"RANK=x WORLD_SIZE=2 MASTER_ADDR=a", "RANK=x"}, {"RANK=0 WORLD_SIZE=2", "no MASTER_ADDR"},
                                         {"RANK=2 WORLD_SIZE=2 MASTER_ADDR=a", "rank 2 of 2"}, {"RANK=0 WORLD_SIZE=0", "rank 0 of 0"},
                                         {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=70000", "MASTER_PORT=70000"},
                                         {"SLURM_PROCID=-1 SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=-1"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        launcher l;
        pt_error e = {0};
        set_environment(all[i][0]);
        if (launcher_find(&l, &e) != PT_USAGE || !strstr(e.text, all[i][1]))
            fail_msg("%s: %s", all[i][0], e.text);
    }
}

static void what_is_asked_for_is_what_was_started(void **unused)
{
    (void)unused;
    int ranks = 0, rank;
    pt_error e = {0};
    set_environment("RANK=1 WORLD_SIZE=2 MASTER_ADDR=a MASTER_PORT=29500");
    assert_int_equal(join_find(&ranks, &rank, &e), 0);
    assert_int_equal(ranks, 2);
    assert_int_equal(rank, 1);
    ranks = 4;
    assert_int_equal(join_find(&ranks, &rank, &e), PT_USAGE);
    assert_non_null(strstr(e.text, "--ranks 4"));
    ranks = 1; /* for itself, whatever started it */
    assert_int_equal(join_find(&ranks, &rank, &e), 0);
    assert_int_equal(ranks, 1);
    assert_int_equal(rank, -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(nobody_did), cmocka_unit_test(torchrun_did),
                                       cmocka_unit_test(what_differs_between_machines_is_not_in_the_key), cmocka_unit_test(mpirun_did),
                                       cmocka_unit_test(mpich_is_asked), cmocka_unit_test(mpich_passes_a_random_key),
                                       cmocka_unit_test(the_key_of_a_run_can_be_given),
                                       cmocka_unit_test(ranks_of_one_machine_meet_on_it_alone), cmocka_unit_test(srun_did),
                                       cmocka_unit_test(first_hosts),
                                       cmocka_unit_test(what_is_no_number_is_refused),
                                       cmocka_unit_test(what_is_asked_for_is_what_was_started)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
