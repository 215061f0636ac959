#include "comm/launcher.h"

#include "comm/net.h"
#include "comm/pmi.h"
#include "io/files.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { PORTS = 16, FIRST_PORT = 20000, PORT_RANGE = 10000, PORTS_MOST = 65535, DEFAULT_PORT = 29500 };

static const char *text_of(const char *name)
{
    const char *text = getenv(name);
    return text && *text ? text : NULL;
}

static int number(const char *name, int most, int *out, pt_error *e)
{
    const char *text = text_of(name);
    char *end = NULL;
    const long n = text ? strtol(text, &end, 10) : -1;
    if (n < 0 || n > most || *end)
        return pt_fail(e, PT_USAGE, "the environment has %s=%.40s: it should be a number from 0 to %d", name, text ? text : "", most);
    *out = (int)n;
    return 0;
}

static uint64_t add(uint64_t hash, const char *text) /* FNV-1a */
{
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    return (hash ^ 0xff) * 0x100000001b3u;
}

/* A hash of the variables that name the job, its step and its attempt. They must be the same on all ranks: MASTER_ADDR need not be, since a
 * machine has several names. */
static uint64_t key_of(const char *const *names)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *names; names++)
        hash = add(hash, text_of(*names) ? text_of(*names) : "");
    return hash;
}
#define KEY(...) key_of((const char *const[]){"MASTER_PORT", __VA_ARGS__, NULL})

/* The given port, else one derived from the job's key. */
static int take_master(launcher *out, pt_error *e)
{
    if (text_of("MASTER_ADDR"))
        snprintf(out->address, sizeof out->address, "%s", text_of("MASTER_ADDR"));
    out->ports = PORTS;
    out->port = FIRST_PORT + (int)(out->key % (PORT_RANGE / PORTS)) * PORTS;
    if (!text_of("MASTER_PORT"))
        return 0;
    out->ports = 1;
    return number("MASTER_PORT", PORTS_MOST, &out->port, e);
}

/* If all ranks are on this machine, nobody else has to reach rank 0. */
static void take_this_machine(launcher *out)
{
    if (out->here == out->ranks)
        snprintf(out->address, sizeof out->address, "localhost");
}

/* torchrun may listen at MASTER_PORT itself, and says so in TORCHELASTIC_USE_AGENT_STORE. Its restarts are no part of the key: each of its
 * agents counts its own, and none when a node joins. */
static int of_torchrun(launcher *out, pt_error *e)
{
    const char *store = text_of("TORCHELASTIC_USE_AGENT_STORE");
    out->by = text_of("TORCHELASTIC_RUN_ID") ? "torchrun" : "RANK and WORLD_SIZE";
    out->key = KEY("TORCHELASTIC_RUN_ID");
    int failed = number("RANK", 1 << 20, &out->rank, e);
    if (!failed)
        failed = number("WORLD_SIZE", 1 << 20, &out->ranks, e);
    if (!failed && text_of("LOCAL_WORLD_SIZE"))
        failed = number("LOCAL_WORLD_SIZE", 1 << 20, &out->here, e);
    if (!failed && out->ranks > 1 && !text_of("MASTER_ADDR"))
        failed = pt_fail(e, PT_USAGE, "the environment has RANK=%d and WORLD_SIZE=%d, and no MASTER_ADDR: name the machine of rank 0 by it",
                         out->rank, out->ranks);
    if (!failed)
        failed = take_master(out, e);
    if (!failed && !text_of("MASTER_PORT")) {
        out->port = DEFAULT_PORT;
        out->ports = 1;
    }
    if (!failed && store && !strcasecmp(store, "true")) {
        out->port = out->port + PORTS < PORTS_MOST ? out->port + 1 : FIRST_PORT;
        out->ports = PORTS;
    }
    take_this_machine(out);
    return failed;
}


static int of_open_mpi(launcher *out, pt_error *e)
{
    out->by = "mpirun";
    out->mpi = "openmpi";
    out->key = KEY("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri");
    int failed = number("OMPI_COMM_WORLD_RANK", 1 << 20, &out->rank, e);
    if (!failed)
        failed = number("OMPI_COMM_WORLD_SIZE", 1 << 20, &out->ranks, e);
    if (!failed && text_of("OMPI_COMM_WORLD_LOCAL_SIZE"))
        failed = number("OMPI_COMM_WORLD_LOCAL_SIZE", 1 << 20, &out->here, e);
    if (!failed)
        failed = take_master(out, e);
    take_this_machine(out);
    return failed;
}

/* The job's name comes from PMI (launcher_ask). */
static int of_mpich(launcher *out, pt_error *e)
{
    out->by = "mpirun";
    out->mpi = "mpich";
    out->key = KEY(NULL);
    int failed = number("PMI_RANK", 1 << 20, &out->rank, e);
    if (!failed)
        failed = number("PMI_SIZE", 1 << 20, &out->ranks, e);
    if (!failed)
        failed = number("MPI_LOCALNRANKS", 1 << 20, &out->here, e);
    if (!failed && text_of("PMI_FD"))
        failed = number("PMI_FD", 1 << 20, &out->pmi, e);
    return failed ? failed : take_master(out, e);
}

