/* The two passes over whole batches: reading keys, and filtering. */
#pragma once
#include "buffer.h"
#include "keys.h"

#define LEAST_LENGTH 14 /* of a message of format 0 */
#define MOST_OFFSET (INT64_MAX - INT32_MAX)

/* Reads the batch that begins at `p`. END: it isn't there as a whole, whatever its format. */
static int check_batch(const uint8_t *p, int64_t left, Batch *batch)
{
    int64_t length;
    if (left < LOG_OVERHEAD)
        return END;
    length = (int32_t)big32(p + LENGTH_AT);
    if (length >= LEAST_LENGTH && length + LOG_OVERHEAD > left)
        return END;
    if (read_batch(p, left, batch) != WHOLE || batch->attributes & (CODEC | TRANSACTIONAL | CONTROL))
        return OTHER;
    if (batch->base < 0 || batch->base > MOST_OFFSET || batch->last_delta < 0 || !is_intact(p, batch))
        return OTHER;
    return WHOLE;
}

/* Puts the keys of a body's records from `first_dirty` on into the map. */
static int put_all(OffsetMap *map, const uint8_t *body, int64_t size, int64_t count, int64_t base, int64_t first_dirty)
{
    Walk walk;
    int result = begin(&walk, body, size, count), i, found;
    while (result == END && walk.left) {
        found = next_window(map, &walk);
        if (found < 0)
            return OTHER;
        for (i = 0; i < found && result == END; i++) {
            const Seen *record = walk.window + i;
            int64_t offset = base + record->offset_delta;
            if (record->has_key && offset >= first_dirty) {
                result = put(map, record->hash, offset);
                if (result == END)
                    map->latest = offset;
            }
        }
    }
    return result;
}

static int read_keys(OffsetMap *map, const uint8_t *data, int64_t size, int64_t *position, int64_t first_dirty)
{
    for (;;) {
        const uint8_t *p = data + *position;
        Batch batch;
        int64_t last;
        int result = check_batch(p, size - *position, &batch);
        if (result != WHOLE)
            return result;
        last = batch.base + batch.last_delta;
        if (last >= first_dirty) {
            result = put_all(map, p + HEADER_SIZE, batch.size - HEADER_SIZE, batch.count, batch.base, first_dirty);
            if (result != END)
                return result;
            if (last > map->latest)
                map->latest = last;
        }
        *position += batch.size;
    }
}

/* Which records of a batch stay. */

typedef struct {
    int64_t kept, keyless;
    int64_t max_timestamp;
    int tombstones; /* whether a tombstone stays that waits for a horizon */
    Buffer stays;   /* a byte for each record */
} Choice;

static int choose(const OffsetMap *map, const uint8_t *body, int64_t size, int64_t count, int64_t base,
                  int64_t base_timestamp, int tombstones_go, Choice *choice)
{
    Walk walk;
    int i, found;
    if (begin(&walk, body, size, count) != END)
        return OTHER;
    choice->kept = choice->keyless = choice->tombstones = 0;
    choice->max_timestamp = INT64_MIN;
    choice->stays.size = 0;
    if (count && !reserve(&choice->stays, (size_t)count))
        return NO_MEMORY;
    while (walk.left) {
        found = next_window(map, &walk);
        if (found < 0)
            return OTHER;
        for (i = 0; i < found; i++) {
            const Seen *record = walk.window + i;
            int64_t offset = base + record->offset_delta, timestamp;
            int stays = 1;
            if (offset <= map->latest) {
                choice->keyless += !record->has_key;
                stays = record->has_key && find(map, record->hash)->next <= offset + 1 &&
                        (record->has_value || !tombstones_go);
            }
            choice->stays.bytes[choice->stays.size++] = (uint8_t)stays;
            if (!stays)
                continue;
            choice->kept++;
            choice->tombstones |= !record->has_value && offset <= map->latest;
            timestamp = (int64_t)((uint64_t)base_timestamp + (uint64_t)record->timestamp_delta);
            if (timestamp > choice->max_timestamp)
                choice->max_timestamp = timestamp;
        }
    }
    return END;
}

/* Appends a record with `moved_by` added to its timestamp delta; its attributes are at `p`. */
static int append_moved(Buffer *out, const uint8_t *p, const uint8_t *end, int64_t moved_by)
{
    uint8_t delta[10], *delta_end, *to;
    int64_t number = 0, length;
    const uint8_t *rest = p + 1;
    read_long(&rest, end, &number); /* which the walk has seen to be fine, as is its length */
    delta_end = write_varint(delta, (int64_t)((uint64_t)number + (uint64_t)moved_by));
    length = 1 + (delta_end - delta) + (end - rest);
    to = reserve(out, (size_t)length + 10);
    if (!to)
        return NO_MEMORY;
    to = write_varint(to, length);
    *to++ = *p;
    memcpy(to, delta, (size_t)(delta_end - delta));
    to += delta_end - delta;
    memcpy(to, rest, (size_t)(end - rest));
    out->size = (size_t)(to + (end - rest) - out->bytes);
    return END;
}

/* Appends the records that stay, of a body that was walked before. */
static int append_records(Buffer *out, const uint8_t *body, const Choice *choice, int64_t moved_by)
{
    const uint8_t *p = body, *first = NULL; /* of a row of records that stay as they are */
    size_t i;
    for (i = 0; i < choice->stays.size; i++) {
        int32_t length = 0;
        const uint8_t *start = p;
        read_int(&p, p + 5, &length);
        if (choice->stays.bytes[i] && moved_by) {
            if (append_moved(out, p, p + length, moved_by) != END)
                return NO_MEMORY;
        } else if (choice->stays.bytes[i] && !first)
            first = start;
        else if (!choice->stays.bytes[i] && first) {
            if (append(out, first, (size_t)(start - first)) != END)
                return NO_MEMORY;
            first = NULL;
        }
        p += length;
    }
    return first ? append(out, first, (size_t)(p - first)) : END;
}

