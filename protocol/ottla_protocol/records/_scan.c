/* The compiled twin of scan.py, which says what is checked; a test holds the two to the same results.
 *
 * Written to the stable ABI of Python 3.11, so one binary serves every later version.
 */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

/* Raised whenever scan()'s arguments or results change, so that scan.py never uses a stale binary. */
#define INTERFACE 1

/* The same numbers as in scan.py. */
enum { FINE, CUT, NUMBER, LENGTH, FIELD, HEADERS, HEADER, ENDS, TRAILING, TIMESTAMP };
enum { NO_KEY = 1, OUT_OF_RANGE = 2 };

/* Up to this many bytes are scanned with the GIL held: releasing it costs more. */
#define QUICK_BYTES 65536
#define MOST_REFUSED 1000

typedef struct {
    int reason;
    int64_t record; /* the record that is wrong, or the one after the last */
    int64_t position;
    int64_t max_timestamp;
    int renumber;
    int64_t without_key;
    int64_t out_of_range;
    int refused; /* entries in the arrays that follow */
    int64_t refused_record[MOST_REFUSED];
    int64_t refused_timestamp[MOST_REFUSED];
    char refused_kind[MOST_REFUSED];
} Result;

/* Reads a zigzag varint of up to 32 bits. FINE, CUT or NUMBER. */
static int read_int(const uint8_t **at, const uint8_t *end, int32_t *number)
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
static int read_long(const uint8_t **at, const uint8_t *end, int64_t *number)
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

/* Numbers of one and two bytes, which nearly all are, without a call. */
#define INT(number) \
    if (p < end && *p < 128) { \
        number = (*p >> 1) ^ -(*p & 1); \
        p++; \
    } else if (end - p > 1 && p[1] < 128) { \
        number = (*p & 127) | p[1] << 7; \
        number = (number >> 1) ^ -(number & 1); \
        p += 2; \
    } else if ((reason = read_int(&p, end, &number)) != FINE) \
        goto wrong

static void scan(const uint8_t *data, Py_ssize_t size, int64_t first, int64_t count, int64_t base_timestamp,
                 int64_t earliest, int64_t latest, int keys, Result *result)
{
    const uint8_t *p, *start = data, *stop = data + size, *end;
    int64_t i = first, max_timestamp = -1;
    int reason = FINE;

    result->renumber = 0;
    result->without_key = result->out_of_range = 0;
    result->refused = 0;
    for (; i < first + count; i++) {
        int32_t length, offset_delta, field, headers;
        int64_t delta, timestamp;
        int kind = 0;

        p = start;
        end = stop;
        INT(length);
        if (length < 0) {
            reason = LENGTH;
            goto wrong;
        }
        if (length > end - p) {
            reason = CUT;
            goto wrong;
        }
        end = p + length;
        if (p == end) {
            reason = CUT;
            goto wrong;
        }
        p++; /* the attributes, which have no meaning */
        if (p < end && *p < 128) {
            delta = (*p >> 1) ^ -(*p & 1);
            p++;
        } else if (end - p > 1 && p[1] < 128) {
            delta = (*p & 127) | p[1] << 7;
            delta = (delta >> 1) ^ -(delta & 1);
            p += 2;
        } else if ((reason = read_long(&p, end, &delta)) != FINE)
            goto wrong;
        INT(offset_delta);
        INT(field);
        if (field >= 0) {
            if (field > end - p) {
                reason = FIELD;
                goto wrong;
            }
            p += field;
        } else if (field < -1) {
            reason = FIELD;
            goto wrong;
        } else if (keys)
            kind = NO_KEY;
        INT(field);
        if (field >= 0) {
            if (field > end - p) {
                reason = FIELD;
                goto wrong;
            }
            p += field;
        } else if (field < -1) {
            reason = FIELD;
            goto wrong;
        }
        INT(headers);
        if (headers) {
            /* A header has two lengths at least. */
            if (headers < 0 || headers > (end - p) / 2) {
                reason = HEADERS;
                goto wrong;
            }
            for (; headers; headers--) {
                INT(field);
                if (field < 0 || field > end - p) {
                    reason = HEADER;
                    goto wrong;
                }
                p += field;
                INT(field);
                if (field < -1 || field > end - p) {
                    reason = HEADER;
                    goto wrong;
                }
                if (field > 0)
                    p += field;
            }
        }
        if (p != end) {
            reason = ENDS;
            goto wrong;
        }
        if (__builtin_add_overflow(base_timestamp, delta, &timestamp)) {
            reason = TIMESTAMP;
            goto wrong;
        }
        if (timestamp > max_timestamp)
            max_timestamp = timestamp;
        result->renumber |= offset_delta != i;
        if (!kind && (timestamp < earliest || timestamp > latest) && timestamp != -1)
            kind = OUT_OF_RANGE;
        if (kind) {
            if (kind == NO_KEY)
                result->without_key++;
            else
                result->out_of_range++;
            if (result->refused < MOST_REFUSED) {
                result->refused_record[result->refused] = i;
                result->refused_timestamp[result->refused] = timestamp;
                result->refused_kind[result->refused++] = (char)kind;
            }
        }
        /* Not p, though it is equal: so the processor begins the next record before it has finished this one. */
        start = end;
    }
    if (start != stop)
        reason = TRAILING;
wrong:
    result->reason = reason;
    result->record = i;
    result->position = start - data;
    result->max_timestamp = max_timestamp;
}

