/* Columns of records: part of _records.c, which includes it. The twin is columns/parse.py, with numpy.
 *
 * A table of numbers is a buffer of int64, a row of it after the other. The functions check that every place in it
 * lies within the data, so that wrong arguments raise ValueError and read no other memory.
 */

/* A row for each batch, in list_batches. */
enum { B_AT, B_SIZE, B_BASE, B_LAST, B_EPOCH, B_ATTRIBUTES, B_COUNT, B_STAMP, B_MAX_STAMP, B_PRODUCER, B_CRC, B_WIDTH };
enum { GOOD, BROKEN, DISORDER };

/* A row for each batch whose records are decoded. */
enum { P_FROM, P_TO, P_COUNT, P_BASE, P_STAMP, P_APPENDED, P_WIDTH };

/* The columns that index_records writes, one after the other: offsets, timestamps, places and sizes of keys and of values, places
 * of headers. Sizes are -1 for null, places of headers for none. */
#define COLUMNS 7

typedef struct {
    int64_t rows, headers;
} Totals;

/* Whether a buffer holds whole numbers of this size, where the processor can read them. */
static int holds(const Py_buffer *view, size_t size)
{
    return view->len % (Py_ssize_t)size == 0 && (uintptr_t)view->buf % size == 0;
}

static PyObject *py_list_batches(PyObject *module, PyObject *args)
{
    Py_buffer view, table;
    Py_ssize_t at, stop, most, rows = 0;
    long long expected, until;
    int status = GOOD;
    const uint8_t *data;
    int64_t *row;

    (void)module;
    if (!PyArg_ParseTuple(args, "y*nnLLw*", &view, &at, &stop, &expected, &until, &table))
        return NULL;
    if (at < 0 || stop < at || stop > view.len || !holds(&table, 8)) {
        PyBuffer_Release(&view);
        PyBuffer_Release(&table);
        PyErr_SetString(PyExc_ValueError, "batches need a range within the data, and a table of int64");
        return NULL;
    }
    data = view.buf;
    row = table.buf;
    most = table.len / 8 / B_WIDTH;
    for (; rows < most && expected < until; rows++, row += B_WIDTH) {
        Batch batch;
        int64_t last;
        int why = read_batch(data + at, stop - at, &batch);
        if (why != WHOLE) {
            status = why == OTHER ? BROKEN : GOOD;
            break;
        }
        if (__builtin_add_overflow(batch.base, batch.last_delta, &last) || batch.base < expected || last < batch.base
            || last == INT64_MAX) {
            status = DISORDER;
            break;
        }
        row[B_AT] = at;
        row[B_SIZE] = batch.size;
        row[B_BASE] = batch.base;
        row[B_LAST] = last;
        row[B_EPOCH] = batch.epoch;
        row[B_ATTRIBUTES] = batch.attributes;
        row[B_COUNT] = batch.count;
        row[B_STAMP] = batch.base_timestamp;
        row[B_MAX_STAMP] = batch.max_timestamp;
        row[B_PRODUCER] = batch.producer_id;
        row[B_CRC] = batch.crc;
        at += (Py_ssize_t)batch.size;
        expected = last + 1;
    }
    PyBuffer_Release(&view);
    PyBuffer_Release(&table);
    return Py_BuildValue("(nnLi)", rows, at, expected, status);
}

/* Reads this many records from *at on into the columns, from row totals->rows on; whether all of them are valid. */
static int index_records(const uint8_t *data, const uint8_t **at, int64_t left, const int64_t *piece, int64_t first,
                         int64_t until, int max_headers, int64_t *columns, int64_t room, Totals *totals)
{
    const uint8_t *p = *at, *stop = data + piece[P_TO];
    /* In variables of their own: the columns might be the same memory, for all the compiler knows. */
    const int64_t base = piece[P_BASE], base_stamp = piece[P_STAMP], stamp_mask = piece[P_APPENDED] ? 0 : -1;
    int64_t *offsets = columns + totals->rows, *stamps = offsets + room, *keys = stamps + room;
    int64_t *values = keys + 2 * room, *headers = values + 2 * room;
    int64_t row = 0, counts = 0, offset, stamp;
    Record record;

    for (; left; left--) {
        if (read_record(p, stop, &record) != FINE || record.header_count > max_headers || record.offset_delta < 0
            || __builtin_add_overflow(base, record.offset_delta, &offset)
            || __builtin_add_overflow(base_stamp, record.timestamp_delta & stamp_mask, &stamp))
            return 0;
        p = record.end;
        if (offset < first || offset >= until)
            continue;
        offsets[row] = offset;
        stamps[row] = stamp;
        keys[row] = record.key.at - data;
        keys[room + row] = record.key.size;
        values[row] = record.value.at - data;
        values[room + row] = record.value.size;
        headers[row] = record.header_count ? record.headers - data : -1;
        counts += record.header_count;
        row++;
    }
    totals->rows += row;
    totals->headers += counts;
    *at = p;
    return 1;
}

