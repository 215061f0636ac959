/* stride.h - how often to update a chunk of the host on the device instead: the performance model of Deep Optimizer States (Maurya et
 * al., Middleware 2024, arXiv 2410.21316).
 *
 * One of every k chunks is updated on the device. Its master weights and two moments are transferred while the host updates the other
 * k - 1, whose 16-bit weights then go to the device. With S parameters per chunk this pays if
 *
 *     3 S / B + S / Ug + (k - 1) S / (2 B)  <=  (k - 1) (S / Uc + S / Dc)
 *
 * and the smallest such k is best. S cancels out. The chunk's transfer back overlaps with the next one's transfer in.
 */
#ifndef PT_STRIDE_H
#define PT_STRIDE_H

#include "predict/costs.h"

typedef struct stride_rates {
    double to_device;     /* B: fp32 values per second over the link */
    double update_device; /* Ug: parameters per second */
    double update_host;   /* Uc */
    double convert_host;  /* Dc: masters rounded to 16 bits per second; INFINITY if the update rounds them */
} stride_rates;

/* k >= 2, or 0: no stride pays (the link alone takes longer than the host's update). */
int stride_choose(const stride_rates *r);

/* Rates from the costs, for chunks of so many elements; the host's update includes the rounding. */
stride_rates stride_rates_of(const costs *costs, double elements);

#endif
