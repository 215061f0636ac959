/* adamw8bit.c - AdamW with both moments in 8 bits, in blocks of 256 values (Dettmers et al., "8-bit Optimizers via Block-wise
 * Quantization", 2021), as in bitsandbytes (device.h, op_adamw8bit).
 *
 * What has a row for each token or position (embeddings, an untied head) keeps fp32 moments, as bitsandbytes' StableEmbedding does: rare
 * rows have moments far below the largest magnitude of their block, where codes are coarse.
 *
 * Blocks are counted from the beginning of a parameter, in the order of its rows in memory (if Hugging Face stores the matrix transposed,
 * not the order of its file). The tensors that it consists of begin where a block does. Parameters for which that is not possible, small
 * tensors and norms keep fp32 moments, too.
 */
#include "optimizer/optimizer.h"

enum { BLOCK = ADAMW8BIT_BLOCK, FEW = 4096 };

static void submit(queue *q, const update *u)
{
    queue_submit(q, &(op){OP_ADAMW8BIT, .adamw8bit = {.adamw = adamw_op(u), .m = u->slab[0], .v = u->slab[1], .m_scale = u->slab[2],
                                                      .v_scale = u->slab[3]}});
}

static const update_rule in_blocks = {.title = "AdamW in 8 bits", .submit = submit,
                                      .slabs = {{"exp_avg", PT_U8, 1}, {"exp_avg_sq", PT_U8, 1}, {"exp_avg_absmax", PT_F32, BLOCK},
                                                {"exp_avg_sq_absmax", PT_F32, BLOCK}}};

static const update_rule *rule_of(const param *p)
{
    const bool table = p->kind->use == USE_VOCABULARY || p->kind->use == USE_POSITIONS;
    const bool norm = param_type(p, PT_BF16) == PT_F32;
    if (table || norm)
        return &adamw_rule;
    for (int i = 0; i < p->parts; i++)
        if (part_values(p, i) < FEW || part_first(p, i) % BLOCK)
            return &adamw_rule;
    return &in_blocks;
}

const optimizer optimizer_adamw8bit = {.name = "adamw8bit", .rules = {&in_blocks, &adamw_rule}, .rule_of = rule_of};
