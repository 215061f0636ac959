/* profile_get.h - measures what a step of a model costs on this machine, or takes an earlier profile that still holds.
 *
 * For each kind of block, phase and save level, the real code runs for one unit on random data, in memory as large as the largest of them
 * needs. So a model many times larger than memory is profiled in seconds. Transfers are measured by size, alone and under contention, if a
 * plan may need them or there is a host tier. Measurements repeat until the median settles.
 *
 * Measurements are kept in a cache folder ($XDG_CACHE_HOME/protrain, else ~/.cache/protrain; without either nothing is kept), in two files:
 * one for the blocks of a model, one for the machine (optimizer, transfers), which other models use too. The name of a file says what it
 * was made for. Before a file is used, some runs are timed again (a layer, updates, transfers). It is measured again
 *   - if these differ by more than 15% (disk writes: by a factor of more than 2.3, because of the cache of a disk);
 *   - if it was measured within smaller budgets, and so with smaller amounts or fewer rows;
 *   - if its costs do not agree with its own checks (profile_agree.c);
 *   - if it is older than an hour and the times of the blocks are uncertain by 10% or more;
 *   - if other programs had the processors for more than a twentieth of the time while it was measured (`others`), and now they do not.
 * If the budgets leave no memory to measure again, the kept file is used. So is one that was measured undisturbed if the checks take longer
 * only now that other programs run: relations between its times, by which plans are chosen, still hold. A disturbed measurement never
 * replaces it.
 */
#ifndef PT_PROFILE_GET_H
#define PT_PROFILE_GET_H

#include "profile/profile.h"

/* PT_DOES_NOT_FIT: a block is larger than the budget. PT_FAILED: `file` is for something else, its costs disagree with its own checks, or a
 * check takes more than twice or less than half as long as recorded (disk writes: four times). A notice says if one differs by more than
 * 15%. A check that does not fit the budgets is skipped. */
int profile_get(const profile_request *r, profile_result *out, pt_error *e);

#endif
