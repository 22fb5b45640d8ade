#pragma once
#include "offset_map.h"

/* Bytes of a record as far as it is read: a length, attributes, four numbers. */
#define LEAST_RECORD 6

/* Records: see record.py of the protocol. */

typedef struct {
    Hash hash;
    int64_t offset_delta, timestamp_delta;
    int has_key, has_value;
} Record;

/* A walk over the records of a body, a window at a time: a hostile batch expands to millions of records. */
#define WINDOW 256
typedef struct {
    const uint8_t *at, *stop;
    int64_t left;
    Record window[WINDOW];
} Walk;

/* Begins a walk over `count` records that fill the body. */
static int begin(Walk *walk, const uint8_t *body, int64_t size, int64_t count)
{
    walk->at = body;
    walk->stop = body + size;
    walk->left = count;
    return count < 0 || count > size / LEAST_RECORD || (!count && size) ? OTHER : END;
}

/* Reads the next records, hashes their keys and has their slots fetched. How many; -1: they can't be read. */
static int next_window(const OffsetMap *map, Walk *walk)
{
    const uint8_t *stop = walk->stop, *p = walk->at;
    int i, count = walk->left < WINDOW ? (int)walk->left : WINDOW;
    for (i = 0; i < count; i++) {
        Record *record = walk->window + i;
        int64_t length, key;
        const uint8_t *end;
        p = read_varint(p, stop, &length);
        if (!p || length < 1 || length > stop - p)
            return -1;
        end = p + length;
        p = read_varint(p + 1, end, &record->timestamp_delta);
        if (!p)
            return -1;
        p = read_varint(p, end, &record->offset_delta);
        if (!p || record->offset_delta < 0 || record->offset_delta > INT32_MAX)
            return -1;
        p = read_varint(p, end, &key);
        if (!p || key < -1 || key >= end - p)
            return -1;
        record->has_key = key >= 0;
        if (key >= 0) {
            record->hash = hash_key(map, p, key);
            __builtin_prefetch(map->entries + first_slot(map, record->hash));
            p += key;
        }
        if (p >= end)
            return -1;
        record->has_value = *p != 1; /* -1 in zigzag */
        p = end;
    }
    walk->left -= count;
    walk->at = p;
    return !walk->left && p != stop ? -1 : count;
}
