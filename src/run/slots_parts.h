/* slots_parts.h - the layout of the file of slots (run/slots.h), shared by slots.c and slots_view.c. */
#ifndef PT_SLOTS_PARTS_H
#define PT_SLOTS_PARTS_H

#include "run/slots.h"

#define SLOTS_MAGIC 0x31544f4c53525450u  /* "PTRSLOT1" */
#define COMMIT_MAGIC 0x3154494d4d4f4350u /* "PCOMMIT1" */

/* The first block. `sum`: of what stands before it. */
typedef struct slots_header {
    uint64_t magic, layout, chunk_bytes, slice_rows, regions_n, record_bytes, file_bytes, sum;
} slots_header;

/* A record: this, the regions, the text, and a checksum of all of them. */
typedef struct record_head { uint64_t magic, layout, sequence, step, text_bytes; } record_head;
typedef struct record_region { uint64_t slot, sum, bytes; } record_region; /* bytes: of one slot */

/* Weights or states of a trained chunk: slot i is at offset + i * bytes. */
typedef struct slots_region { uint64_t offset, bytes; } slots_region;

enum { SLOTS_REGIONS_MOST = 1 << 22 };

static inline uint64_t slots_record_at(uint64_t record_bytes, uint64_t sequence) { return DISK_ALIGN + sequence % 2 * record_bytes; }

/* The layout for a packing. of_chunk: the first region of each chunk, -1: it is frozen. */
typedef struct slots_map {
    uint64_t layout, record_bytes, file_bytes;
    int regions_n;
    int *of_chunk;
    slots_region *regions;
} slots_map;

int slots_map_open(slots_map *m, const packing *packing, pt_error *e);
void slots_map_close(slots_map *m);
/* -1: it has none */
int slots_map_find(const slots_map *m, object_kind kind, int chunk);
uint64_t slots_record_sum(const void *record, uint64_t bytes);

/* A record that is whole: its sums are not compared with the regions yet. `data`: record_bytes from the file. */
typedef struct slots_record {
    uint64_t sequence, text_bytes;
    int64_t step;
    const char *regions, *text; /* regions: not aligned */
} slots_record;
record_region slots_region_at(const slots_record *r, uint64_t i);
bool slots_record_parse(const char *data, const slots_header *h, slots_record *out);
/* The state of the slots after the view's commit; the view is of the same layout. */
void slots_view_committed(const slots_view *v, signed char *committed, signed char *newest, uint64_t (*sums)[2], uint64_t *sequence);
/* `size`: of the file. */
bool slots_header_parse(const char data[DISK_ALIGN], uint64_t size, slots_header *out);

#endif
