/* Bytes that grow. */
#pragma once
#include <stdlib.h>

#include "batch.h"

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