/* Rank 0's word: a random key, and where it is. */
static int make_word(const launcher *l, char word[PMI_WORD_BYTES], pt_error *e)
{
    uint64_t key;
    if (getrandom(&key, sizeof key, 0) != sizeof key)
        return pt_fail_errno(e, PT_FAILED, "no random number");
    const int n = snprintf(word, PMI_WORD_BYTES, "%016llx/", (unsigned long long)key);
    net_own_addresses(word + n, PMI_WORD_BYTES - (size_t)n);
    if (l->here == l->ranks || !word[n])
        snprintf(word + n, PMI_WORD_BYTES - (size_t)n, "localhost");
    return 0;
}

static int ask_pmi(launcher *l, pt_error *e)
{
    char job[PMI_WORD_BYTES] = "", word[PMI_WORD_BYTES] = "";
    int failed = l->rank ? 0 : make_word(l, word, e);
    if (!failed)
        failed = pmi_exchange(l->pmi, l->rank, job, word, e);
    char *address = strchr(word, '/');
    if (!failed && !address)
        failed = pt_fail(e, PT_FAILED, "mpirun does not say where rank 0 is (\"%.100s\"): set MASTER_ADDR and MASTER_PORT", word);
    if (failed)
        return failed;
    *address++ = 0;
    snprintf(l->address, sizeof l->address, "%s", address);
    l->key = add(l->key, job);
    failed = take_master(l, e);
    l->key = add(l->key, word);
    return failed;
}

/* The text of a file, without the end of its line. */
static int add_file(launcher *l, const char *path, pt_error *e)
{
    enum { BYTES_MOST = 1 << 16 };
    char *text;
    size_t n;
    const int failed = file_read_all(path, BYTES_MOST, &text, &n, e);
    if (failed)
        return failed;
    while (n && isspace((unsigned char)text[n - 1]))
        text[--n] = 0;
    l->key = add(l->key, text);
    free(text);
    return n ? 0 : pt_fail(e, PT_USAGE, "%.400s, the file of PROTRAIN_RUN_KEY_FILE, is empty: write the key of the run into it, such as 32 "
                           "random digits", path);
}

static int add_given_key(launcher *l, pt_error *e)
{
    const char *key = text_of("PROTRAIN_RUN_KEY"), *file = text_of("PROTRAIN_RUN_KEY_FILE");
    if (key && file)
        return pt_fail(e, PT_USAGE, "the environment has PROTRAIN_RUN_KEY and PROTRAIN_RUN_KEY_FILE: unset one of them");
    if (key)
        l->key = add(l->key, key);
    return file ? add_file(l, file, e) : 0;
}

int launcher_ask(launcher *l, pt_error *e)
{
    const int failed = l->pmi < 0 || l->address[0] ? 0 : ask_pmi(l, e);
    take_this_machine(l);
    return failed ? failed : add_given_key(l, e);
}

void launcher_first_host(const char *list, char *out, size_t room)
{
    const size_t name = strcspn(list, "[,"), digits = list[name] == '[' ? strcspn(list + name + 1, "-,]") : 0;
    snprintf(out, room, "%.*s%.*s", (int)(name < 200 ? name : 200), list, (int)(digits < 40 ? digits : 40), digits ? list + name + 1 : "");
}

static int of_slurm(launcher *out, pt_error *e)
{
    out->by = "srun";
    out->key = KEY("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT");
    int failed = number("SLURM_PROCID", 1 << 20, &out->rank, e);
    if (!failed)
        failed = number("SLURM_STEP_NUM_TASKS", 1 << 20, &out->ranks, e);
    if (!failed)
        failed = take_master(out, e);
    if (!failed && !out->address[0] && text_of("SLURM_STEP_NODELIST"))
        launcher_first_host(text_of("SLURM_STEP_NODELIST"), out->address, sizeof out->address);
    if (text_of("SLURM_STEP_NUM_NODES") && !strcmp(text_of("SLURM_STEP_NUM_NODES"), "1"))
        out->here = out->ranks;
    take_this_machine(out);
    return failed;
}

int launcher_find(launcher *out, pt_error *e)
{
    *out = (launcher){.ranks = 1, .pmi = -1};
    int failed = text_of("RANK") && text_of("WORLD_SIZE")                           ? of_torchrun(out, e)
                 : text_of("OMPI_COMM_WORLD_RANK") && text_of("OMPI_COMM_WORLD_SIZE") ? of_open_mpi(out, e)
                 : text_of("PMI_RANK") && text_of("MPI_LOCALNRANKS")                ? of_mpich(out, e)
                 : text_of("SLURM_PROCID") && text_of("SLURM_STEP_NUM_TASKS")       ? of_slurm(out, e)
                                                                                    : 0;
    if (!failed && (!out->ranks || out->rank >= out->ranks))
        failed = pt_fail(e, PT_USAGE, "%s started this process as rank %d of %d: ranks count from 0", out->by, out->rank, out->ranks);
    return failed;
}
