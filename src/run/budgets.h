/* budgets.h - how many bytes of each tier a run may use: what the user gave, else what is free, less a margin.
 *
 *   memory    | other programs | margin | device arena | host arena |      the machine's, or the cgroup's limit
 *   disk      | files          | margin | the disk tier's file      |
 *   GPU       | other programs | margin | device arena |                     then the memory above holds only the host arena
 *
 * The folder of the disk tier may lie in RAM (tmpfs). Then there is a disk tier only if the user gave a budget for it, and it counts
 * with the arenas in memory.
 *
 * A budget limits the arena of a tier. A process also needs memory outside its arenas: program and libraries, tokenizer and data, the
 * batch on its way to the device (20 bytes per token), scratch space and stack of each compute thread. This comes from the margin or,
 * if the user gave a budget, from what is free beyond it, which must suffice. It is less than MACHINE_PROGRAM_BYTES with up to 8 threads.
 * The memory of more threads (device_info.threads_bytes) is subtracted from the device's budget.
 */
#ifndef PT_BUDGETS_H
#define PT_BUDGETS_H

#include "base/error.h"
#include "device/device.h"
#include "machine/machine.h"
#include "machine/machine_file.h"

typedef struct budget_request {
    uint64_t asked[TIERS];  /* bytes or PT_AUTO; on a CPU there is a host tier only if it is not PT_AUTO */
    const char *disk_path;  /* folder of the disk tier's file */
    const device *device;   /* NULL: the CPU. With a GPU there always is a host tier */
    const machine *machine; /* NULL: this machine, in its current state */
    void (*notice)(void *arg, const char *sentence); /* notes for the user; may be NULL */
    void *arg;
    uint64_t *missing_bytes; /* set to the bytes that do not fit, or that threads need beyond the given budgets; else 0; may be NULL */
    /* BUDGETS_CHANGE_BYTES: set to options that would fit, for each refused tier, else ""; may be NULL */
    char *change;
    uint64_t disk_reserve;  /* bytes of the disk for other purposes; subtracted if the budget is PT_AUTO */
    uint64_t memory_reserve; /* the same for RAM, with any budget: files saved into a folder that lies there */
    uint64_t disk_own;      /* bytes that files on the disk take now and that will be free */
} budget_request;

enum { BUDGETS_WHY_BYTES = 448, BUDGETS_CHANGE_BYTES = 128 };

/* PT_DOES_NOT_FIT if a given budget exceeds what is free, in memory or on the disk. why (may be NULL): a sentence for the user on what was
 * free under which limit, and the margins; "" if all budgets were given and threads need nothing of them. */
int budgets_choose(const budget_request *r, uint64_t budget[TIERS], bool *host_tier, char why[BUDGETS_WHY_BYTES], pt_error *e);
/* For a run that does not fit: notes if the disk tier got nothing because its folder lies in RAM. */
void budgets_notice_disk(const budget_request *r);
/* The budgets of the machine in a machine file: the given ones, else all it has less the same margins. Does not look at this machine. why:
 * as above, about the file's memory. */
void budgets_of_machine(const machine_spec *x, const budget_request *r, uint64_t budget[TIERS], bool *host_tier,
                        char why[BUDGETS_WHY_BYTES]);

#endif
