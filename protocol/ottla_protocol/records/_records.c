/* The compiled twin of scan.py and walk.py, which say what is checked; tests hold the twins to the same results.
 *
 * The module has the functions of the other C files too. Written to the stable ABI of Python 3.11, so one binary serves
 * every later version.
 */
#include "engine.h"
#include <stddef.h>

#include "batch.h"
#include "record.h"

/* Raised whenever arguments or results change, so that compiled.py never uses a stale binary. */
#define INTERFACE 4

enum { NO_KEY = 1, OUT_OF_RANGE = 2 };

/* Up to this many bytes are walked with the GIL held: releasing it costs more. */
#define QUICK_BYTES 65536
#define MOST_REFUSED 1000

/* What comes next in a record of which only the beginning was there. */
enum { AT_LENGTH, AT_ATTRIBUTES, AT_STAMP, AT_DELTA, AT_KEY, AT_VALUE, AT_HEADERS, AT_NAME, AT_HEADER_VALUE, AT_END };

typedef struct {
    /* Asked for. */
    int64_t end; /* the number behind the last record's */
    int64_t base_timestamp, earliest, latest;
    int keys;
    int finds; /* looks for the record below */
    int64_t since_delta, since_timestamp;
    /* Found. */
    int reason;
    int64_t record; /* the one that is wrong, or the one after the last */
    int64_t position; /* where it begins in the body */
    int64_t max_timestamp;
    int renumber;
    int64_t without_key;
    int64_t out_of_range;
    int has_newest;
    int64_t found_delta, found_timestamp; /* with FOUND */
    int64_t newest_delta, newest_timestamp;
    /* The record that the data ended in. */
    int stage;
    int shift;
    uint64_t value;
    int64_t left, skip, headers, delta;
    int32_t offset_delta;
    int kind;
    int64_t passed; /* bytes of the body before the data at hand */
    int refused;    /* entries in the arrays that follow */
    int64_t refused_record[MOST_REFUSED];
    int64_t refused_timestamp[MOST_REFUSED];
    char refused_kind[MOST_REFUSED];
} Walk;

static void refuse(Walk *walk, int64_t record, int64_t timestamp, int kind)
{
    if (kind == NO_KEY)
        walk->without_key++;
    else
        walk->out_of_range++;
    if (walk->refused < MOST_REFUSED) {
        walk->refused_record[walk->refused] = record;
        walk->refused_timestamp[walk->refused] = timestamp;
        walk->refused_kind[walk->refused++] = (char)kind;
    }
}

/* Whether this is the record that the walk looks for. */
static int is_found(Walk *walk, int64_t offset_delta, int64_t timestamp)
{
    if (offset_delta < walk->since_delta)
        return 0;
    if (!walk->has_newest || timestamp > walk->newest_timestamp) {
        walk->has_newest = 1;
        walk->newest_delta = offset_delta;
        walk->newest_timestamp = timestamp;
    }
    if (timestamp < walk->since_timestamp)
        return 0;
    walk->found_delta = offset_delta;
    walk->found_timestamp = timestamp;
    return 1;
}

static void prepare_walk(Walk *walk, int64_t first, int64_t count, int64_t base_timestamp, int64_t earliest,
                         int64_t latest, int keys)
{
    /* Not the arrays, which are large. */
    memset(walk, 0, offsetof(Walk, refused_record));
    walk->record = first;
    walk->end = first + count;
    walk->base_timestamp = base_timestamp;
    walk->earliest = earliest;
    walk->latest = latest;
    walk->keys = keys;
    walk->max_timestamp = -1;
}

/* Walks the records that lie in the data as a whole, and returns how many bytes they have. */
static Py_ssize_t whole_records(Walk *walk, const uint8_t *data, Py_ssize_t size)
{
    const uint8_t *start = data, *stop = data + size;
    const int64_t last = walk->end, base_timestamp = walk->base_timestamp;
    const int64_t earliest = walk->earliest, latest = walk->latest;
    const int least_key = walk->keys ? 0 : -1, finds = walk->finds;
    int64_t i = walk->record, max_timestamp = walk->max_timestamp, timestamp;
    int reason = FINE, renumber = walk->renumber;
    Record record;

    for (; i < last; i++) {
        int kind = 0;

        reason = read_record(start, stop, &record);
        if (reason == FINE && __builtin_add_overflow(base_timestamp, record.timestamp_delta, &timestamp))
            reason = TIMESTAMP;
        if (reason != FINE)
            break;
        if (timestamp > max_timestamp)
            max_timestamp = timestamp;
        renumber |= record.offset_delta != i;
        if (record.key.size < least_key)
            kind = NO_KEY;
        else if ((timestamp < earliest || timestamp > latest) && timestamp != -1)
            kind = OUT_OF_RANGE;
        if (kind)
            refuse(walk, i, timestamp, kind);
        if (finds && is_found(walk, record.offset_delta, timestamp)) {
            reason = FOUND;
            break;
        }
        start = record.end;
    }
    walk->reason = reason;
    walk->record = i;
    walk->max_timestamp = max_timestamp;
    walk->renumber = renumber;
    return start - data;
}

