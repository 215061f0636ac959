/* parts.h - a layer in parts: around attention, if its sequences are divided (sequence.h); or a layer with experts in parts, of which each
 * reads the matrices of one range of experts, or of none.
 *
 *   forward    [norm ... dispatch] up of range 0, up of range 1 ... [activation] down of range 0, down of range 1 ... [what follows]
 *   backward   [...] up of range 0 ... [...] down' of range 0 ... [activation', gradients of down] up' of range 0 ... [the rest]
 *
 * Rows are sorted by expert, so a range's outputs are rows of the whole's, and what they are added to is computed after the last range, in
 * the same order as ever. What the steps hand on lies in the layer's workspace, which is kept from the first part to the last.
 */
#ifndef PT_LAYER_PARTS_H
#define PT_LAYER_PARTS_H

#include "layer/program.h"

enum { LAYER_PARTS = 64 };

typedef enum part_kind {
    PART_UNITS,    /* its steps for each unit */
    PART_ATTEND,   /* its step, attention, for all units of a sequence together */
    PART_EXCHANGE, /* no steps: what ranks send each other before or after that */
} part_kind;

typedef struct layer_part {
    part_kind kind;
    int first, end;           /* steps, of forward or of backward */
    int takes, gives;         /* steps of attention, + 1, before and after it; of an exchange one of them; 0: none */
    param_role matrix;        /* it reads these experts' matrices, of no others; PARAM_NONE: of no experts */
    int64_t expert0, experts; /* experts 0: of no range */
    bool whole;               /* all of the layer's steps, and it reads all experts' matrices */
    double share;             /* of the layer's time: by FLOPs */
    uint64_t bytes;           /* of an exchange: what a rank sends for one unit, its own part included */
} layer_part;

typedef struct layer_parts { int n; layer_part part[LAYER_PARTS]; } layer_parts;

/* up, down: experts of a range of PARAM_EXPERTS_UP, PARAM_EXPERTS_DOWN. The layer has experts. n is 1 if it cannot be divided. */
void layer_parts_find(layer_parts *out, const model *m, int layer, const step_shape *shape, const layer_layout *layout, bool backward,
                      int64_t up, int64_t down);
/* Can the layer be divided? */
bool layer_parts_are_possible(const model *m, int layer);

#endif
