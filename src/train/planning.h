/* planning.h - from options to a plan that fits: budgets, costs, search. The same for a run and for `protrain plan`.
 *
 *   options, model --> shape --> budgets --> costs --> search --> plan
 *                                   |          |
 *                     this machine, or a machine file; measured, kept from before, or computed from the file
 *
 * With a plan from a file there is no search; what it will cost is said all the same.
 */
#ifndef PT_PLANNING_H
#define PT_PLANNING_H

#include "io/files.h"
#include "machine/machine_file.h"
#include "profile/profile.h"
#include "report/explain.h"
#include "run/misfit_text.h"
#include "run/budgets.h"

enum { MISFIT_OTHERS = SEARCH_WAYS + 5 }; /* of memory; and of what is trained */

/* What ranks' exchanges take: by bytes of a whole of which each has a part, n = 0: there is none; how many times longer one takes while
 * the processor computes, and how many times longer that takes then. */
typedef struct exchange_cost { cost_curve curve; double slowed, slows; } exchange_cost;

typedef struct planning {
    /* given */
    const pt_train_options *o;
    const model *model;
    step_shape *shape;               /* a CPU's; cut for a GPU where the plan is for one */
    device *device, *host;           /* this machine's; NULL where nothing is measured on it */
    char disk_path[FILE_PATH_BYTES]; /* folder of the disk tier */
    uint64_t disk_reserve;           /* bytes that something else will write into its file system */
    uint64_t memory_reserve;         /* bytes of RAM that files will take: the run's folder lies there */
    int ranks;                       /* that share this machine's memory; 0: one */
    int on_device;                   /* of them that share this one's GPU; 0: one */
    bool limited;                    /* by what other ranks may use: */
    uint64_t limit[TIERS];
    exchange_cost exchange;          /* between them */
    bool evaluates;
    bool runs;                       /* on this machine, also with the file of another */
    /* found */
    bool from_file;                  /* the machine is a machine file's */
    machine_spec machine;
    char machine_path[MACHINE_PATH_BYTES];
    bool host_tier;
    uint64_t budget[TIERS];
    uint64_t missing_bytes;          /* that the budgets lack before there is any plan */
    char change[MISFIT_CHANGE_BYTES];       /* where nothing fits: options of the first way out (misfit.h), or "" */
    char other_changes[MISFIT_OTHERS][MISFIT_CHANGE_BYTES]; /* and of the others */
    int others_n;
    char room[BUDGETS_WHY_BYTES];    /* what is free, or in the machine file, and which margins are left; for people */
    profile_request request;
    profile_result profile;          /* its costs are used, whatever they come from */
    bool profiled;                   /* they come from a profile */
    char name[160], source[160];     /* of the machine, of the costs; for people */
    search_input search;
    search_result result;            /* best: the plan */
    char smaller[MISFIT_CHANGE_BYTES]; /* where nothing fits: options of the largest step that would, or "" */
} planning;

int planning_open_device(planning *p, const pt_train_options *o, pt_error *e);
/* Folder of the disk tier where none is given: the current one, or where that cannot be written, $TMPDIR or /var/tmp. */
const char *planning_disk_folder(const pt_train_options *o);
/* From a machine file, else this one. */
int planning_find_machine(planning *p, pt_error *e);
/* The parts of it that a run wants again: budgets from what is free now, and a search with the costs that stand in `profile`. */
int planning_budgets(planning *p, pt_error *e);
/* What a search is asked, before anything is known. */
int planning_begin_search(planning *p, pt_error *e);
int planning_search(const planning *p, search_result *out, pt_error *e);
/* Where the budgets are smaller than they were: measures the disk, if it is needed now and was not. What else is known stays. */
int planning_measure_disk(planning *p, pt_error *e);
/* Fills `found`. PT_DOES_NOT_FIT says what is missing, and result.least budgets that would do. */
int planning_make(planning *p, pt_error *e);
void planning_close(planning *p);

/* machine.json: a machine file of what was measured on this machine. `c`: the costs; devices, budgets, model and shape are the
 * planning's. */
int planning_write_machine(const planning *p, const costs *c, const char *path, pt_error *e);

/* The explanation's input for what was found; pointers into `p`. */
explain_input planning_explain(const planning *p, int64_t steps, bool helps);

#endif
