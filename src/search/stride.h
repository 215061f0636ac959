/* stride.h - how often to send a chunk that lives on the host through the device for its update, instead of updating it on
 * the host: the performance model of Deep Optimizer States (Maurya et al., Middleware 2024, arXiv 2410.21316).
 *
 * Of each k chunks one is updated on the device: its master weights and two moments come over the link while the
 * host updates the other k - 1, whose 16-bit weights then go to the device. With S parameters a chunk that is worth it if
 *
 *     3 S / B + S / Ug + (k - 1) S / (2 B)  <=  (k - 1) (S / Uc + S / Dc)
 *
 * and the smallest such k is best. S does not matter. The chunk's way back overlaps with the next one's way in.
 */
#ifndef PT_STRIDE_H
#define PT_STRIDE_H

#include "predict/costs.h"

typedef struct stride_rates {
    double to_device;     /* B: fp32 values a second over the link */
    double update_device; /* Ug: parameters a second */
    double update_host;   /* Uc */
    double convert_host;  /* Dc: masters rounded to 16 bits a second; INFINITY where the update does it */
} stride_rates;

/* k >= 2, or 0: no stride is worth it (the link alone takes longer than the host's update). */
int stride_choose(const stride_rates *r);

/* As the costs have them for chunks of so many elements; the host's update is where the rounding happens. */
stride_rates stride_rates_of(const costs *c, double elements);

#endif
