/* shim_device.h - a device whose ops are the CUDA kernels, run by the shim, one op at a time on the thread that
 * submits it. Matmul and attention, which CUDA takes from elsewhere, and disk I/O are the CPU device's.
 *
 * The `threads` of a queue pick the order in which blocks and threads run (shim_order_set); no result may
 * depend on it.
 */
#ifndef PT_SHIM_DEVICE_H
#define PT_SHIM_DEVICE_H

#include "device/device.h"

int device_shim_open(const device_options *o, device **out, pt_error *e);

#endif
