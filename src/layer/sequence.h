/* sequence.h - attention over sequences that are divided into parts (model/shape.h).
 *
 * A unit has the rows of one part, and a head needs all rows of its own q, k and v. So rows become heads before attention, and heads become
 * rows after it. Each of the ranks that share a sequence computes some heads: neighbouring heads of k and v, and the heads of q that read
 * them. Heads do not depend on each other, so the bits do not depend on who computes them.
 *
 *   forward    for each unit [norm linear rotate]      q, k, v ->                  attention of this rank's heads      output ->
 *              for each unit [what follows]
 *   backward   for each unit [what follows]'           q, k, v, output, gradient ->  attention'           gradients of q, k, v ->
 *              for each unit [norm linear rotate]'
 *
 * An arrow is an exchange among these ranks. The parts of a layer (parts.h) are what is between two arrows, and the exchanges. One rank
 * alone has the same parts without exchanges.
 *
 * The layer's workspace has a region for each unit, and behind those of a sequence's units on this rank one for its heads:
 *
 *   edge     this rank's rows of all heads, by the rank that has these: what is sent before attention
 *   first    (T) int32: the first token of each token's document
 *   qkv      (T, this rank's q, k, v), out and gradients likewise; statistics (heads, T) fp32
 *
 * If backward computes attention again, q, k, v and the output of the heads are still there.
 */
#ifndef PT_LAYER_SEQUENCE_H
#define PT_LAYER_SEQUENCE_H

#include "layer/parts.h"

struct layer_work;

/* Bytes for one unit: an equal part of what a sequence's heads take. 0: sequences are whole. */
uint64_t sequence_bytes(const layer_layout *layout, const model *m, int layer, const step_shape *shape, bool backward);
/* PT_USAGE: sequences of this model, or of this step, cannot be divided into so many lanes. option: the one that gives them. */
int sequence_check(const model *m, const step_shape *shape, int lanes, const char *option, pt_error *e);
/* The parts of a layer whose sequences are divided. */
void sequence_parts(layer_parts *out, const model *m, int layer, const step_shape *shape, const layer_layout *layout, bool backward);

/* What this rank sends to a sharer of the sequence, or receives; addresses in the region of the heads. */
typedef struct sequence_move { int sharer; bool sends; char *at; size_t bytes; } sequence_move;
/* The moves of an exchange, in the order in which both sides have them. */
void sequence_moves(const layer_layout *layout, const model *m, int layer, const step_shape *shape, bool backward, const layer_part *part,
                    char *heads, void (*move)(void *arg, sequence_move m), void *arg);

/* ---- for layer.c: work->u has the region of the heads, and the unit's place ---- */

/* Before a part's first step: the rows of what attention has made. After its last: rows for the heads. */
void sequence_take(const struct layer_work *work, const layer_part *part);
void sequence_give(const struct layer_work *work, const layer_part *part);
/* Attention, or its backward, of this rank's heads, for the first unit of a sequence; gradients of sinks for all, 0 but for the first. */
void sequence_attend(const struct layer_work *work, const layer_part *part);

#endif
