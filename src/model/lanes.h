/* lanes.h - the order in which the gradients of a step's units are added, so that ranks can share the work.
 *
 * A step's units are divided into L contiguous lanes. A lane's gradient is summed unit after unit; lanes are added in a binary tree over
 * their numbers, the left one first:
 *
 *     lane     0   1   2   3   4   5         partial sums wait on a stack of accumulators: after lane l, one for each 1 in the binary
 *               \ /     \ /     \ /          form of l + 1, each the sum of a power of two of lanes; after the last lane they are
 *               01      23      45           added from the top down
 *                 \    /       /
 *                  0123       /
 *                      \     /
 *                      012345
 *
 * So R ranks that each have a power of two of neighbouring lanes compute whole subtrees, and the sum of their R sums in the same tree has
 * the bits of one rank with all lanes. The result is rounded once, as with one lane, which has no tree.
 */
#ifndef PT_LANES_H
#define PT_LANES_H

#include "model/shape.h"

/* A place in the tree: the sum goes to accumulator `plane`, which it overwrites if `first`. Afterwards accumulator plane is added to plane
 * - 1, plane - 1 to plane - 2, `merges` times. */
typedef struct lane_place { int plane; bool first; int merges; } lane_place;

/* For lane `lane` of `lanes`: every lane begins a new sum. */
lane_place lane_place_of(int lanes, int lane);
/* For a unit of the step: merges is 0 except after the last unit of a lane. */
lane_place lane_place_of_unit(const step_shape *shape, int64_t unit);
/* Accumulators that exist at the same time. */
int lane_planes(int lanes);

/* The sum of n numbers in that tree, each times its weight, lane after lane. n is a multiple of `lanes`; weights NULL: all 1. */
double lane_sum(int lanes, const float *values, const float *weights, int64_t n);
/* The sum of one number per lane, or per rank. */
double lane_tree(int lanes, const double *of_lane);

enum { LANES_MOST = 4096 };
/* PT_USAGE if the lanes neither divide the batch nor divide each sequence into a power of two of equal parts (model/shape.h). option: the
 * one that gives them. */
int lanes_check(int lanes, const char *option, int64_t batch, int64_t seq_len, pt_error *e);

#endif
