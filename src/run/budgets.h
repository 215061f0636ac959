/* budgets.h - how many bytes of each tier a run may use: what was asked for, else what the machine has free, less a margin.
 *
 *   memory    | other programs | margin | device arena | host arena |      the machine's, or the cgroup's limit
 *   disk      | files          | margin | the disk tier's file      |
 *   GPU       | other programs | margin | device arena |                     then the memory above holds the host arena alone
 *
 * A folder for the disk tier may lie in RAM (tmpfs). A budget for it is then taken only where one was asked for, and counts with
 * the arenas in memory.
 *
 * A budget is a limit for a tier's arena. What a process needs beside its arenas lives in the margin, or, where a
 * budget was asked for, in what is free beyond it, which has to be there: program and libraries, tokenizer and data, the batch on
 * its way to the device (20 bytes a token), scratch space and stack of each compute thread. That is less than BUDGETS_BESIDE with up
 * to 8 threads; what more threads need (device_info.threads_bytes) is taken from the device's budget, so that it is with any number
 * of them.
 */
#ifndef PT_BUDGETS_H
#define PT_BUDGETS_H

#include "base/error.h"
#include "device/device.h"
#include "machine/machine.h"
#include "machine/machine_file.h"

typedef struct budget_request {
    uint64_t asked[TIERS];  /* bytes or PT_AUTO; on a CPU the host is a tier only where it is asked for */
    const char *disk_path;  /* where the disk tier's file is to be */
    const device *device;   /* NULL: the CPU. A GPU has memory of its own, and there always is a host tier */
    const machine *machine; /* NULL: this one, as it is now */
    void (*notice)(void *arg, const char *sentence); /* what a user should know; may be NULL */
    void *arg;
    uint64_t *missing_bytes; /* what does not fit, or what threads need beyond what was asked for, is put there, else 0; may be NULL */
    /* BUDGETS_CHANGE_BYTES; options that ask for what is free instead, of each tier that is refused, else ""; may be NULL */
    char *change;
    uint64_t disk_reserve;  /* bytes of the disk that are for something else: taken from what is free where nothing is asked for */
    uint64_t memory_reserve; /* the same of RAM, whatever is asked for: what is saved into a folder that lies there */
} budget_request;

enum { BUDGETS_BESIDE = 96 << 20 };
enum { BUDGETS_WHY_BYTES = 448, BUDGETS_CHANGE_BYTES = 128 };

/* PT_DOES_NOT_FIT where what is asked for is more than is free, in memory or on the disk. why: what was free under which limit and
 * the margins, for people, "" where everything was asked for and threads need nothing of it; may be NULL. */
int budgets_choose(const budget_request *r, uint64_t budget[TIERS], bool *host_tier, char why[BUDGETS_WHY_BYTES], pt_error *e);
/* For what does not fit: says where the disk tier got nothing because its folder lies in RAM. */
void budgets_notice_disk(const budget_request *r);
/* What the machine of a file may give: all that it has but the same margins, or what is asked for. This machine is not looked at.
 * why: the same for people, of the file's memory. */
void budgets_of_machine(const machine_spec *x, const budget_request *r, uint64_t budget[TIERS], bool *host_tier,
                        char why[BUDGETS_WHY_BYTES]);

#endif
