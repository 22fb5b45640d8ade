/* The compiled twin of the loop in the broker's recovery_scan.py, which says what is checked; a test holds the two to
 * the same results.
 *
 * It handles whole batches of format 2 and of one leader epoch that are neither transactional nor control batches. It
 * stops at any other, and at one that is damaged, which the Python code then handles or refuses. The GIL is released
 * meanwhile.
 */
#include "engine.h"

#include "buffer.h"

/* The last batches of each producer, of which the log remembers as many: a hash table by producer id. */
enum { REMEMBERED = 5, SLOTS = 512, MOST_PRODUCERS = 384 };

typedef struct {
    int64_t producer_id;
    int64_t batches; /* 0: the slot is free */
    int64_t at[REMEMBERED];
} Sent;

typedef struct {
    int64_t next_offset, indexed, max_timestamp, max_timestamp_offset;
    int gap;
    int producers;
    Buffer index; /* last offset, position, largest timestamp and its offset, for each entry */
    Sent sent[SLOTS];
} Scan;

/* Remembers a producer's batch. 0: there are too many producers. */
static int remember(Scan *scan, int64_t producer_id, int64_t at)
{
    uint64_t slot = (uint64_t)producer_id * 0x9e3779b97f4a7c15u >> 55;
    Sent *sent;
    for (;; slot = (slot + 1) % SLOTS) {
        sent = scan->sent + slot;
        if (!sent->batches) {
            if (scan->producers == MOST_PRODUCERS)
                return 0;
            scan->producers++;
            sent->producer_id = producer_id;
            break;
        }
        if (sent->producer_id == producer_id)
            break;
    }
    sent->at[sent->batches++ % REMEMBERED] = at;
    return 1;
}

/* Scans batches from `at` on; returns where it stopped, or -1 without memory. */
static int64_t scan_batches(Scan *scan, const uint8_t *data, int64_t size, int64_t at, int64_t position,
                            int64_t highest, int64_t interval, int32_t epoch)
{
    const int64_t opened = position - at;
    Batch batch;
    while (read_batch(data + at, size - at, &batch) == WHOLE) {
        int64_t last;
        if (batch.attributes & (TRANSACTIONAL | CONTROL) || batch.epoch != epoch)
            break;
        if (batch.base < scan->next_offset || batch.base > highest)
            break;
        last = batch.base + batch.last_delta;
        if (last < batch.base || last > highest || !is_intact(data + at, &batch))
            break;
        if (batch.producer_id >= 0 && !remember(scan, batch.producer_id, at))
            break;
        if (batch.max_timestamp > scan->max_timestamp) {
            scan->max_timestamp = batch.max_timestamp;
            scan->max_timestamp_offset = last;
        }
        if (opened + at - scan->indexed > interval) {
            int64_t entry[4] = {last, opened + at, scan->max_timestamp, scan->max_timestamp_offset};
            if (append(&scan->index, entry, sizeof entry) != END)
                return -1;
            scan->indexed = opened + at;
        }
        scan->gap |= batch.base > scan->next_offset;
        scan->next_offset = last + 1;
        at += batch.size;
    }
    return at;
}

static int ascending(const void *one, const void *other)
{
    const int64_t a = *(const int64_t *)one, b = *(const int64_t *)other;
    return (a > b) - (a < b);
}

/* Where the remembered batches begin. */
static int list_sent(const Scan *scan, Buffer *out)
{
    int slot;
    for (slot = 0; slot < SLOTS; slot++) {
        const Sent *sent = scan->sent + slot;
        const int64_t count = sent->batches < REMEMBERED ? sent->batches : REMEMBERED;
        if (count && append(out, sent->at, (size_t)count * sizeof(int64_t)) != END)
            return NO_MEMORY;
    }
    if (out->size)
        qsort(out->bytes, out->size / sizeof(int64_t), sizeof(int64_t), ascending);
    return END;
}

static PyObject *py_scan(PyObject *module, PyObject *args)
{
    Py_buffer view;
    Py_ssize_t start;
    long long position, next_offset, highest, interval, indexed, max_timestamp, max_timestamp_offset;
    int epoch;
    int64_t at;
    Buffer sent = {NULL, 0, 0};
    Scan *scan = NULL;
    PyObject *found = NULL;

    (void)module;
    if (!PyArg_ParseTuple(args, "y*nLLLLLLLi", &view, &start, &position, &next_offset, &highest, &interval, &indexed,
                          &max_timestamp, &max_timestamp_offset, &epoch))
        return NULL;
    if (start < 0 || start > view.len || position < start || indexed < 0 || indexed > position ||
        highest > INT64_MAX - INT32_MAX || !PyBuffer_IsContiguous(&view, 'C')) {
        PyErr_SetString(PyExc_ValueError, "scan_segment() needs positions within the data and offsets within 63 bits");
        goto done;
    }
    scan = calloc(1, sizeof *scan);
    if (!scan) {
        PyErr_NoMemory();
        goto done;
    }
    scan->next_offset = next_offset;
    scan->indexed = indexed;
    scan->max_timestamp = max_timestamp;
    scan->max_timestamp_offset = max_timestamp_offset;
    Py_BEGIN_ALLOW_THREADS
    at = scan_batches(scan, view.buf, view.len, start, position, highest, interval, epoch);
    if (at >= 0 && list_sent(scan, &sent) != END)
        at = -1;
    Py_END_ALLOW_THREADS
    if (at < 0)
        PyErr_NoMemory();
    else
        found = Py_BuildValue("(nLLLLiy#y#)", (Py_ssize_t)at, (long long)scan->next_offset, (long long)scan->indexed,
                              (long long)scan->max_timestamp, (long long)scan->max_timestamp_offset, scan->gap,
                              scan->index.size ? (char *)scan->index.bytes : "", (Py_ssize_t)scan->index.size,
                              sent.size ? (char *)sent.bytes : "", (Py_ssize_t)sent.size);
done:
    if (scan)
        free(scan->index.bytes);
    free(scan);
    free(sent.bytes);
    PyBuffer_Release(&view);
    return found;
}

static PyMethodDef methods[] = {
    {"scan_segment", py_scan, METH_VARARGS,
     "scan_segment(data, start, position, next_offset, highest, interval, indexed, max_timestamp, max_timestamp_offset, epoch)"
     " -> where it stopped, next_offset, indexed, max_timestamp, max_timestamp_offset, gap, index, producers' batches"},
    {NULL, NULL, 0, NULL},
};

int add_recovery(PyObject *module)
{
    return PyModule_AddFunctions(module, methods);
}
