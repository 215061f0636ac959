/* ranks_device.c - which device each rank computes on.
 *
 * Ranks of a machine that see the same GPUs take them in order, one each. If a launcher shows each rank its own GPUs (Slurm's
 * --gpus-per-task), each rank takes its first one. More ranks than GPUs share them only if the user numbered the GPUs (cuda:0,1), and so
 * asked for it.
 */
#include "comm/linked.h"
#include "comm/staged.h"
#include "train/options.h"
#include "train/ranks.h"

#include <stdio.h>
#include <string.h>

/* The GPUs that a rank sees. */
typedef struct sight { uint64_t machine, gpus; int n; } sight;

static uint64_t sum_of(const gpu_list *g)
{
    uint64_t sum = 0xcbf29ce484222325u;
    for (int i = 0; i < g->n; i++)
        sum = (sum ^ g->id[i]) * 0x100000001b3u;
    return sum;
}

static int refuse_alone(const pt_train_options *o, pt_error *e)
{
    gpu_list numbers;
    int failed = device_numbers(o->device, &numbers, e);
    if (!failed && numbers.n > 1)
        return pt_fail(e, PT_USAGE, "`device` %.100s names %d GPUs, and this run has one rank: give `ranks` %d, or one GPU", o->device,
                       numbers.n, numbers.n);
    return failed;
}

static int refuse_few(const trainer *trainer, const gpu_list *g, int here, pt_error *e)
{
    char names[5 * GPUS_MOST + 8] = "cuda:";
    for (int i = 0; i < g->n; i++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%d", i ? "," : "", g->ordinal[i]);
    return pt_fail(e, PT_USAGE, "%d ranks of this machine see %d usable GPU%s: give `ranks` %d, or `device` %.200s to let them share %s, "
                   "or `device` cpu",
                   here, g->n, g->n > 1 ? "s" : "", g->n * trainer->comm->ranks / here, names, g->n > 1 ? "GPUs" : "it");
}

/* The index of this rank among the ranks that see the same GPUs, and their number. */
static int find_place(const trainer *trainer, const gpu_list *g, int *place, int *here, pt_error *e)
{
    const comm *c = trainer->comm;
    const sight own = {c->machine, sum_of(g), g->n};
    sight all[COMM_RANKS_MOST];
    int failed = comm_all_gather(trainer->comm, &own, sizeof own, all, e);
    *place = *here = 0;
    for (int r = 0; r < c->ranks && !failed; r++) {
        if (!all[r].n != !own.n)
            return pt_fail(e, PT_FAILED, "`device` %s: it %s, and rank %d %s: give all ranks GPUs, or `device` cpu", trainer->job.o.device,
                           own.n ? "has a GPU" : "has none that it can use", r, own.n ? "has none" : "has one");
        const bool same = all[r].machine == own.machine && all[r].gpus == own.gpus;
        *place += same && r < c->rank;
        *here += same;
    }
    return failed;
}

static int count_sharers(trainer *trainer, pt_error *e)
{
    const sight own = {trainer->comm->machine, trainer->gpu_id, 1};
    sight all[COMM_RANKS_MOST];
    int failed = comm_all_gather(trainer->comm, &own, sizeof own, all, e);
    trainer->ranks_on_gpu = 0;
    for (int r = 0; r < trainer->comm->ranks && !failed; r++)
        trainer->ranks_on_gpu += all[r].machine == own.machine && all[r].gpus == own.gpus;
    return failed;
}

int ranks_choose_device(trainer *trainer, pt_error *e)
{
    pt_train_options *o = &trainer->job.o;
    gpu_list g;
    int place, here;
    if (!trainer->comm)
        return refuse_alone(o, e);
    int failed = device_gpus(o->device, &g, e);
    if (!failed)
        failed = find_place(trainer, &g, &place, &here, e);
    if (failed)
        return failed;
    if (!g.n) {
        o->device = "cpu";
        return 0;
    }
    if (here > g.n && !g.numbered)
        return refuse_few(trainer, &g, here, e);
    snprintf(trainer->gpu, sizeof trainer->gpu, "cuda:%d", g.ordinal[place % g.n]);
    o->device = trainer->gpu;
    trainer->gpu_id = g.id[place % g.n];
    return count_sharers(trainer, e);
}

int ranks_reach_devices(trainer *trainer, pt_error *e)
{
    device *d = trainer->planning.device;
    if (!trainer->comm || !device_is_gpu(d))
        return 0;
    char why[LINKED_WHY_BYTES];
    step_shape_for_gpu(&trainer->own_shape, trainer->job.model);
    int failed = comm_staged_open(trainer->comm, d, STAGED_BYTES, &trainer->by_host, e);
    if (!failed)
        failed = comm_linked_open(trainer->by_host, d, trainer->gpu_id, &trainer->device_comm, why, e);
    if (failed)
        return failed;
    options_notice(&trainer->job.o,
                   trainer->device_comm ? "the ranks' GPUs exchange by %s" : "the ranks' GPUs exchange through host memory: %s", why);
    trainer->device_comm = trainer->device_comm ? trainer->device_comm : trainer->by_host;
    return 0;
}
