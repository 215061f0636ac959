/* tanh.h - constants of tanh, for the vectors of vmath.h and attention_vec.h.
 *
 * With a = |x| and s = a^2: up to TANH_NEAR tanh a = a + a s p(s), with p fitted to (tanh a / a - 1) / s there (Chebyshev interpolation);
 * beyond it (1 - e^-2a) / (1 + e^-2a), without cancellation. The relative error is below 3e-7 for normal results. */
#ifndef PT_KERNEL_TANH_H
#define PT_KERNEL_TANH_H

#define TANH_NEAR 0.625f

static const float tanh_terms[] = {-0.006096714f, 0.02099718f, -0.053850908f, 0.1333277f, -0.33333328f}; /* p, highest power first */

#endif