/* The places of the names and values of the headers at these places; whether all of them are valid. */
static int index_headers(const uint8_t *data, int64_t size, const int64_t *places, int64_t rows, int32_t *edges,
                         int64_t *pairs, int64_t room)
{
    const uint8_t *p, *end = data + size;
    int64_t row, pair = 0;
    Field name, value;

    edges[0] = 0;
    for (row = 0; row < rows; row++) {
        int64_t place = places[row];
        int32_t count = 0;
        if (place >= size)
            return 0;
        p = data + place;
        if (place >= 0 && read_int(&p, end, &count) != FINE)
            return 0;
        if (count < 0 || count > room - pair)
            return 0;
        for (; count; count--, pair++) {
            if (read_header(&p, end, &name, &value) != FINE)
                return 0;
            pairs[pair] = name.at - data;
            pairs[room + pair] = name.size;
            pairs[2 * room + pair] = value.at - data;
            pairs[3 * room + pair] = value.size;
        }
        edges[row + 1] = (int32_t)pair;
    }
    return pair == room;
}

static PyObject *py_headers(PyObject *module, PyObject *args)
{
    Py_buffer view, places, edges, pairs;
    int64_t rows, room;
    int valid;

    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*w*w*", &view, &places, &edges, &pairs))
        return NULL;
    rows = places.len / 8;
    room = pairs.len / 8 / 4;
    valid = holds(&places, 8) && holds(&edges, 4) && holds(&pairs, 8) && edges.len / 4 > rows && room <= INT32_MAX;
    if (valid) {
        Py_BEGIN_ALLOW_THREADS
        valid = index_headers(view.buf, view.len, places.buf, rows, edges.buf, pairs.buf, room);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&view);
    PyBuffer_Release(&places);
    PyBuffer_Release(&edges);
    PyBuffer_Release(&pairs);
    if (valid)
        Py_RETURN_NONE;
    PyErr_SetString(PyExc_ValueError, "headers need the places that decode() found, and room for them");
    return NULL;
}

/* A column of fields as Arrow has it: edges, bytes, and a bit for each that isn't null. */
typedef struct {
    int32_t *edges;
    uint8_t *out, *valid;
    int64_t room; /* for bytes */
    int64_t at, rows, nulls;
    unsigned bits;
} Fields;

/* Fields up to this size are copied in steps of 16 bytes, beyond their end, which is faster than calling memcpy. */
#define SHORT 128

/* Copies fields behind those that are there; whether there is room. */
static int gather(Fields *to, const uint8_t *data, int64_t size, const int64_t *starts, const int64_t *sizes,
                  int64_t rows)
{
    int32_t *edges = to->edges + to->rows;
    uint8_t *out = to->out, *valid = to->valid;
    const int64_t room = to->room, before = to->rows;
    int64_t row, at = to->at, nulls = 0;
    unsigned bits = to->bits;

    edges[0] = (int32_t)at;
    for (row = 0; row < rows; row++) {
        int64_t start = starts[row], field = sizes[row], place = before + row, done;
        if (field < 0)
            nulls++;
        else {
            if (start < 0 || field > size || start > size - field || field > room - at)
                return 0;
            if (field <= SHORT && size - start >= SHORT && room - at >= SHORT)
                for (done = 0; done < field; done += 16)
                    memcpy(out + at + done, data + start + done, 16);
            else
                memcpy(out + at, data + start, (size_t)field);
            at += field;
            bits |= 1u << (place & 7);
        }
        edges[row + 1] = (int32_t)at;
        if ((place & 7) == 7) {
            valid[place >> 3] = (uint8_t)bits;
            bits = 0;
        }
    }
    to->at = at;
    to->rows += rows;
    to->nulls += nulls;
    to->bits = bits;
    if (to->rows & 7)
        valid[to->rows >> 3] = (uint8_t)bits;
    return 1;
}