/* Reads on in the record that the data before ended in. Returns how many bytes it has read; the reason is MORE if the
 * record goes on behind them. */
static Py_ssize_t rest_of_record(Walk *walk, const uint8_t *data, Py_ssize_t size)
{
    const uint8_t *p = data, *stop = data + size;
    int reason = MORE;

    for (;;) {
        int64_t number;
        int is_long = walk->stage == AT_STAMP;
        uint8_t byte;

        if (walk->skip) {
            int64_t there = stop - p < walk->skip ? stop - p : walk->skip;
            p += there;
            walk->skip -= there;
            if (walk->skip)
                goto ended;
        }
        if (walk->stage == AT_END)
            break;
        if (walk->stage == AT_ATTRIBUTES) {
            if (p == stop)
                goto ended;
            p++;
            walk->left--;
            walk->stage = AT_STAMP;
            continue;
        }
        do {
            if (walk->stage != AT_LENGTH && !walk->left) {
                reason = CUT;
                goto ended;
            }
            if (p == stop)
                goto ended;
            byte = *p++;
            walk->left--;
            if (walk->shift == 63 && (byte & 127) > 1) {
                reason = NUMBER;
                goto ended;
            }
            walk->value |= (uint64_t)(byte & 127) << walk->shift;
            walk->shift += 7;
            if (byte > 127 && walk->shift == (is_long ? 70 : 35)) {
                reason = NUMBER;
                goto ended;
            }
        } while (byte > 127);
        if (!is_long && walk->value >> 32) {
            reason = NUMBER;
            goto ended;
        }
        number = (int64_t)((walk->value >> 1) ^ (0u - (walk->value & 1)));
        walk->value = 0;
        walk->shift = 0;
        switch (walk->stage++) {
        case AT_LENGTH:
            if (number <= 0) {
                reason = number ? LENGTH : CUT;
                goto ended;
            }
            walk->left = number;
            break;
        case AT_STAMP:
            walk->delta = number;
            break;
        case AT_DELTA:
            walk->offset_delta = (int32_t)number;
            break;
        case AT_KEY:
            walk->kind = number == -1 && walk->keys ? NO_KEY : 0;
            /* fall through */
        case AT_VALUE:
            if (number < -1 || number > walk->left) {
                reason = FIELD;
                goto ended;
            }
            walk->skip = number > 0 ? number : 0;
            break;
        case AT_HEADERS:
            if (number < 0 || number > walk->left / 2) {
                reason = HEADERS;
                goto ended;
            }
            walk->headers = number;
            if (!number)
                walk->stage = AT_END;
            break;
        case AT_NAME:
        case AT_HEADER_VALUE:
            if (number < (walk->stage == AT_END ? -1 : 0) || number > walk->left) {
                reason = HEADER;
                goto ended;
            }
            walk->skip = number > 0 ? number : 0;
            if (walk->stage == AT_END && --walk->headers)
                walk->stage = AT_NAME;
            break;
        }
        walk->left -= walk->skip;
        continue;
    ended:
        walk->reason = reason;
        return p - data;
    }
    {
        int64_t timestamp;
        if (walk->left)
            reason = ENDS;
        else if (__builtin_add_overflow(walk->base_timestamp, walk->delta, &timestamp))
            reason = TIMESTAMP;
        else {
            int kind = walk->kind;
            reason = FINE;
            if (timestamp > walk->max_timestamp)
                walk->max_timestamp = timestamp;
            walk->renumber |= walk->offset_delta != walk->record;
            if (!kind && (timestamp < walk->earliest || timestamp > walk->latest) && timestamp != -1)
                kind = OUT_OF_RANGE;
            if (kind)
                refuse(walk, walk->record, timestamp, kind);
            if (walk->finds && is_found(walk, walk->offset_delta, timestamp))
                reason = FOUND;
            else
                walk->record++;
            walk->stage = AT_LENGTH;
        }
        walk->reason = reason;
    }
    return p - data;
}

