/* attention_keys.h - packs the keys and values of one kv head once for all queries that see them.
 *
 * Packing a tile of keys takes as long as multiplying it with some of its queries, and its rows are pages apart. So each tile of keys has a
 * slot in the thread's scratch, where later query tiles find it packed. Tiles without a slot are packed into the spare slot, again for each
 * query tile.
 */
#ifndef PT_ATTENTION_KEYS_H
#define PT_ATTENTION_KEYS_H

#include "device/cpu/kernels/attention_operand.h"

enum { MOST_SLOTS = 1024 };

typedef struct packed_keys {
    operand *slots, *spare;
    int64_t size, count; /* operands per slot; number of slots without the spare one */
    bool packed[MOST_SLOTS];
} packed_keys;

/* room: `floats` floats for slots. */
static inline void keys_open(packed_keys *k, int64_t size, operand *spare, float *room, int64_t floats)
{
    k->slots = (operand *)room, k->spare = spare;
    k->size = size, k->count = least(MOST_SLOTS, most(0, floats) / size);
    memset(k->packed, 0, (size_t)k->count * sizeof(bool));
}

static inline bool keys_are_packed(const packed_keys *k, int64_t tile) { return tile < k->count && k->packed[tile]; }

/* The slot of this tile of keys. The caller packs it there unless *was_packed. */
static inline operand *keys_slot(packed_keys *k, int64_t tile, bool *was_packed)
{
    *was_packed = keys_are_packed(k, tile);
    if (tile >= k->count)
        return k->spare;
    k->packed[tile] = true;
    return k->slots + tile * k->size;
}

#endif
