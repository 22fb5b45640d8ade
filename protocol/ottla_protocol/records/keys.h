#pragma once
#include "offset_map.h"
#include "record.h"

/* What the cleaner sees of a record. */
typedef struct {
    Hash hash;
    int64_t offset_delta, timestamp_delta;
    int has_key, has_value;
} Seen;

/* A walk over the records of a body, a window at a time: a hostile batch expands to millions of records. */
#define WINDOW 256
typedef struct {
    const uint8_t *at, *stop;
    int64_t left;
    Seen window[WINDOW];
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
    int i, count = walk->left < WINDOW ? (int)walk->left : WINDOW;
    for (i = 0; i < count; i++) {
        Seen *seen = walk->window + i;
        Record record;
        if (read_record(walk->at, walk->stop, &record) != FINE || record.offset_delta < 0)
            return -1;
        walk->at = record.end;
        seen->offset_delta = record.offset_delta;
        seen->timestamp_delta = record.timestamp_delta;
        seen->has_value = record.value.size >= 0;
        seen->has_key = record.key.size >= 0;
        if (seen->has_key) {
            seen->hash = hash_key(map, record.key.at, record.key.size);
            __builtin_prefetch(map->entries + first_slot(map, seen->hash));
        }
    }
    walk->left -= count;
    return !walk->left && walk->at != walk->stop ? -1 : count;
}