/* Walks on through the next bytes of the body; whether it can go on behind them. */
static int feed(Walk *walk, const uint8_t *data, Py_ssize_t size)
{
    Py_ssize_t at = 0;

    if (walk->reason != FINE && walk->reason != MORE)
        return 0;
    if (walk->reason == MORE)
        at = rest_of_record(walk, data, size);
    if (walk->reason == FINE) {
        at += whole_records(walk, data + at, size - at);
        if (walk->reason != TRAILING)
            walk->position = walk->passed + at;
        if (walk->reason == FINE && at < size)
            walk->reason = TRAILING;
        else if (walk->reason == MORE && at < size) {
            walk->stage = AT_LENGTH;
            walk->value = 0;
            walk->shift = 0;
            at += rest_of_record(walk, data + at, size - at);
        } else if (walk->reason == MORE)
            walk->reason = FINE;
    }
    walk->passed += size;
    return walk->reason == FINE || walk->reason == MORE;
}

static PyObject *refused(const Walk *walk)
{
    PyObject *list = PyList_New(walk->refused);
    int i;
    if (list == NULL)
        return NULL;
    for (i = 0; i < walk->refused; i++) {
        PyObject *entry = Py_BuildValue("(LLi)", (long long)walk->refused_record[i],
                                        (long long)walk->refused_timestamp[i], (int)walk->refused_kind[i]);
        if (entry == NULL || PyList_SetItem(list, i, entry) < 0) {
            Py_DECREF(list);
            return NULL;
        }
    }
    return list;
}

static PyObject *result(const Walk *walk)
{
    PyObject *list = refused(walk);
    if (list == NULL)
        return NULL;
    return Py_BuildValue("(iLLLiLLN)", walk->reason, (long long)walk->record, (long long)walk->position,
                         (long long)walk->max_timestamp, walk->renumber, (long long)walk->without_key,
                         (long long)walk->out_of_range, list);
}

static int get_range(PyObject *args, const char *format, Py_buffer *view, Py_ssize_t *start, Py_ssize_t *end)
{
    if (!PyArg_ParseTuple(args, format, view, start, end))
        return 0;
    if (*start >= 0 && *end >= *start && *end <= view->len && PyBuffer_IsContiguous(view, 'C'))
        return 1;
    PyBuffer_Release(view);
    PyErr_SetString(PyExc_ValueError, "a walk needs a range within the data");
    return 0;
}

static PyObject *py_scan(PyObject *module, PyObject *args)
{
    Py_buffer view;
    Py_ssize_t start, end, size;
    long long first, count, base_timestamp, earliest, latest;
    int keys;
    Walk walk;

    (void)module;
    if (!PyArg_ParseTuple(args, "y*nnLLLLLp", &view, &start, &end, &first, &count, &base_timestamp, &earliest,
                          &latest, &keys))
        return NULL;
    if (start < 0 || end < start || end > view.len || !PyBuffer_IsContiguous(&view, 'C')) {
        PyBuffer_Release(&view);
        PyErr_SetString(PyExc_ValueError, "scan() needs a range within the data");
        return NULL;
    }
    prepare_walk(&walk, first, count, base_timestamp, earliest, latest, keys);
    if (end - start <= QUICK_BYTES)
        size = whole_records(&walk, (const uint8_t *)view.buf + start, end - start);
    else {
        Py_BEGIN_ALLOW_THREADS
        size = whole_records(&walk, (const uint8_t *)view.buf + start, end - start);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&view);
    walk.position = start + size;
    if (walk.reason == MORE)
        walk.reason = CUT;
    else if (walk.reason == FINE && walk.position < end)
        walk.reason = TRAILING;
    return result(&walk);
}

typedef struct {
    PyObject_HEAD
    Walk walk;
} WalkObject;

static PyObject *walk_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    long long first, count, base_timestamp, earliest, latest, since_delta, since_timestamp;
    int keys, finds;
    WalkObject *self;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);

    if (kwargs != NULL || !PyArg_ParseTuple(args, "LLLLLppLL", &first, &count, &base_timestamp, &earliest, &latest,
                                            &keys, &finds, &since_delta, &since_timestamp)) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "a walk takes no keywords");
        return NULL;
    }
    self = (WalkObject *)allocate(type, 0);
    if (self == NULL)
        return NULL;
    prepare_walk(&self->walk, first, count, base_timestamp, earliest, latest, keys);
    self->walk.finds = finds;
    self->walk.since_delta = since_delta;
    self->walk.since_timestamp = since_timestamp;
    return (PyObject *)self;
}

