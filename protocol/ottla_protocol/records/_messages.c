/* Records of format 2 as messages of formats 0 and 1, and the other way round. For the layouts see record.py, batch.py and
 * message_set.py.
 *
 * It converts what is regular. Wherever something is unusual or wrong it stops, and the modules in Python, which do the
 * same, find out and raise the error.
 */
#include "engine.h"
#include <stdlib.h>

#include "batch.h"
#include "record.h"

#define MIN_MESSAGE_SIZE 14

/* The bytes of a message without key and value, by format. */
static const Py_ssize_t OVERHEAD[] = {26, 34};

static int number_size(int64_t number)
{
    uint64_t value = (uint64_t)number << 1 ^ (uint64_t)(number >> 63);
    int size = 1;
    for (; value > 127; value >>= 7)
        size++;
    return size;
}

/* CRC-32, sixteen bytes at a time. */

static uint32_t crc_table[16][256];

static void make_crc_table(void)
{
    uint32_t byte;
    int i;
    for (byte = 0; byte < 256; byte++) {
        uint32_t sum = byte;
        for (i = 0; i < 8; i++)
            sum = sum >> 1 ^ (0xEDB88320u & (0u - (sum & 1)));
        crc_table[0][byte] = sum;
    }
    for (byte = 0; byte < 256; byte++)
        for (i = 1; i < 16; i++)
            crc_table[i][byte] = crc_table[i - 1][byte] >> 8 ^ crc_table[0][crc_table[i - 1][byte] & 255];
}

/* The bytes as a number, the first one lowest; the compiler makes it one load. */
static uint32_t little32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* What four bytes give with `table` for their last. */
static uint32_t crc_of_four(uint32_t four, int table)
{
    return crc_table[table + 3][four & 255] ^ crc_table[table + 2][four >> 8 & 255]
        ^ crc_table[table + 1][four >> 16 & 255] ^ crc_table[table][four >> 24];
}

static uint32_t crc32(const uint8_t *p, Py_ssize_t size)
{
    uint32_t sum = 0xFFFFFFFFu;
    for (; size >= 16; p += 16, size -= 16)
        sum = crc_of_four(sum ^ little32(p), 12) ^ crc_of_four(little32(p + 4), 8) ^ crc_of_four(little32(p + 8), 4)
            ^ crc_of_four(little32(p + 12), 0);
    for (; size > 0; p++, size--)
        sum = sum >> 8 ^ crc_table[0][(sum ^ *p) & 255];
    return ~sum;
}

/* A record, or a message. */
typedef struct {
    int64_t offset, timestamp;
    Field key, value;
} Message;

/* Reads the record of format 2 at `*at`; 0 if it is regular. */
static int next_record(const uint8_t **at, const uint8_t *stop, int64_t base_offset, int64_t base_timestamp,
                       Message *message)
{
    Record record;
    if (read_record(*at, stop, &record) != FINE || record.offset_delta < 0
        || __builtin_add_overflow(base_timestamp, record.timestamp_delta, &message->timestamp))
        return -1;
    message->offset = base_offset + record.offset_delta;
    message->key = record.key;
    message->value = record.value;
    *at = record.end;
    return 0;
}

static int32_t field_bytes(Field field)
{
    return field.size > 0 ? field.size : 0;
}

static Py_ssize_t message_size(const Message *message, int magic)
{
    return OVERHEAD[magic] + field_bytes(message->key) + field_bytes(message->value);
}

static uint8_t *put_bytes(uint8_t *p, Field field)
{
    if (field.size > 0)
        memcpy(p, field.at, (size_t)field.size);
    return p + field_bytes(field);
}

static uint8_t *put_message(uint8_t *start, const Message *message, int magic, int attributes, int64_t subtract)
{
    Py_ssize_t size = message_size(message, magic);
    uint8_t *p = start;
    p = put_big64(p, (uint64_t)(message->offset - subtract));
    put_big32(p, (uint32_t)(size - LOG_OVERHEAD));
    p = start + MAGIC_AT;
    *p++ = (uint8_t)magic;
    *p++ = (uint8_t)attributes;
    if (magic)
        p = put_big64(p, (uint64_t)message->timestamp);
    p = put_bytes(put_big32(p, (uint32_t)message->key.size), message->key);
    p = put_bytes(put_big32(p, (uint32_t)message->value.size), message->value);
    put_big32(start + LOG_OVERHEAD, crc32(start + MAGIC_AT, size - MAGIC_AT));
    return p;
}

