/* fewbit.h - the levels of formats of half a byte. NF4: quantiles of a normal distribution, scaled to -1 .. 1, including 0 (QLoRA, Dettmers
 * et al., 2023); the same bits as in bitsandbytes. MXFP4: the numbers of E2M1 (OCP Microscaling Formats, 2023). */
#ifndef PT_FEWBIT_H
#define PT_FEWBIT_H

static const float nf4_levels[16] = {-1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f, -0.28444138169288635f,
                                     -0.18477343022823334f, -0.09105003625154495f, 0.0f, 0.07958029955625534f, 0.16093020141124725f,
                                     0.24611230194568634f, 0.33791524171829224f, 0.44070982933044434f, 0.5626170039176941f,
                                     0.7229568362236023f, 1.0f};

static const float mxfp4_levels[16] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f,
                                       -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

#endif
