#include "schedule/schedule.h"

#include "layer/sequence.h"

/* Experts of a piece of a matrix; all, if it is one piece or the block has none. */
static int64_t experts_of_piece(const schedule_input *in, int block, param_role role)
{
    const int index = in->model->blocks[block].param_of_role[role];
    const int64_t experts = in->model->config.experts;
    if (index < 0)
        return experts;
    return in->packing->pieces[in->packing->piece_of_param[index]].rows / (in->model->params[index].rows / experts);
}

/* Is the layer computed by ranges of experts, and of how many for each matrix? */
static bool has_ranges(const schedule_input *in, int block, int64_t *up, int64_t *down)
{
    if (!in->plan->ranges || !layer_parts_are_possible(in->model, block - 1))
        return false;
    *up = experts_of_piece(in, block, PARAM_EXPERTS_UP);
    *down = experts_of_piece(in, block, PARAM_EXPERTS_DOWN);
    return *up < in->model->config.experts || *down < in->model->config.experts;
}

void schedule_parts(const schedule_input *in, const layer_layout *layout, int block, bool backward, layer_parts *out)
{
    const int n = backward ? layout->backward_n : layout->forward_n;
    int64_t up = 0, down = 0;
    *out = (layer_parts){1, {{.end = n, .matrix = PARAM_NONE, .whole = true, .share = 1}}};
    if (shape_parts(in->shape) > 1)
        sequence_parts(out, in->model, block - 1, in->shape, layout, backward);
    else if (has_ranges(in, block, &up, &down))
        layer_parts_find(out, in->model, block - 1, in->shape, layout, backward, up, down);
}

const layer_parts *schedule_kept_parts(const schedule_input *in, const layer_layout *layout, int block, bool backward, kept_parts *k)
{
    int64_t up = 0, down = 0;
    has_ranges(in, block, &up, &down);
    if (k->layout != layout || k->up != up || k->down != down) {
        *k = (kept_parts){.layout = layout, .up = up, .down = down};
        schedule_parts(in, layout, block, backward, &k->parts);
    }
    return &k->parts;
}

bool schedule_part_reads(const schedule_input *in, const layer_part *part, int chunk)
{
    const packing *packing = in->packing;
    bool reads = part->whole;
    if (!reads && (part->kind != PART_UNITS || part->first == part->end))
        return false;
    for (int i = 0; i < packing->chunks[chunk].pieces_n && !reads; i++) {
        const piece *piece = chunk_piece(packing, chunk, i);
        const param *a = &in->model->params[piece->param];
        const bool of_experts = a->role == PARAM_EXPERTS_UP || a->role == PARAM_EXPERTS_DOWN;
        const int64_t experts = in->model->config.experts, end = part->expert0 + part->experts;
        reads = !of_experts || piece->rows == a->rows ||
                (a->role == part->matrix && piece->row0 * experts < end * a->rows &&
                 (piece->row0 + piece->rows) * experts > part->expert0 * a->rows);
    }
    return reads;
}
