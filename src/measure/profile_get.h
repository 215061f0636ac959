/* profile_get.h - measures the costs of a model's step on this machine, or reuses an earlier profile that is still valid.
 *
 * For each kind of block, phase and save level, the real code runs for one unit on random data. Memory for the largest of them suffices, so
 * a model many times larger than memory is profiled in seconds. Transfers are measured by size, alone and under contention, if a plan may
 * need them or there is a host tier. Measurements repeat until the median settles.
 *
 * Measurements are kept in a cache folder ($XDG_CACHE_HOME/protrain, else ~/.cache/protrain; without either nothing is kept), in two files:
 * one for the blocks of a model, one for the machine (optimizer, transfers), which other models use too. The name of a file is derived from
 * what it was measured for. Before a file is used, some runs are timed again (a layer, updates, transfers). Everything is measured again
 *   - if these differ by more than 15% (disk writes: by a factor of more than 2.3, because disks have caches);
 *   - if the file was measured within smaller budgets, and so with smaller amounts or fewer rows;
 *   - if its costs do not agree with its own checks (profile_agree.c);
 *   - if it is older than an hour and the times of the blocks are uncertain by more than 10%;
 *   - if other programs occupied the processors for more than 5% of the time while it was measured (`others`), and now they do not.
 * If the budgets leave no memory to measure again, the kept file is used. So is an undisturbed file if checks take longer only because
 * other programs run now: the ratios between its times, by which plans are chosen, still hold. A disturbed measurement never replaces it.
 */
#ifndef PT_PROFILE_GET_H
#define PT_PROFILE_GET_H

#include "profile/profile.h"

/* PT_DOES_NOT_FIT: a block exceeds the budget. PT_FAILED: `file` was made for something else, its costs disagree with its own checks, or a
 * check differs from the record by a factor of more than 2 (disk writes: 4). Differences of more than 15% give a notice. Checks that do not
 * fit the budgets are skipped. */
int profile_get(const profile_request *req, profile_result *out, pt_error *e);

#endif