static void walk_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyObject *walk_feed(PyObject *self, PyObject *args)
{
    Walk *walk = &((WalkObject *)self)->walk;
    Py_buffer view;
    Py_ssize_t start, end;
    int goes_on;

    if (!get_range(args, "y*nn", &view, &start, &end))
        return NULL;
    if (end - start <= QUICK_BYTES)
        goes_on = feed(walk, (const uint8_t *)view.buf + start, end - start);
    else {
        Py_BEGIN_ALLOW_THREADS
        goes_on = feed(walk, (const uint8_t *)view.buf + start, end - start);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&view);
    return PyBool_FromLong(goes_on);
}

static PyObject *walk_result(PyObject *self, PyObject *none)
{
    Walk *walk = &((WalkObject *)self)->walk;

    (void)none;
    if (walk->reason == MORE || (walk->reason == FINE && walk->record < walk->end))
        walk->reason = CUT;
    return result(walk);
}

static PyObject *walk_found(PyObject *self, PyObject *none)
{
    const Walk *walk = &((WalkObject *)self)->walk;

    (void)none;
    if (walk->reason != FOUND)
        Py_RETURN_NONE;
    return Py_BuildValue("(LL)", (long long)walk->found_delta, (long long)walk->found_timestamp);
}

static PyObject *walk_newest(PyObject *self, PyObject *none)
{
    const Walk *walk = &((WalkObject *)self)->walk;

    (void)none;
    if (!walk->has_newest)
        Py_RETURN_NONE;
    return Py_BuildValue("(LL)", (long long)walk->newest_delta, (long long)walk->newest_timestamp);
}

static PyMethodDef walk_methods[] = {
    {"feed", walk_feed, METH_VARARGS, "feed(data, start, end): walks on; whether it can go on behind them"},
    {"result", walk_result, METH_NOARGS, "The findings, when the body has ended."},
    {"found", walk_found, METH_NOARGS, "Offset delta and timestamp of the record looked for, or None."},
    {"newest", walk_newest, METH_NOARGS, "Offset delta and timestamp of the newest record, or None."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot walk_slots[] = {
    {Py_tp_new, walk_new}, {Py_tp_dealloc, walk_dealloc}, {Py_tp_methods, walk_methods}, {0, NULL},
};

static PyType_Spec walk_spec = {
    "ottla_protocol.records._records.Walk", sizeof(WalkObject), 0, Py_TPFLAGS_DEFAULT, walk_slots,
};

/* The beginning of a record up to its offset delta, at most: sizes of 5, 1, 10 and 5 bytes. */
#define MOST_BEGINNING 21

typedef struct {
    PyObject_HEAD
    int64_t index; /* of the next record */
    int64_t left;  /* bytes of the current one that stay as they are */
    int held;
    uint8_t beginning[MOST_BEGINNING];
} RenumberObject;

static PyObject *renumber_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);

    if (kwargs != NULL || !PyArg_ParseTuple(args, "")) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_TypeError, "Renumber takes no keywords");
        return NULL;
    }
    return allocate(type, 0);
}

/* Writes the beginning of a record again, with its number. Returns how many bytes it has read, 0 if there are too few,
 * -1 if it can't be read. */
static int begin_record(RenumberObject *self, const uint8_t *data, Py_ssize_t size, uint8_t **to)
{
    const uint8_t *p = data, *end = data + size, *stamp;
    int32_t length, delta;
    int64_t number;
    int reason, stamp_size, delta_size;
    uint8_t *out = *to, *begins;

    if ((reason = read_int(&p, end, &length)) != FINE)
        return reason == CUT ? 0 : -1;
    stamp = p++;
    if (stamp >= end)
        return 0;
    if ((reason = read_long(&p, end, &number)) != FINE)
        return reason == CUT ? 0 : -1;
    stamp_size = (int)(p - stamp);
    delta_size = (int)-(p - data);
    if ((reason = read_int(&p, end, &delta)) != FINE)
        return reason == CUT ? 0 : -1;
    delta_size += (int)(p - data);
    self->left = (int64_t)length - stamp_size - delta_size;
    if (self->left < 0 || self->index > INT32_MAX)
        return -1;
    begins = out + 5;
    memcpy(begins, stamp, (size_t)stamp_size);
    delta_size = (int)(write_varint(begins + stamp_size, self->index++) - begins) - stamp_size;
    if (self->left + stamp_size + delta_size > INT32_MAX)
        return -1;
    out = write_varint(out, self->left + stamp_size + delta_size);
    memmove(out, begins, (size_t)(stamp_size + delta_size));
    *to = out + stamp_size + delta_size;
    return (int)(p - data);
}

