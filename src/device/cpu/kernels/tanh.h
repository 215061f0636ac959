/* tanh.h - how tanh is computed, for vectors of either kind (vmath.h, attention_vec.h).
 *
 * With a = |x| and s = a^2: up to TANH_NEAR a + a s p(s), p a polynomial fitted to (tanh a / a - 1) / s there (Chebyshev interpolation);
 * beyond it (1 - e^-2a) / (1 + e^-2a), where nothing cancels. Within 3e-7 of the value, relative, wherever that is a normal number. */
#ifndef PT_KERNEL_TANH_H
#define PT_KERNEL_TANH_H

#define TANH_NEAR 0.625f

static const float tanh_terms[] = {-0.006096714f, 0.02099718f, -0.053850908f, 0.1333277f, -0.33333328f}; /* of p, highest power first */

#endif