/* Takes three buffers for that many rows at most; whether they have the room. */
static int prepare_fields(Fields *fields, const Py_buffer *edges, const Py_buffer *out, const Py_buffer *valid,
                          int64_t rows)
{
    memset(fields, 0, sizeof *fields);
    fields->edges = edges->buf;
    fields->out = out->buf;
    fields->room = out->len < INT32_MAX ? out->len : INT32_MAX;
    fields->valid = valid->buf;
    return holds(edges, 4) && edges->len / 4 > rows && valid->len >= (rows + 7) / 8;
}

static PyObject *py_gather(PyObject *module, PyObject *args)
{
    Py_buffer view, starts, sizes, edges, out, valid;
    int64_t rows;
    Fields fields;
    int good;

    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*y*w*w*w*", &view, &starts, &sizes, &edges, &out, &valid))
        return NULL;
    rows = starts.len / 8;
    good = holds(&starts, 8) && holds(&sizes, 8) && sizes.len == starts.len
           && prepare_fields(&fields, &edges, &out, &valid, rows);
    if (good) {
        Py_BEGIN_ALLOW_THREADS
        good = gather(&fields, view.buf, view.len, starts.buf, sizes.buf, rows);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&view);
    PyBuffer_Release(&starts);
    PyBuffer_Release(&sizes);
    PyBuffer_Release(&edges);
    PyBuffer_Release(&out);
    PyBuffer_Release(&valid);
    if (good)
        return PyLong_FromLongLong(fields.nulls);
    PyErr_SetString(PyExc_ValueError, "gather() needs fields within the data, and room for them");
    return NULL;
}

/* Records that are read before their fields are copied, so that all of it stays in the processor's cache. */
#define BLOCK 2048

/* Decodes a batch's records; numbers are columns of offsets, timestamps and places of headers. */
static int decode_batch(const Py_buffer *view, const int64_t *piece, int64_t first, int64_t until, int max_headers,
                        int64_t *block, int64_t *numbers, int64_t room, Fields *keys, Fields *values, Totals *totals)
{
    const uint8_t *data = view->buf, *at = data + piece[P_FROM];
    int64_t left = piece[P_COUNT];

    while (left) {
        int64_t count = left < BLOCK ? left : BLOCK, rows;
        Totals found = {0, 0};
        if (!index_records(data, &at, count, piece, first, until, max_headers, block, BLOCK, &found))
            return 0;
        rows = found.rows;
        memcpy(numbers + totals->rows, block, (size_t)rows * 8);
        memcpy(numbers + room + totals->rows, block + BLOCK, (size_t)rows * 8);
        memcpy(numbers + 2 * room + totals->rows, block + 6 * BLOCK, (size_t)rows * 8);
        if (keys != NULL && !gather(keys, data, view->len, block + 2 * BLOCK, block + 3 * BLOCK, rows))
            return 0;
        if (values != NULL && !gather(values, data, view->len, block + 4 * BLOCK, block + 5 * BLOCK, rows))
            return 0;
        totals->rows += rows;
        totals->headers += found.headers;
        left -= count;
    }
    return at == data + piece[P_TO];
}

/* Whether the batches lie within the data, and their records have room. */
static int check_pieces(const Py_buffer *view, const Py_buffer *pieces, int64_t room)
{
    const int64_t *piece = pieces->buf, *end = piece + pieces->len / 8 / P_WIDTH * P_WIDTH;

    if (!holds(pieces, 8))
        return 0;
    for (; piece < end; piece += P_WIDTH) {
        if (piece[P_FROM] < 0 || piece[P_TO] < piece[P_FROM] || piece[P_TO] > view->len || piece[P_COUNT] < 0
            || piece[P_COUNT] > room)
            return 0;
        room -= piece[P_COUNT];
    }
    return 1;
}

