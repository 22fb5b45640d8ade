/* The header of a batch of format 2, for all loops here; see batch.py for the layout. */
#pragma once
#include "crc32c.h"

enum {
    HEADER_SIZE = 61,
    LOG_OVERHEAD = 12,
    LENGTH_AT = 8,
    MAGIC_AT = 16,
    CRC_AT = 17,
    ATTRIBUTES_AT = 21,
    BASE_TIMESTAMP_AT = 27,
    MAX_TIMESTAMP_AT = 35,
    COUNT_AT = 57,
    MAGIC = 2,
    CODEC = 0x07,
    LOG_APPEND_TIME = 0x08,
    TRANSACTIONAL = 0x10,
    CONTROL = 0x20,
    DELETE_HORIZON = 0x40
};

/* Why a call stopped: the data ends, another kind of batch, the map is full. The last two stay inside. */
enum { END, OTHER, FULL, NO_MEMORY, WHOLE };

typedef struct {
    int64_t size, base, base_timestamp, max_timestamp, producer_id;
    int32_t epoch, last_delta, count, attributes;
    uint32_t crc;
} Batch;

/* Reads the header at `p`. WHOLE; END if the batch isn't there as a whole; OTHER for another format, or damage. */
static INLINE int read_batch(const uint8_t *p, int64_t left, Batch *batch)
{
    if (left < HEADER_SIZE)
        return END;
    batch->size = (int64_t)(int32_t)big32(p + LENGTH_AT) + LOG_OVERHEAD;
    if (p[MAGIC_AT] != MAGIC || batch->size < HEADER_SIZE)
        return OTHER;
    if (batch->size > left)
        return END;
    batch->base = (int64_t)big64(p);
    batch->epoch = (int32_t)big32(p + 12);
    batch->crc = big32(p + CRC_AT);
    batch->attributes = p[ATTRIBUTES_AT] << 8 | p[ATTRIBUTES_AT + 1];
    batch->last_delta = (int32_t)big32(p + 23);
    batch->base_timestamp = (int64_t)big64(p + BASE_TIMESTAMP_AT);
    batch->max_timestamp = (int64_t)big64(p + MAX_TIMESTAMP_AT);
    batch->producer_id = (int64_t)big64(p + 43);
    batch->count = (int32_t)big32(p + COUNT_AT);
    return WHOLE;
}

static inline int is_intact(const uint8_t *p, const Batch *batch)
{
    return crc32c(p + ATTRIBUTES_AT, (size_t)(batch->size - ATTRIBUTES_AT)) == batch->crc;
}
