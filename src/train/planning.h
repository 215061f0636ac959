/* planning.h - from options to a plan that fits: budgets, costs, search. The same for a run and for `protrain plan`.
 *
 *   options, model --> shape --> budgets --> costs --> search --> plan
 *                                   |          |
 *                     this machine, or a machine file; measured, kept from before, or computed from the file
 *
 * With a plan from a file there is no search, but its costs are predicted all the same.
 */
#ifndef PT_PLANNING_H
#define PT_PLANNING_H

#include "io/files.h"
#include "machine/machine_file.h"
#include "profile/profile.h"
#include "report/explain.h"
#include "run/misfit_text.h"
#include "run/budgets.h"

enum { MISFIT_OTHERS = SEARCH_WAYS + 5 }; /* by memory; and by what is trained */

/* The time of ranks' exchanges: by bytes of a whole of which each has a part, n = 0: none; the factor by which one takes longer while the
 * processor computes, and the factor by which computation takes longer then. */
typedef struct exchange_cost { cost_curve curve; double slowed, slows; } exchange_cost;

typedef struct planning {
    /* inputs */
    const pt_train_options *o;
    const model *model;
    step_shape *shape;               /* for a CPU; divided for a GPU if the plan is for one */
    device *device, *host;           /* of this machine; NULL if nothing is measured here */
    char disk_path[FILE_PATH_BYTES]; /* folder of the disk tier */
    uint64_t disk_reserve;           /* bytes that other files will take in its file system */
    uint64_t disk_own;               /* bytes that files take there now and will not: an earlier process's states */
    uint64_t memory_reserve;         /* bytes of RAM that files will take, because the run's folder is in RAM */
    int ranks;                       /* that share this machine's memory; 0: one */
    int on_device;                   /* of them that share this rank's GPU; 0: one */
    bool limited;                    /* by the memory of other ranks: */
    uint64_t limit[TIERS];
    exchange_cost exchange;          /* between ranks */
    bool evaluates;
    bool of_way;                     /* only time and memory are wanted: a part of the search, and of what to do if nothing fits */
    bool runs;                       /* on this machine, even with the file of another one */
    /* results */
    bool from_file;                  /* the machine comes from a machine file */
    machine_spec machine;
    char machine_path[MACHINE_PATH_BYTES];
    bool host_tier;
    uint64_t budget[TIERS];
    uint64_t missing_bytes;          /* bytes that the budgets lack for any plan */
    char change[MISFIT_CHANGE_BYTES];       /* if nothing fits: the options that help first (misfit.h), or "" */
    char other_changes[MISFIT_OTHERS][MISFIT_CHANGE_BYTES]; /* the options of other ways */
    int others_n;
    char room[BUDGETS_WHY_BYTES];    /* for the user: what is free, or in the machine file, and the margins */
    profile_request request;
    profile_result profile;          /* costs are here, whatever their source */
    bool profiled;                   /* they are from a profile */
    char name[160], source[160];     /* of the machine, of the costs; for the user */
    search_input search;
    search_result result;            /* best: the plan */
    char smaller[MISFIT_CHANGE_BYTES]; /* if nothing fits: options of the largest step that would, or "" */
} planning;

int planning_open_device(planning *planning, const pt_train_options *o, pt_error *e);
/* The default folder of the disk tier: the current one, or if it is not writable, $TMPDIR or /var/tmp. */
const char *planning_disk_folder(const pt_train_options *o);
/* From a machine file, else this machine. */
int planning_find_machine(planning *planning, pt_error *e);
/* Parts that a run repeats: budgets from the memory that is free now, and a search with the costs in `profile`. */
int planning_budgets(planning *planning, pt_error *e);
/* The inputs of a search, before anything is measured. */
int planning_begin_search(planning *planning, pt_error *e);
int planning_search(const planning *planning, search_result *out, pt_error *e);
/* With smaller budgets than before: measures the disk, if it is needed and was not measured. Other costs stay. */
int planning_measure_disk(planning *planning, pt_error *e);
/* After planning_make: does any plan fit, with the parameters that are trained now? PT_DOES_NOT_FIT says what is missing. */
int planning_fits(planning *planning, pt_error *e);
/* The steps of planning_make before anything is measured: the machine, the budgets, the inputs of a search. */
int planning_prepare(planning *planning, pt_error *e);
/* The steps of planning_make before the search. */
int planning_measure(planning *planning, pt_error *e);
/* Sets the results. PT_DOES_NOT_FIT says what is missing, and result.least has budgets that would suffice. */
int planning_make(planning *planning, pt_error *e);
void planning_close(planning *planning);

/* machine.json: a machine file from the measurements on this machine. `c`: the costs; devices, budgets, model and shape are the
 * planning's. */
int planning_write_machine(const planning *planning, const costs *costs, const char *path, pt_error *e);

/* The input of the explanation of the results; points into `p`. */
explain_input planning_explain(const planning *planning, int64_t steps, bool helps);

#endif