#define UNUSUAL 1

/* A batch's records, uncompressed, and how they are written. */
typedef struct {
    const uint8_t *start, *stop;
    int64_t count, base_offset, base_timestamp, append_time;
    int is_append_time, magic;
    int64_t first_offset; /* records below are left out */
    int is_relative; /* write offsets less the first one */
    /* Found: of those that are written. */
    int64_t last_offset, max_timestamp;
} Body;

/* Adds to `*total` the bytes that the batch's records take as messages. */
static int measure(const Body *body, Py_ssize_t *total)
{
    const uint8_t *p = body->start;
    Py_ssize_t size = *total;
    Message message;
    int64_t i, previous;
    if (body->base_offset > INT64_MAX - INT32_MAX || body->base_offset == INT64_MIN)
        return UNUSUAL;
    previous = body->base_offset - 1;
    for (i = 0; i < body->count; i++) {
        if (next_record(&p, body->stop, body->base_offset, body->base_timestamp, &message) || message.offset <= previous)
            return UNUSUAL;
        previous = message.offset;
        if (message.offset >= body->first_offset) {
            Py_ssize_t one = message_size(&message, body->magic);
            if (one - LOG_OVERHEAD > INT32_MAX || __builtin_add_overflow(size, one, &size))
                return UNUSUAL;
        }
    }
    if (p != body->stop)
        return UNUSUAL;
    *total = size;
    return FINE;
}

/* Writes the records of a batch that measure() found fine as messages; returns where they end. */
static uint8_t *convert(Body *body, uint8_t *to)
{
    const uint8_t *p = body->start;
    int attributes = body->is_append_time && body->magic ? LOG_APPEND_TIME : 0;
    Message message;
    int64_t i, subtract = 0;
    body->last_offset = body->max_timestamp = -1;
    for (i = 0; i < body->count; i++) {
        next_record(&p, body->stop, body->base_offset, body->base_timestamp, &message);
        if (body->is_relative && i == 0)
            subtract = message.offset;
        if (message.offset >= body->first_offset) {
            if (body->is_append_time)
                message.timestamp = body->append_time;
            to = put_message(to, &message, body->magic, attributes, subtract);
            body->last_offset = message.offset;
            if (message.timestamp > body->max_timestamp)
                body->max_timestamp = message.timestamp;
        }
    }
    return to;
}

/* The plain batch at `at`, of format 2, without codec, no control batch; 0 if another kind or the end is there. Returns
 * the batch's size. */
static int64_t plain_batch(const uint8_t *data, Py_ssize_t size, Py_ssize_t at, Body *body)
{
    Batch batch;
    if (read_batch(data + at, size - at, &batch) != WHOLE || batch.attributes & (CODEC | CONTROL) || batch.count < 0)
        return 0;
    body->count = batch.count;
    body->start = data + at + HEADER_SIZE;
    body->stop = data + at + batch.size;
    body->base_offset = batch.base;
    body->base_timestamp = batch.base_timestamp;
    body->is_append_time = batch.attributes & LOG_APPEND_TIME;
    body->append_time = batch.max_timestamp;
    return batch.size;
}

/* Measures the plain batches from `*at` on, up to another kind or an irregular one. */
static void measure_plain(const uint8_t *data, Py_ssize_t size, Py_ssize_t *at, Body *body, Py_ssize_t *total)
{
    int64_t length;
    while ((length = plain_batch(data, size, *at, body)) > 0) {
        if (body->count && measure(body, total) != FINE)
            break;
        *at += length;
    }
}

/* Writes the batches in data[at:end], which have been measured. */
static void convert_plain(const uint8_t *data, Py_ssize_t end, Py_ssize_t at, Body *body, uint8_t *to)
{
    int64_t length;
    while (at < end && (length = plain_batch(data, end, at, body)) > 0) {
        if (body->count)
            to = convert(body, to);
        at += length;
    }
}

