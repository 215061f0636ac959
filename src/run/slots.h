/* slots.h - a file in which every trained chunk's weights and states have two slots, so that a step on the way never overwrites the one
 * that is committed.
 *
 *     [header][record 0][record 1][chunk 0: weights, weights, states, states][chunk 1 ...
 *
 * A write goes to the slot that the last commit does not have, a read to the one that was written last. A commit is a record: the step, a
 * text of its owner, and for each region (weights or states of a chunk) its slot and the checksum of what is there. Records alternate. One
 * fsync makes the record and all that it stands for durable; nothing is written after it before it has returned. If the power fails
 * earlier, the record or a region has another checksum, and the commit before, whose slots are untouched, counts.
 *
 * The layout follows from the packing alone, not from where the plan puts chunks. Frozen chunks are not in the file.
 */
#ifndef PT_SLOTS_H
#define PT_SLOTS_H

#include "io/disk.h"
#include "schedule/schedule.h"

typedef struct slots slots;
typedef struct slots_view slots_view;

enum { SLOTS_TEXT_MOST = 256 << 10 };

uint64_t slots_bytes(const packing *packing); /* of the file */
uint64_t slots_layout(const packing *packing); /* identifies its layout */
/* Bytes that a commit of this plan writes: of chunks on the disk, which a step writes anyway, and of all others. */
void slots_count(const schedule_input *in, uint64_t *on_disk, uint64_t *elsewhere);

/* ---- writing ---- */

/* Creates the file, or empties it, without a commit; or (`from` of the same file and layout) goes on after that commit. options: may be
 * NULL. */
int slots_open(const char *path, const schedule_input *in, const slots_view *from, const disk_options *options, slots **out, pt_error *e);
void slots_close(slots *s);
disk_file *slots_file(slots *s);
const char *slots_path(const slots *s);
/* Where the object is read, or will be written, and where the checksum of what is written goes; false: the file does not have it. Call it
 * once for each transfer, in the order of the schedule. */
bool slots_place(slots *s, bool write, object_kind kind, int chunk, uint64_t *offset, uint64_t **sum);
/* Writes a part of an object, for which slots_place gave `offset` and `sum`, at `offset + at`; the sum of all parts goes to *sum. */
int slots_write(slots *s, uint64_t offset, uint64_t at, const void *memory, size_t bytes, uint64_t *sum, pt_error *e);
/* Commits what was written last, all of which must be there. `text` is kept with it: n bytes, at most SLOTS_TEXT_MOST. */
int slots_commit(slots *s, int64_t step, const char *text, size_t n, pt_error *e);

/* ---- reading ---- */

/* The newest whole commit of a file, all checksums compared; *out NULL if it has none. */
int slots_view_open(const char *path, slots_view **out, pt_error *e);
void slots_view_close(slots_view *v);
int64_t slots_view_step(const slots_view *v);
const char *slots_view_text(const slots_view *v, size_t *n); /* n bytes */
const char *slots_view_path(const slots_view *v);
int64_t slots_view_chunk_bytes(const slots_view *v); /* of its packing, and where the vocabulary's tables were cut (step_shape) */
int64_t slots_view_slice_rows(const slots_view *v);
uint64_t slots_view_layout(const slots_view *v);
uint64_t slots_view_bytes(const slots_view *v); /* of the file */
/* For the packing that it was written with: maps it, so that slots_view_at can be used. PT_FAILED: another one. */
int slots_view_map(slots_view *v, const packing *packing, pt_error *e);
const char *slots_view_at(const slots_view *v, object_kind kind, int chunk);

#endif
