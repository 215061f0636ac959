/* lanes.h - the order in which the gradients of a step's units are added, so that ranks can share the work.
 *
 * A step's units are dealt, contiguous, to L lanes. A lane's gradient is summed unit after unit; lanes are added in a binary tree over
 * their numbers, the left one first:
 *
 *     lane     0   1   2   3   4   5         partial sums wait on a stack of accumulators: behind lane l as many as l + 1 has ones in
 *               \ /     \ /     \ /          binary, each of a power of two lanes; behind the last lane they are added from the top down
 *               01      23      45
 *                 \    /       /
 *                  0123       /
 *                      \     /
 *                      012345
 *
 * So R ranks that each have a power of two of neighbouring lanes have whole subtrees, and the sum of their R sums in the same tree has
 * the bits of one rank that has all lanes. The result is rounded once, as with one lane, which has no tree.
 */
#ifndef PT_LANES_H
#define PT_LANES_H

#include "model/shape.h"

/* A place in the tree: the sum is in accumulator `plane`, which it begins if `first`; behind it accumulator plane is added to plane - 1,
 * plane - 1 to plane - 2, so many times. */
typedef struct lane_place { int plane; bool first; int merges; } lane_place;

/* Of lane `lane` of `lanes`: every lane begins its sum. */
lane_place lane_place_of(int lanes, int lane);
/* Of a unit of the step: merges are 0 but behind the last unit of a lane. */
lane_place lane_place_of_unit(const step_shape *s, int64_t unit);
/* Accumulators that are needed at the same time. */
int lane_planes(int lanes);

/* A sum of n numbers in that tree, each times its weight: those of each lane one after the other. n is a multiple of `lanes`; weights NULL:
 * all 1. */
double lane_sum(int lanes, const float *values, const float *weights, int64_t n);
/* A number of each lane, or of each rank. */
double lane_tree(int lanes, const double *of_lane);

enum { LANES_MOST = 4096 };
/* PT_USAGE where the lanes do not divide the batch. */
int lanes_check(int lanes, int64_t batch, pt_error *e);

#endif