/* A new object for `size` bytes, and where they are. */
static PyObject *make_bytes(Py_ssize_t size, uint8_t **bytes)
{
    PyObject *object = PyBytes_FromStringAndSize(NULL, size);
    if (object != NULL)
        *bytes = (uint8_t *)PyBytes_AsString(object);
    return object;
}

static PyObject *py_plain(PyObject *module, PyObject *args)
{
    Py_buffer view;
    Py_ssize_t at, end, size = 0;
    long long first_offset;
    int magic;
    uint8_t *to;
    PyObject *output;
    Body body;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*niL", &view, &at, &magic, &first_offset))
        return NULL;
    if (at < 0 || at > view.len || magic < 0 || magic > 1 || !PyBuffer_IsContiguous(&view, 'C')) {
        PyBuffer_Release(&view);
        PyErr_SetString(PyExc_ValueError, "plain_batches() needs a position in the data, and format 0 or 1");
        return NULL;
    }
    end = at;
    body.magic = magic;
    body.first_offset = first_offset;
    body.is_relative = 0;
    Py_BEGIN_ALLOW_THREADS
    measure_plain(view.buf, view.len, &end, &body, &size);
    Py_END_ALLOW_THREADS
    output = make_bytes(size, &to);
    if (output != NULL) {
        Py_BEGIN_ALLOW_THREADS
        convert_plain(view.buf, end, at, &body, to);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&view);
    return output == NULL ? NULL : Py_BuildValue("(Nn)", output, end);
}

static PyObject *py_body(PyObject *module, PyObject *args)
{
    Py_buffer view;
    long long count, base_offset, base_timestamp, append_time;
    int is_append_time, magic, is_relative, found;
    Py_ssize_t size = 0;
    uint8_t *to;
    PyObject *output;
    Body body;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*LLLLpip", &view, &count, &base_offset, &base_timestamp, &append_time,
                          &is_append_time, &magic, &is_relative))
        return NULL;
    if (magic < 0 || magic > 1 || !PyBuffer_IsContiguous(&view, 'C')) {
        PyBuffer_Release(&view);
        PyErr_SetString(PyExc_ValueError, "body_as_messages() needs format 0 or 1");
        return NULL;
    }
    body.start = view.buf;
    body.stop = body.start + view.len;
    body.count = count;
    body.base_offset = base_offset;
    body.base_timestamp = base_timestamp;
    body.append_time = append_time;
    body.is_append_time = is_append_time;
    body.magic = magic;
    body.first_offset = INT64_MIN;
    body.is_relative = is_relative;
    Py_BEGIN_ALLOW_THREADS
    found = measure(&body, &size);
    Py_END_ALLOW_THREADS
    if (found != FINE) {
        PyBuffer_Release(&view);
        Py_INCREF(Py_None);
        return Py_None;
    }
    output = make_bytes(size, &to);
    if (output != NULL) {
        Py_BEGIN_ALLOW_THREADS
        convert(&body, to);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&view);
    if (output == NULL)
        return NULL;
    return Py_BuildValue("(NLL)", output, (long long)body.last_offset, (long long)body.max_timestamp);
}

/* What becomes of a message set. */
typedef struct {
    int64_t count, base_timestamp, max_timestamp, last_offset;
    Py_ssize_t end;
} Set;

/* Takes a message's field; any size below 0 is null. -1 if it doesn't fit. */
static int take(const uint8_t **at, const uint8_t *end, Field *field)
{
    if (end - *at < 4)
        return -1;
    field->size = (int32_t)big32(*at);
    *at += 4;
    if (field->size < -1)
        field->size = -1;
    field->at = *at;
    if (field->size > end - *at)
        return -1;
    *at += field_bytes(*field);
    return 0;
}

/* Reads the message at `at`, which is whole; 0 if it is regular, undamaged, and has none of the attributes `refused`. */
static int read_message(const uint8_t *at, const uint8_t *end, int magic, int refused, Message *message)
{
    const uint8_t *p = at + MAGIC_AT;
    if (end - at < OVERHEAD[magic] || p[0] != magic || p[1] & refused
        || big32(at + LOG_OVERHEAD) != crc32(p, end - p))
        return -1;
    message->offset = (int64_t)big64(at);
    p += 2;
    message->timestamp = -1;
    if (magic) {
        message->timestamp = (int64_t)big64(p);
        p += 8;
    }
    if (take(&p, end, &message->key) || take(&p, end, &message->value) || message->timestamp < -1)
        return -1;
    return 0;
}

