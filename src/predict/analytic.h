/* analytic.h - between the costs of a step and the rates of a machine: costs computed from a machine file, and a machine file computed from
 * measured costs. */
#ifndef PT_ANALYTIC_H
#define PT_ANALYTIC_H

#include "machine/machine_file.h"
#include "predict/costs.h"

#include <jansson.h>

/* Costs of a step of a model, or of a rank's part of it, on the given share of a machine: computed from operations and bytes. */
int costs_analytic(const machine_spec *x, const model *m, const step_shape *shape, costs *out, pt_error *e);

/* The reverse: a machine from measured costs. It has a host if memory_bytes has one and the costs include its updates and the link. The
 * arithmetic rate was measured for the compute type of `s` and is used for the other, too. (machine_measured.c) */
int machine_measured(const char *name, bool cuda, const uint64_t memory_bytes[TIERS], const costs *costs, const model *m,
                     const step_shape *shape, machine_spec *out, pt_error *e);
/* That machine as a machine file; `source` is the source of all figures. NULL: out of memory. */
json_t *machine_to_json(const machine_spec *x, const char *source);

#endif
