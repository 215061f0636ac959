#include "comm/launcher.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static uint64_t add_text(uint64_t hash, const char *name) /* FNV-1a */
{
    const char *text = text_of(name);
    for (const char *c = text ? text : ""; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 0x100000001b3u;
    return (hash ^ 0xff) * 0x100000001b3u;
}

/* Of what names the job, and its steps and tries. */
static uint64_t key_of(const char *const *names)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *names; names++)
        hash = add_text(hash, *names);
    return hash;
}
#define KEY(...) key_of((const char *const[]){__VA_ARGS__, "MASTER_ADDR", "MASTER_PORT", NULL})

/* What is given, else a port that the job's name says. */
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

/* torchrun itself listens at MASTER_PORT, and says so. */
static int of_torchrun(launcher *out, pt_error *e)
{
    const char *store = text_of("TORCHELASTIC_USE_AGENT_STORE");
    out->by = text_of("TORCHELASTIC_RUN_ID") ? "torchrun" : "RANK and WORLD_SIZE";
    out->key = KEY("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT");
    int failed = number("RANK", 1 << 20, &out->rank, e);
    if (!failed)
        failed = number("WORLD_SIZE", 1 << 20, &out->ranks, e);
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
    return failed;
}

static int of_open_mpi(launcher *out, pt_error *e)
{
    int here = 0;
    out->by = "mpirun";
    out->key = KEY("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri");
    int failed = number("OMPI_COMM_WORLD_RANK", 1 << 20, &out->rank, e);
    if (!failed)
        failed = number("OMPI_COMM_WORLD_SIZE", 1 << 20, &out->ranks, e);
    if (!failed && text_of("OMPI_COMM_WORLD_LOCAL_SIZE"))
        failed = number("OMPI_COMM_WORLD_LOCAL_SIZE", 1 << 20, &here, e);
    if (!failed)
        failed = take_master(out, e);
    if (!failed && !out->address[0] && here == out->ranks)
        snprintf(out->address, sizeof out->address, "localhost");
    return failed;
}

static int of_mpich(launcher *out, pt_error *e)
{
    int here = 0;
    out->by = "mpirun";
    out->key = KEY("PMI_ID_NONE");
    int failed = number("PMI_RANK", 1 << 20, &out->rank, e);
    if (!failed)
        failed = number("PMI_SIZE", 1 << 20, &out->ranks, e);
    if (!failed)
        failed = number("MPI_LOCALNRANKS", 1 << 20, &here, e);
    if (!failed)
        failed = take_master(out, e);
    if (!failed && !out->address[0] && here == out->ranks)
        snprintf(out->address, sizeof out->address, "localhost");
    return failed;
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
    return failed;
}

int launcher_find(launcher *out, pt_error *e)
{
    *out = (launcher){.ranks = 1};
    int failed = text_of("RANK") && text_of("WORLD_SIZE")                           ? of_torchrun(out, e)
                 : text_of("OMPI_COMM_WORLD_RANK") && text_of("OMPI_COMM_WORLD_SIZE") ? of_open_mpi(out, e)
                 : text_of("PMI_RANK") && text_of("MPI_LOCALNRANKS")                ? of_mpich(out, e)
                 : text_of("SLURM_PROCID") && text_of("SLURM_STEP_NUM_TASKS")       ? of_slurm(out, e)
                                                                                    : 0;
    if (!failed && (!out->ranks || out->rank >= out->ranks))
        failed = pt_fail(e, PT_USAGE, "%s started this process as rank %d of %d: ranks count from 0", out->by, out->rank, out->ranks);
    return failed;
}