/* Writes the whole messages as records of format 2 after `*to`, which has room for as many bytes as they have. */
static int gather(const uint8_t *data, Py_ssize_t size, int magic, int refused, Set *set, uint8_t **to)
{
    uint8_t *out = *to;
    Message message;
    memset(set, 0, sizeof *set);
    set->max_timestamp = -1;
    while (size - set->end >= LOG_OVERHEAD) {
        const uint8_t *at = data + set->end;
        int64_t length = (int32_t)big32(at + 8), inside, delta;
        if (length < MIN_MESSAGE_SIZE || set->count == INT32_MAX)
            return UNUSUAL;
        if (length > size - set->end - LOG_OVERHEAD)
            break;
        if (read_message(at, at + LOG_OVERHEAD + length, magic, refused, &message))
            return UNUSUAL;
        if (!set->count)
            set->base_timestamp = message.timestamp;
        if (message.timestamp > set->max_timestamp)
            set->max_timestamp = message.timestamp;
        delta = message.timestamp - set->base_timestamp;
        inside = 1 + number_size(delta) + number_size(set->count) + number_size(message.key.size)
            + number_size(message.value.size) + 1 + field_bytes(message.key)
            + field_bytes(message.value);
        out = write_varint(out, inside);
        *out++ = 0;
        out = write_varint(out, delta);
        out = write_varint(out, set->count);
        out = put_bytes(write_varint(out, message.key.size), message.key);
        out = put_bytes(write_varint(out, message.value.size), message.value);
        *out++ = 0;
        set->last_offset = message.offset;
        set->count++;
        set->end += LOG_OVERHEAD + length;
    }
    *to = out;
    return FINE;
}

static PyObject *py_records(PyObject *module, PyObject *args)
{
    Py_buffer view;
    int magic, refused, found;
    uint8_t *bytes, *to;
    PyObject *result;
    Set set;
    (void)module;
    if (!PyArg_ParseTuple(args, "y*ii", &view, &magic, &refused))
        return NULL;
    if (magic < 0 || magic > 1 || !PyBuffer_IsContiguous(&view, 'C')) {
        PyBuffer_Release(&view);
        PyErr_SetString(PyExc_ValueError, "messages_as_records() needs format 0 or 1");
        return NULL;
    }
    /* A record is never larger than its message: 32 bytes without key and value, where a message of format 1 has 34; 23
     * where all timestamps are equal, as in format 0, whose messages have 26. */
    bytes = malloc((size_t)view.len + HEADER_SIZE);
    if (bytes == NULL) {
        PyBuffer_Release(&view);
        return PyErr_NoMemory();
    }
    memset(bytes, 0, HEADER_SIZE);
    to = bytes + HEADER_SIZE;
    Py_BEGIN_ALLOW_THREADS
    found = gather(view.buf, view.len, magic, refused, &set, &to);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&view);
    if (found != FINE) {
        free(bytes);
        Py_INCREF(Py_None);
        return Py_None;
    }
    result = Py_BuildValue("(NLLLLn)", PyByteArray_FromStringAndSize((const char *)bytes, to - bytes),
                           (long long)set.count, (long long)set.base_timestamp, (long long)set.max_timestamp,
                           (long long)set.last_offset, set.end);
    free(bytes);
    return result;
}

static PyMethodDef methods[] = {
    {"plain_batches", py_plain, METH_VARARGS, "plain_batches(data, start, magic, first_offset): see compiled_messages.py"},
    {"body_as_messages", py_body, METH_VARARGS,
     "body_as_messages(data, count, base_offset, base_timestamp, append_time, is_append_time, magic, is_relative)"},
    {"messages_as_records", py_records, METH_VARARGS, "messages_as_records(data, magic, refused)"},
    {NULL, NULL, 0, NULL},
};

int add_messages(PyObject *module)
{
    make_crc_table();
    return PyModule_AddFunctions(module, methods);
}