/* Batches that follow each other in the output, at least an index interval of them: for the segment's indexes. */
typedef struct {
    int64_t size, last_offset, max_timestamp, max_timestamp_offset;
} Run;

typedef struct {
    int64_t now_ms, delete_retention_ms, round_end;
    int64_t interval;
    const int64_t *last_offsets; /* ascending: of the last batches of producers that are remembered */
    int64_t last_offsets_count;
} Rules;

typedef struct {
    int64_t records_read, records_kept, keyless;
    int changed;
    Choice choice;
    Buffer out;
    Buffer runs;
    Run run;
} Filtered;

static int must_stay(const Rules *rules, const Batch *batch, int64_t last)
{
    int64_t low = 0, high = rules->last_offsets_count;
    if (last + 1 == rules->round_end)
        return 1;
    if (batch->producer_id < 0)
        return 0;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (rules->last_offsets[middle] < last)
            low = middle + 1;
        else
            high = middle;
    }
    return low < rules->last_offsets_count && rules->last_offsets[low] == last;
}

static int end_run(Filtered *result)
{
    if (result->run.size && append(&result->runs, &result->run, sizeof(Run)) != END)
        return NO_MEMORY;
    result->run.size = 0;
    result->run.max_timestamp = INT64_MIN;
    return END;
}

static int add_to_run(Filtered *result, const Rules *rules, int64_t size, int64_t last, int64_t max_timestamp)
{
    Run *run = &result->run;
    run->size += size;
    run->last_offset = last;
    if (max_timestamp > run->max_timestamp) {
        run->max_timestamp = max_timestamp;
        run->max_timestamp_offset = last;
    }
    return run->size >= rules->interval ? end_run(result) : END;
}

/* Filters whole batches from `*position` on into `result`. */
static int filter(const OffsetMap *map, const uint8_t *data, int64_t size, int64_t *position, const Rules *rules,
                  Filtered *result)
{
    const int64_t start = *position;
    Choice *choice = &result->choice;
    Buffer *out = &result->out;
    result->run.max_timestamp = INT64_MIN;
    for (;;) {
        const uint8_t *p = data + *position, *body = p + HEADER_SIZE;
        Batch batch;
        int64_t last, moved_by = 0;
        int wants_horizon, why = check_batch(p, size - *position, &batch);
        uint8_t *header;
        size_t at;
        if (why != WHOLE)
            return end_run(result) == END ? why : NO_MEMORY;
        last = batch.base + batch.last_delta;
        why = choose(map, body, batch.size - HEADER_SIZE, batch.count, batch.base, batch.base_timestamp,
                     batch.attributes & DELETE_HORIZON && batch.base_timestamp <= rules->now_ms, choice);
        if (why != END)
            return end_run(result) == END ? why : NO_MEMORY;
        result->records_read += batch.count;
        result->records_kept += choice->kept;
        result->keyless += choice->keyless;
        wants_horizon = choice->tombstones && !(batch.attributes & DELETE_HORIZON);
        if (choice->kept ? choice->kept == batch.count && !wants_horizon
                         : batch.size == HEADER_SIZE && must_stay(rules, &batch, last)) {
            if ((result->changed && append(out, p, (size_t)batch.size) != END) ||
                add_to_run(result, rules, batch.size, last, batch.max_timestamp) != END)
                return NO_MEMORY;
            *position += batch.size;
            continue;
        }
        if (!result->changed) {
            result->changed = 1;
            if (!reserve(out, (size_t)(size - start)) ||
                append(out, data + start, (size_t)(*position - start)) != END)
                return NO_MEMORY;
        }
        *position += batch.size;
        if (!choice->kept && !must_stay(rules, &batch, last))
            continue;
        at = out->size;
        if (append(out, p, HEADER_SIZE) != END)
            return NO_MEMORY;
        if (choice->kept) {
            if (wants_horizon) {
                int64_t horizon = rules->now_ms + rules->delete_retention_ms;
                moved_by = (int64_t)((uint64_t)batch.base_timestamp - (uint64_t)horizon);
                batch.base_timestamp = horizon;
                batch.attributes |= DELETE_HORIZON;
            }
            if (append_records(out, body, choice, moved_by) != END)
                return NO_MEMORY;
            if (!(batch.attributes & LOG_APPEND_TIME))
                batch.max_timestamp = choice->max_timestamp;
        } else {
            batch.attributes &= ~(CODEC | DELETE_HORIZON);
            batch.base_timestamp = -1;
        }
        header = out->bytes + at;
        batch.size = (int64_t)(out->size - at);
        put_big32(header + LENGTH_AT, (uint32_t)(batch.size - LOG_OVERHEAD));
        header[ATTRIBUTES_AT] = (uint8_t)(batch.attributes >> 8);
        header[ATTRIBUTES_AT + 1] = (uint8_t)batch.attributes;
        put_big64(header + BASE_TIMESTAMP_AT, (uint64_t)batch.base_timestamp);
        put_big64(header + MAX_TIMESTAMP_AT, (uint64_t)batch.max_timestamp);
        put_big32(header + COUNT_AT, (uint32_t)choice->kept);
        put_big32(header + CRC_AT, crc32c(header + ATTRIBUTES_AT, (size_t)(batch.size - ATTRIBUTES_AT)));
        if (add_to_run(result, rules, batch.size, last, batch.max_timestamp) != END)
            return NO_MEMORY;
    }
}