static PyObject *py_decode(PyObject *module, PyObject *args)
{
    Py_buffer view, pieces, numbers, key[3], value[3];
    long long first, until;
    int max_headers, valid, i;
    int64_t room, *block = NULL;
    Fields keys, values;
    Totals totals = {0, 0};

    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*LLiw*(w*w*w*)(w*w*w*)", &view, &pieces, &first, &until, &max_headers, &numbers,
                          &key[0], &key[1], &key[2], &value[0], &value[1], &value[2]))
        return NULL;
    room = numbers.len / 8 / 3;
    valid = holds(&numbers, 8) && check_pieces(&view, &pieces, room)
            && (!key[0].len || prepare_fields(&keys, &key[0], &key[1], &key[2], room))
            && (!value[0].len || prepare_fields(&values, &value[0], &value[1], &value[2], room));
    if (!valid)
        PyErr_SetString(PyExc_ValueError, "decode() needs batches within the data, and room for their records");
    else if ((block = PyMem_Malloc(COLUMNS * BLOCK * sizeof *block)) == NULL)
        PyErr_NoMemory();
    else {
        const int64_t *piece = pieces.buf, *end = piece + pieces.len / 8 / P_WIDTH * P_WIDTH;
        Py_BEGIN_ALLOW_THREADS
        for (; valid && piece < end; piece += P_WIDTH)
            valid = decode_batch(&view, piece, first, until, max_headers, block, numbers.buf, room,
                                 key[0].len ? &keys : NULL, value[0].len ? &values : NULL, &totals);
        Py_END_ALLOW_THREADS
    }
    PyMem_Free(block);
    PyBuffer_Release(&view);
    PyBuffer_Release(&pieces);
    PyBuffer_Release(&numbers);
    for (i = 0; i < 3; i++) {
        PyBuffer_Release(&key[i]);
        PyBuffer_Release(&value[i]);
    }
    if (PyErr_Occurred())
        return NULL;
    if (!valid)
        Py_RETURN_NONE;
    return Py_BuildValue("(LLLL)", (long long)totals.rows, key[0].len ? (long long)keys.nulls : 0LL,
                         value[0].len ? (long long)values.nulls : 0LL, (long long)totals.headers);
}

static uint64_t mix(uint64_t number)
{
    number = (number ^ number >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    number = (number ^ number >> 27) * UINT64_C(0x94D049BB133111EB);
    return number ^ number >> 31;
}

/* As in the pipeline's hashing.py. */
static uint64_t hash_field(const uint8_t *p, int64_t size)
{
    uint64_t total = (uint64_t)size + UINT64_C(0xD1B54A32D192ED03), place = 0;
    for (; size > 0; size -= 8) {
        uint64_t word = 0;
        int byte, most = size < 8 ? (int)size : 8;
        for (byte = 0; byte < most; byte++)
            word |= (uint64_t)*p++ << 8 * byte;
        place += UINT64_C(0x9E3779B97F4A7C15);
        total += mix(word + place);
    }
    return mix(total);
}

static PyObject *py_hash_fields(PyObject *module, PyObject *args)
{
    Py_buffer view, edges, hashes;
    int64_t row = 0, rows;
    int valid;

    (void)module;
    if (!PyArg_ParseTuple(args, "y*y*w*", &view, &edges, &hashes))
        return NULL;
    rows = hashes.len / 8;
    valid = holds(&edges, 4) && holds(&hashes, 8) && edges.len / 4 > rows;
    if (valid) {
        const int32_t *edge = edges.buf;
        uint64_t *to = hashes.buf;
        Py_BEGIN_ALLOW_THREADS
        for (; row < rows && edge[row] >= 0 && edge[row + 1] >= edge[row] && edge[row + 1] <= view.len; row++)
            to[row] = hash_field((const uint8_t *)view.buf + edge[row], edge[row + 1] - edge[row]);
        Py_END_ALLOW_THREADS
        valid = row == rows;
    }
    PyBuffer_Release(&view);
    PyBuffer_Release(&edges);
    PyBuffer_Release(&hashes);
    if (valid)
        Py_RETURN_NONE;
    PyErr_SetString(PyExc_ValueError, "hash_fields() needs fields within the data");
    return NULL;
}

#define COLUMN_METHODS \
    {"list_batches", py_list_batches, METH_VARARGS, "Headers of batches: see _records.pyi."}, \
    {"decode", py_decode, METH_VARARGS, "Records as Arrow's columns: see _records.pyi."}, \
    {"headers", py_headers, METH_VARARGS, "Places of headers: see _records.pyi."}, \
    {"gather", py_gather, METH_VARARGS, "Fields side by side: see _records.pyi."}, \
    {"hash_fields", py_hash_fields, METH_VARARGS, "Hashes of fields: see _records.pyi."}
