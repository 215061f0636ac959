#include "layer/stage.h"

const stage_type *stage_type_of(stage_kind kind)
{
    static const stage_type *const types[STAGE_KINDS] = {
        [STAGE_NORM] = &stage_norm, [STAGE_NORM_ADD] = &stage_norm_add, [STAGE_LINEAR] = &stage_linear,
        [STAGE_LINEAR_ADD] = &stage_linear_add, [STAGE_LOW] = &stage_low, [STAGE_GAIN] = &stage_gain, [STAGE_HEAD_NORM] = &stage_head_norm,
        [STAGE_ROTATE] = &stage_rotate, [STAGE_HEADS] = &stage_heads, [STAGE_VALUES] = &stage_values, [STAGE_SHARE] = &stage_share,
        [STAGE_ATTENTION] = &stage_attention, [STAGE_ACTIVATION] = &stage_activation,
        [STAGE_CONV] = &stage_conv, [STAGE_GATES] = &stage_gates, [STAGE_SCAN] = &stage_scan,
        [STAGE_MIX_FACTORS] = &stage_mix_factors, [STAGE_GATE_FACTOR] = &stage_gate_factor,
        [STAGE_GATED_NORM] = &stage_gated_norm, [STAGE_SCALE] = &stage_scale,
        [STAGE_MAKE_INPUTS] = &stage_make_inputs, [STAGE_GATE_INPUTS] = &stage_gate_inputs,
        [STAGE_ROUTE] = &stage_route, [STAGE_DISPATCH] = &stage_dispatch, [STAGE_EXPERTS_LOW] = &stage_experts_low,
        [STAGE_EXPERTS_UP] = &stage_experts_up,
        [STAGE_EXPERTS_ACT] = &stage_experts_act, [STAGE_EXPERTS_DOWN] = &stage_experts_down};
    return types[kind];
}
