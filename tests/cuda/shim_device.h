/* shim_device.h - a device whose ops are the CUDA kernels, run by the shim. Queues are threads of their own, as they
 * are on CUDA, but only one kernel runs at a time. Copies are the CPU device's.
 *
 * The `threads` of a queue, or of the device where they are 0, pick the order in which blocks and threads run
 * (shim_order_set); no result may depend on it. The host's part of the work is the CPU device's, as beside a GPU.
 */
#ifndef PT_SHIM_DEVICE_H
#define PT_SHIM_DEVICE_H

#include "device/device.h"

int device_shim_open(const device_options *o, device **out, device **host, pt_error *e);

#endif