static PyObject *refused(const Result *result)
{
    PyObject *list = PyList_New(result->refused);
    int i;
    if (list == NULL)
        return NULL;
    for (i = 0; i < result->refused; i++) {
        PyObject *entry = Py_BuildValue("(LLi)", (long long)result->refused_record[i],
                                        (long long)result->refused_timestamp[i], (int)result->refused_kind[i]);
        if (entry == NULL || PyList_SetItem(list, i, entry) < 0) {
            Py_DECREF(list);
            return NULL;
        }
    }
    return list;
}

static PyObject *py_scan(PyObject *module, PyObject *args)
{
    Py_buffer view;
    Py_ssize_t start, end;
    long long first, count, base_timestamp, earliest, latest;
    int keys;
    Result result;
    PyObject *list;

    (void)module;
    if (!PyArg_ParseTuple(args, "y*nnLLLLLp", &view, &start, &end, &first, &count, &base_timestamp, &earliest,
                          &latest, &keys))
        return NULL;
    if (start < 0 || end < start || end > view.len || !PyBuffer_IsContiguous(&view, 'C')) {
        PyBuffer_Release(&view);
        PyErr_SetString(PyExc_ValueError, "scan() needs a range within the data");
        return NULL;
    }
    if (end - start <= QUICK_BYTES)
        scan((const uint8_t *)view.buf + start, end - start, first, count, base_timestamp, earliest, latest, keys,
             &result);
    else {
        Py_BEGIN_ALLOW_THREADS
        scan((const uint8_t *)view.buf + start, end - start, first, count, base_timestamp, earliest, latest, keys,
             &result);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&view);
    list = refused(&result);
    if (list == NULL)
        return NULL;
    return Py_BuildValue("(iLLLiLLN)", result.reason, (long long)result.record,
                         (long long)(result.position + start), (long long)result.max_timestamp, result.renumber,
                         (long long)result.without_key, (long long)result.out_of_range, list);
}

static PyMethodDef methods[] = {
    {"scan", py_scan, METH_VARARGS,
     "scan(data, start, end, first, count, base_timestamp, earliest, latest, keys): see scan.py"},
    {NULL, NULL, 0, NULL},
};

static int prepare(PyObject *module)
{
    return PyModule_AddIntConstant(module, "INTERFACE", INTERFACE);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, prepare}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_scan", "Checks the records of a batch.", 0, methods, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__scan(void)
{
    return PyModuleDef_Init(&definition);
}
