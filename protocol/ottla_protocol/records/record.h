/* The walk over records of format 2 that all loops here share: see record.py for the layout, scan.py for the checks. */
#pragma once
#include "numbers.h"

/* Bytes of the shortest record: a length, attributes, and five numbers. */
#define LEAST_RECORD 7

/* A field's bytes, size -1 for null. */
typedef struct {
    const uint8_t *at;
    int32_t size;
} Field;

typedef struct {
    const uint8_t *end; /* known from the length, so that the processor begins the next record before this one is read */
    int64_t timestamp_delta;
    int32_t offset_delta;
    Field key, value;
    const uint8_t *headers; /* where their count stands */
    int32_t header_count;
} Record;

/* Returns from the function at hand for anything but FINE. */
#define TRY(call) \
    do { \
        int why = call; \
        if (__builtin_expect(why != FINE, 0)) \
            return why; \
    } while (0)

/* Reads a field of `least` bytes or more; `wrong` is the reason to give for another size. */
static INLINE int read_field(const uint8_t **at, const uint8_t *end, int least, int wrong, Field *field)
{
    TRY(read_int(at, end, &field->size));
    field->at = *at;
    if (field->size >= 0) {
        if (field->size > end - *at)
            return wrong;
        *at += field->size;
    } else if (field->size < least)
        return wrong;
    return FINE;
}

static INLINE int read_header(const uint8_t **at, const uint8_t *end, Field *name, Field *value)
{
    TRY(read_field(at, end, 0, HEADER, name));
    return read_field(at, end, -1, HEADER, value);
}

/* Reads the record at `p`; the next one is at its end. FINE, MORE if it ends behind the data, or what is wrong with it. */
static INLINE int read_record(const uint8_t *p, const uint8_t *stop, Record *record)
{
    const uint8_t *end;
    int32_t length, left;
    int reason;

    reason = read_int(&p, stop, &length);
    if (reason != FINE)
        return reason == CUT ? MORE : reason;
    if (length < 0)
        return LENGTH;
    if (length > stop - p)
        return MORE;
    if (!length)
        return CUT;
    record->end = end = p + length;
    p++; /* the attributes, which have no meaning */
    TRY(read_long(&p, end, &record->timestamp_delta));
    TRY(read_int(&p, end, &record->offset_delta));
    TRY(read_field(&p, end, -1, FIELD, &record->key));
    TRY(read_field(&p, end, -1, FIELD, &record->value));
    record->headers = p;
    TRY(read_int(&p, end, &record->header_count));
    /* A header has two lengths at least. */
    if (record->header_count && (record->header_count < 0 || record->header_count > (end - p) / 2))
        return HEADERS;
    for (left = record->header_count; left; left--) {
        Field name, value;
        TRY(read_header(&p, end, &name, &value));
    }
    return p == end ? FINE : ENDS;
}
