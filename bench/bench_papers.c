/* bench_papers.c - the tables of two papers, predicted from machine files alone.
 *
 *     bench_papers
 *
 * ProTrain (arXiv 2406.08334): the largest models that can be trained, the speed of a 175B model, and how much faster its plans
 * are than fixed policies.
 * Deep Optimizer States (arXiv 2410.21316): phases of an iteration, update rates and the stride, on four H100.
 *
 * Costs come from costs_analytic, times from simulate: forward and backward are schedules of ours under the paper's policy, the
 * update phases, in which nothing but chunks moves, are lists of tasks built here as the paper describes them. No number is
 * fitted to a table. What a paper does not say, and is assumed here, is printed.
 */
#include "papers.h"

int main(void)
{
    print_protrain();
    print_deep_optimizer_states();
    return 0;
}
