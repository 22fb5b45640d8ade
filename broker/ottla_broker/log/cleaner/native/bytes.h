/* Numbers in bytes, and bytes that grow. */
#pragma once
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Why a call stopped: the data ends, another kind of batch, the map is full. The last two stay inside. */
enum { END, OTHER, FULL, NO_MEMORY, FINE };

static inline uint32_t big32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static inline uint64_t big64(const uint8_t *p)
{
    return (uint64_t)big32(p) << 32 | big32(p + 4);
}

static inline void put_big32(uint8_t *p, uint32_t number)
{
    p[0] = (uint8_t)(number >> 24);
    p[1] = (uint8_t)(number >> 16);
    p[2] = (uint8_t)(number >> 8);
    p[3] = (uint8_t)number;
}

static inline void put_big64(uint8_t *p, uint64_t number)
{
    put_big32(p, (uint32_t)(number >> 32));
    put_big32(p + 4, (uint32_t)number);
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

typedef struct {
    uint8_t *bytes;
    size_t size, room;
} Buffer;

static uint8_t *reserve(Buffer *buffer, size_t more)
{
    if (buffer->room - buffer->size < more) {
        size_t room = 2 * buffer->room + more;
        uint8_t *bytes = realloc(buffer->bytes, room);
        if (!bytes)
            return NULL;
        buffer->bytes = bytes;
        buffer->room = room;
    }
    return buffer->bytes + buffer->size;
}

static int append(Buffer *buffer, const void *bytes, size_t size)
{
    uint8_t *to = reserve(buffer, size);
    if (!to)
        return NO_MEMORY;
    memcpy(to, bytes, size);
    buffer->size += size;
    return END;
}
