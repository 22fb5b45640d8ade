#pragma once
#include "engine.h"
#include "buffer.h"

/* The map: key to last offset. A key is 128 bits of SipHash-2-4 under a secret. */

typedef struct {
    uint64_t first, second;
    int64_t next; /* the offset + 1; 0: the slot is empty */
} Entry;

typedef struct {
    uint64_t first, second;
} Hash;

typedef struct {
    PyObject_HEAD
    Entry *entries;
    int64_t slots, most_slots, count, room;
    double load_factor;
    uint64_t key0, key1;
    long long latest;
} OffsetMap;

#define ROTATE(x, bits) ((x) << (bits) | (x) >> (64 - (bits)))
#define ROUND \
    v0 += v1; v1 = ROTATE(v1, 13); v1 ^= v0; v0 = ROTATE(v0, 32); \
    v2 += v3; v3 = ROTATE(v3, 16); v3 ^= v2; \
    v0 += v3; v3 = ROTATE(v3, 21); v3 ^= v0; \
    v2 += v1; v1 = ROTATE(v1, 17); v1 ^= v2; v2 = ROTATE(v2, 32)

static inline Hash hash_key(const OffsetMap *map, const uint8_t *p, int64_t size)
{
    uint64_t v0 = map->key0 ^ 0x736f6d6570736575u, v1 = map->key1 ^ 0x646f72616e646f6du ^ 0xee;
    uint64_t v2 = map->key0 ^ 0x6c7967656e657261u, v3 = map->key1 ^ 0x7465646279746573u;
    uint64_t word = (uint64_t)size << 56;
    int64_t left = size;
    Hash hash;
    int i;
    for (; left >= 8; left -= 8, p += 8) {
        uint64_t m = little64(p);
        v3 ^= m;
        ROUND;
        ROUND;
        v0 ^= m;
    }
    for (i = 0; i < left; i++)
        word |= (uint64_t)p[i] << 8 * i;
    v3 ^= word;
    ROUND;
    ROUND;
    v0 ^= word;
    v2 ^= 0xee;
    ROUND;
    ROUND;
    ROUND;
    ROUND;
    hash.first = v0 ^ v1 ^ v2 ^ v3;
    v1 ^= 0xdd;
    ROUND;
    ROUND;
    ROUND;
    ROUND;
    hash.second = v0 ^ v1 ^ v2 ^ v3;
    return hash;
}

static int64_t prime_at_most(int64_t number)
{
    for (;; number--) {
        int64_t divisor = 2;
        while (divisor * divisor <= number && number % divisor)
            divisor++;
        if (divisor * divisor > number)
            return number;
    }
}

static inline int64_t first_slot(const OffsetMap *map, Hash hash)
{
    return (int64_t)((unsigned __int128)hash.first * (uint64_t)map->slots >> 64);
}

/* The hash's entry, or the empty one where it belongs. Double hashing over a prime number of slots visits them all. */
static inline Entry *find(const OffsetMap *map, Hash hash)
{
    int64_t slot = first_slot(map, hash), step = 0;
    for (;;) {
        Entry *entry = map->entries + slot;
        if (!entry->next || (entry->first == hash.first && entry->second == hash.second))
            return entry;
        if (!step)
            step = 1 + (int64_t)(hash.second % (uint64_t)(map->slots - 1));
        slot += step;
        if (slot >= map->slots)
            slot -= map->slots;
    }
}

static int allocate(OffsetMap *map, int64_t slots)
{
    Entry *entries;
    slots = slots < map->most_slots ? prime_at_most(slots) : map->most_slots;
    entries = calloc((size_t)slots, sizeof(Entry));
    if (!entries)
        return NO_MEMORY;
    map->entries = entries;
    map->slots = slots;
    map->room = (int64_t)((double)slots * map->load_factor);
    if (map->room < 1)
        map->room = 1;
    /* One slot always stays empty: it ends the search for a key that isn't in the map. */
    if (map->room > slots - 1)
        map->room = slots - 1;
    return END;
}

static int grow(OffsetMap *map)
{
    Entry *old = map->entries;
    int64_t i, slots = map->slots;
    if (slots == map->most_slots)
        return FULL;
    if (allocate(map, 4 * slots) != END)
        return NO_MEMORY;
    for (i = 0; i < slots; i++)
        if (old[i].next) {
            Hash hash = {old[i].first, old[i].second};
            *find(map, hash) = old[i];
        }
    free(old);
    return END;
}

static inline int put(OffsetMap *map, Hash hash, int64_t offset)
{
    Entry *entry = find(map, hash);
    if (!entry->next) {
        if (map->count >= map->room) {
            int result = grow(map);
            if (result != END)
                return result;
            entry = find(map, hash);
        }
        entry->first = hash.first;
        entry->second = hash.second;
        map->count++;
    }
    entry->next = offset + 1;
    return END;
}
