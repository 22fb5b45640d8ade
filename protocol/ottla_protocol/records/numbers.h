/* Numbers as records, batches and messages have them: big-endian, and zigzag varints. */
#pragma once
#include <stdint.h>
#include <string.h>

/* The same numbers as in scan.py. MORE is none of its reasons: a record goes on behind the data. */
enum { FINE, CUT, NUMBER, LENGTH, FIELD, HEADERS, HEADER, ENDS, TRAILING, TIMESTAMP, FOUND, MORE };

static inline uint32_t big32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static inline uint64_t big64(const uint8_t *p)
{
    return (uint64_t)big32(p) << 32 | big32(p + 4);
}

static inline uint8_t *put_big32(uint8_t *p, uint32_t number)
{
    p[0] = (uint8_t)(number >> 24);
    p[1] = (uint8_t)(number >> 16);
    p[2] = (uint8_t)(number >> 8);
    p[3] = (uint8_t)number;
    return p + 4;
}

static inline uint8_t *put_big64(uint8_t *p, uint64_t number)
{
    return put_big32(put_big32(p, (uint32_t)(number >> 32)), (uint32_t)number);
}

static inline uint64_t little64(const uint8_t *p)
{
    uint64_t number;
    memcpy(&number, p, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    number = __builtin_bswap64(number);
#endif
    return number;
}

/* Reads a zigzag varint of up to 32 bits. FINE, CUT or NUMBER. */
static inline int read_int(const uint8_t **at, const uint8_t *end, int32_t *number)
{
    const uint8_t *p = *at;
    uint64_t value = 0;
    int shift;
    for (shift = 0; shift < 35; shift += 7) {
        uint8_t byte;
        if (p >= end)
            return CUT;
        byte = *p++;
        value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) {
            uint32_t zigzag = (uint32_t)value;
            if (value >> 32)
                return NUMBER;
            *number = (int32_t)((zigzag >> 1) ^ (0u - (zigzag & 1)));
            *at = p;
            return FINE;
        }
    }
    return NUMBER;
}

/* Reads a zigzag varint of up to 64 bits. */
static inline int read_long(const uint8_t **at, const uint8_t *end, int64_t *number)
{
    const uint8_t *p = *at;
    uint64_t value = 0;
    int shift;
    for (shift = 0; shift < 70; shift += 7) {
        uint8_t byte;
        if (p >= end)
            return CUT;
        byte = *p++;
        if (shift == 63 && (byte & 127) > 1)
            return NUMBER;
        value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) {
            *number = (int64_t)((value >> 1) ^ (0u - (value & 1)));
            *at = p;
            return FINE;
        }
    }
    return NUMBER;
}

/* A zigzag varint of up to 64 bits before `end`, and where it ends; NULL for one that is cut off or longer. */
static inline const uint8_t *read_varint(const uint8_t *p, const uint8_t *end, int64_t *number)
{
    if (p < end && *p < 128) {
        *number = (*p >> 1) ^ -(*p & 1);
        return p + 1;
    }
    if (end - p > 1 && p[1] < 128) {
        int64_t value = (*p & 127) | p[1] << 7;
        *number = value >> 1 ^ -(value & 1);
        return p + 2;
    }
    return read_long(&p, end, number) == FINE ? p : NULL;
}

static inline uint8_t *write_varint(uint8_t *p, int64_t number)
{
    uint64_t value = (uint64_t)number << 1 ^ (uint64_t)(number >> 63);
    for (; value > 127; value >>= 7)
        *p++ = (uint8_t)(value | 128);
    *p++ = (uint8_t)value;
    return p;
}
