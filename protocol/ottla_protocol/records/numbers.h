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

#define INLINE inline __attribute__((always_inline))

/* Reads a zigzag varint of up to `bits` bits, 32 or 64: where it ends, or NULL and `*number` is the reason. */
static const uint8_t *read_slowly(const uint8_t *p, const uint8_t *end, int bits, int64_t *number)
{
    uint64_t value = 0;
    int shift;
    for (shift = 0; shift < bits; shift += 7) {
        uint8_t byte;
        if (p >= end) {
            *number = CUT;
            return NULL;
        }
        byte = *p++;
        if (shift == 63 && (byte & 127) > 1)
            break;
        value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) {
            if (bits == 32 && value >> 32)
                break;
            *number = (int64_t)((value >> 1) ^ (0u - (value & 1)));
            return p;
        }
    }
    *number = NUMBER;
    return NULL;
}

/* Reads a zigzag varint; one of one or two bytes, which nearly all are, without a loop. FINE, CUT or NUMBER. */
#define READ(name, type, bits) \
    static INLINE int name(const uint8_t **at, const uint8_t *end, type *number) \
    { \
        const uint8_t *p = *at; \
        int64_t value = 0; \
        if (p < end && *p < 128) { \
            *number = (*p >> 1) ^ -(*p & 1); \
            *at = p + 1; \
            return FINE; \
        } \
        if (end - p > 1 && p[1] < 128) { \
            int32_t two = (*p & 127) | p[1] << 7; \
            *number = (two >> 1) ^ -(two & 1); \
            *at = p + 2; \
            return FINE; \
        } \
        p = read_slowly(p, end, bits, &value); \
        if (!p) \
            return value == CUT ? CUT : NUMBER; \
        *number = (type)value; \
        *at = p; \
        return FINE; \
    }
READ(read_int, int32_t, 32)
READ(read_long, int64_t, 64)
#undef READ

static inline uint8_t *write_varint(uint8_t *p, int64_t number)
{
    uint64_t value = (uint64_t)number << 1 ^ (uint64_t)(number >> 63);
    for (; value > 127; value >>= 7)
        *p++ = (uint8_t)(value | 128);
    *p++ = (uint8_t)value;
    return p;
}
