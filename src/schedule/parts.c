#include "schedule/schedule.h"

/* Experts of a piece of a matrix; all, if it is one piece or the block has none. */
static int64_t experts_of_piece(const schedule_input *in, int block, param_role role)
{
    const int index = in->model->blocks[block].param_of_role[role];
    const int64_t experts = in->model->config.experts;
    if (index < 0)
        return experts;
    return in->packing->pieces[in->packing->piece_of_param[index]].rows / (in->model->params[index].rows / experts);
}

void schedule_parts(const schedule_input *in, const layer_layout *l, int block, bool backward, layer_parts *out)
{
    const int n = backward ? l->backward_n : l->forward_n;
    *out = (layer_parts){1, {{.end = n, .matrix = PARAM_NONE, .whole = true, .share = 1}}};
    if (!in->plan->ranges || !layer_parts_are_possible(in->model, block - 1, in->shape))
        return;
    const int64_t up = experts_of_piece(in, block, PARAM_EXPERTS_UP), down = experts_of_piece(in, block, PARAM_EXPERTS_DOWN);
    if (up < in->model->config.experts || down < in->model->config.experts)
        layer_parts_find(out, in->model, block - 1, in->shape, l, backward, up, down);
}

bool schedule_part_reads(const schedule_input *in, const layer_part *part, int chunk)
{
    const packing *k = in->packing;
    bool reads = false;
    for (int i = 0; i < k->chunks[chunk].pieces_n && !reads; i++) {
        const piece *p = chunk_piece(k, chunk, i);
        const param *a = &in->model->params[p->param];
        const int64_t each = a->kind->use == USE_EXPERTS ? a->rows / param_experts(&in->model->config, a) : 0;
        const bool of_experts = a->role == PARAM_EXPERTS_UP || a->role == PARAM_EXPERTS_DOWN;
        reads = !of_experts || p->rows == a->rows || part->whole ||
                (a->role == part->matrix && p->row0 < (part->expert0 + part->experts) * each && p->row0 + p->rows > part->expert0 * each);
    }
    return reads;
}