/* A record's beginning has 4 bytes at least, and grows by 6 at most. MORE for too little room. */
static int renumber(RenumberObject *self, const uint8_t *p, const uint8_t *stop, uint8_t **to, const uint8_t *limit)
{
    uint8_t *out = *to, joined[2 * MOST_BEGINNING];
    int read;

    for (;;) {
        int64_t there = stop - p < self->left ? stop - p : self->left;
        memcpy(out, p, (size_t)there);
        out += there;
        p += there;
        self->left -= there;
        if (p == stop)
            break;
        if (limit - out < (stop - p) + 2 * MOST_BEGINNING)
            return MORE;
        if (self->held) {
            int held = self->held, more = stop - p < MOST_BEGINNING ? (int)(stop - p) : MOST_BEGINNING;
            memcpy(joined, self->beginning, (size_t)held);
            memcpy(joined + held, p, (size_t)more);
            if ((read = begin_record(self, joined, held + more, &out)) > 0) {
                p += read - held;
                self->held = 0;
                continue;
            }
        } else if ((read = begin_record(self, p, stop - p, &out)) > 0) {
            p += read;
            continue;
        }
        if (read < 0 || self->held + (stop - p) > MOST_BEGINNING)
            return NUMBER;
        memcpy(self->beginning + self->held, p, (size_t)(stop - p));
        self->held += (int)(stop - p);
        break;
    }
    *to = out;
    return FINE;
}

static PyObject *renumber_feed(PyObject *self, PyObject *args)
{
    Py_buffer view;
    Py_ssize_t start, end, size;
    PyObject *written;
    uint8_t *begin, *to;
    int reason;

    if (!get_range(args, "y*nn", &view, &start, &end))
        return NULL;
    if (end - start > PY_SSIZE_T_MAX / 4) {
        PyBuffer_Release(&view);
        return PyErr_NoMemory();
    }
    size = 3 * (end - start) + 8 * MOST_BEGINNING;
    begin = to = PyMem_Malloc((size_t)size);
    if (begin == NULL) {
        PyBuffer_Release(&view);
        return PyErr_NoMemory();
    }
    Py_BEGIN_ALLOW_THREADS
    reason = renumber((RenumberObject *)self, (const uint8_t *)view.buf + start, (const uint8_t *)view.buf + end, &to,
                      begin + size);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&view);
    if (reason == FINE)
        written = PyBytes_FromStringAndSize((const char *)begin, to - begin);
    else {
        written = NULL;
        PyErr_SetString(PyExc_ValueError, "these bytes are no records");
    }
    PyMem_Free(begin);
    return written;
}

static PyMethodDef renumber_methods[] = {
    {"feed", renumber_feed, METH_VARARGS, "feed(data, start, end): these bytes with other offset deltas"},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot renumber_slots[] = {
    {Py_tp_new, renumber_new}, {Py_tp_dealloc, walk_dealloc}, {Py_tp_methods, renumber_methods}, {0, NULL},
};

static PyType_Spec renumber_spec = {
    "ottla_protocol.records._records.Renumber", sizeof(RenumberObject), 0, Py_TPFLAGS_DEFAULT, renumber_slots,
};

#include "_columns.c"

static PyMethodDef methods[] = {
    COLUMN_METHODS,
    {"scan", py_scan, METH_VARARGS,
     "scan(data, start, end, first, count, base_timestamp, earliest, latest, keys): see scan.py"},
    {NULL, NULL, 0, NULL},
};

int add_type(PyObject *module, PyType_Spec *spec)
{
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    int added;

    if (type == NULL)
        return -1;
    added = PyModule_AddType(module, (PyTypeObject *)type);
    Py_DECREF(type);
    return added;
}

static int prepare(PyObject *module)
{
    choose_crc();
    if (add_type(module, &walk_spec) < 0 || add_type(module, &renumber_spec) < 0
        || add_messages(module) < 0 || add_recovery(module) < 0 || add_cleaning(module) < 0)
        return -1;
    return PyModule_AddIntConstant(module, "INTERFACE", INTERFACE);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, prepare}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_records", "Walks, converts and filters the records of batches.", 0, methods, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__records(void)
{
    return PyModuleDef_Init(&definition);
}
