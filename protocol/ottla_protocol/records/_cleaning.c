/* The compiled twin of offset_map.py and of the loops over records in work.py and filter.py, all of the broker's cleaner,
 * which say what is done and why; a test holds the two to the same bytes.
 *
 * It handles whole batches of format 2 that are neither compressed, transactional nor control batches. It stops at any
 * other, and at one that is damaged, which the Python code then handles or refuses. The GIL is released while
 * records are read.
 */
#include "engine.h"
#include <structmember.h>

#include "cleaning.h"

static int map_init(PyObject *self, PyObject *args, PyObject *keywords)
{
    OffsetMap *map = (OffsetMap *)self;
    Py_buffer secret;
    long long slots, first;
    double load_factor;
    (void)keywords;
    if (!PyArg_ParseTuple(args, "LLdy*", &slots, &first, &load_factor, &secret))
        return -1;
    if (slots < 2 || first < 2 || secret.len != 16 || map->entries) {
        PyBuffer_Release(&secret);
        PyErr_SetString(PyExc_ValueError, "OffsetMap() needs two slots and a secret of 16 bytes");
        return -1;
    }
    map->key0 = little64(secret.buf);
    map->key1 = little64((const uint8_t *)secret.buf + 8);
    PyBuffer_Release(&secret);
    map->most_slots = prime_at_most(slots);
    map->load_factor = load_factor;
    map->latest = -1;
    if (allocate(map, first) != END) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

static void map_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    free(((OffsetMap *)self)->entries);
    release(self);
    Py_DECREF(type);
}

static Py_ssize_t map_length(PyObject *self)
{
    return (Py_ssize_t)((OffsetMap *)self)->count;
}

static PyObject *map_put(PyObject *self, PyObject *args)
{
    OffsetMap *map = (OffsetMap *)self;
    Py_buffer key;
    long long offset;
    int result;
    if (!PyArg_ParseTuple(args, "y*L", &key, &offset))
        return NULL;
    result = put(map, hash_key(map, key.buf, key.len), offset);
    PyBuffer_Release(&key);
    if (result == NO_MEMORY)
        return PyErr_NoMemory();
    if (result == END)
        map->latest = offset;
    return PyBool_FromLong(result == END);
}

static PyObject *map_get(PyObject *self, PyObject *args)
{
    OffsetMap *map = (OffsetMap *)self;
    Py_buffer key;
    int64_t next;
    if (!PyArg_ParseTuple(args, "y*", &key))
        return NULL;
    next = find(map, hash_key(map, key.buf, key.len))->next;
    PyBuffer_Release(&key);
    return PyLong_FromLongLong(next - 1);
}

static PyObject *map_hash(PyObject *self, PyObject *args)
{
    Py_buffer key;
    Hash hash;
    if (!PyArg_ParseTuple(args, "y*", &key))
        return NULL;
    hash = hash_key((OffsetMap *)self, key.buf, key.len);
    PyBuffer_Release(&key);
    return Py_BuildValue("(KK)", (unsigned long long)hash.first, (unsigned long long)hash.second);
}

static PyObject *map_seen_up_to(PyObject *self, PyObject *args)
{
    OffsetMap *map = (OffsetMap *)self;
    long long offset;
    if (!PyArg_ParseTuple(args, "L", &offset))
        return NULL;
    if (offset > map->latest)
        map->latest = offset;
    Py_RETURN_NONE;
}

static int in_range(const Py_buffer *view, Py_ssize_t start)
{
    if (start >= 0 && start <= view->len && PyBuffer_IsContiguous(view, 'C'))
        return 1;
    PyErr_SetString(PyExc_ValueError, "a position outside the data");
    return 0;
}

static PyObject *map_read_keys(PyObject *self, PyObject *args)
{
    Py_buffer view;
    Py_ssize_t start;
    long long first_dirty;
    int64_t position;
    int why;
    if (!PyArg_ParseTuple(args, "y*nL", &view, &start, &first_dirty))
        return NULL;
    if (!in_range(&view, start)) {
        PyBuffer_Release(&view);
        return NULL;
    }
    position = start;
    Py_BEGIN_ALLOW_THREADS
    why = read_keys((OffsetMap *)self, view.buf, view.len, &position, first_dirty);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&view);
    return why == NO_MEMORY ? PyErr_NoMemory() : Py_BuildValue("(ni)", (Py_ssize_t)position, why);
}

static PyObject *map_read_body(PyObject *self, PyObject *args)
{
    OffsetMap *map = (OffsetMap *)self;
    Py_buffer view;
    long long count, base, first_dirty;
    int why;
    if (!PyArg_ParseTuple(args, "y*LLL", &view, &count, &base, &first_dirty))
        return NULL;
    if (!in_range(&view, 0)) {
        PyBuffer_Release(&view);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    why = base < 0 || base > MOST_OFFSET ? OTHER : put_all(map, view.buf, view.len, count, base, first_dirty);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&view);
    return why == NO_MEMORY ? PyErr_NoMemory() : PyLong_FromLong(why);
}

static PyObject *map_filter(PyObject *self, PyObject *args)
{
    Py_buffer view, last_offsets;
    Py_ssize_t start;
    long long now_ms, delete_retention_ms, round_end, interval;
    int64_t position;
    int why;
    Rules rules;
    Filtered result;
    PyObject *found = NULL;
    if (!PyArg_ParseTuple(args, "y*nLLLLy*", &view, &start, &now_ms, &delete_retention_ms, &round_end, &interval,
                          &last_offsets))
        return NULL;
    memset(&result, 0, sizeof result);
    if (!in_range(&view, start) || !in_range(&last_offsets, 0))
        goto done;
    rules.now_ms = now_ms;
    rules.delete_retention_ms = delete_retention_ms;
    rules.round_end = round_end;
    rules.interval = interval;
    rules.last_offsets = last_offsets.buf;
    rules.last_offsets_count = last_offsets.len / 8;
    position = start;
    Py_BEGIN_ALLOW_THREADS
    why = filter((OffsetMap *)self, view.buf, view.len, &position, &rules, &result);
    Py_END_ALLOW_THREADS
    if (why == NO_MEMORY)
        PyErr_NoMemory();
    else if (result.changed)
        found = Py_BuildValue("(niLLLy#y#)", (Py_ssize_t)position, why, (long long)result.records_read,
                              (long long)result.records_kept, (long long)result.keyless,
                              result.runs.size ? (char *)result.runs.bytes : "", (Py_ssize_t)result.runs.size,
                              result.out.size ? (char *)result.out.bytes : "", (Py_ssize_t)result.out.size);
    else
        found = Py_BuildValue("(niLLLy#O)", (Py_ssize_t)position, why, (long long)result.records_read,
                              (long long)result.records_kept, (long long)result.keyless,
                              result.runs.size ? (char *)result.runs.bytes : "", (Py_ssize_t)result.runs.size, Py_None);
done:
    free(result.choice.stays.bytes);
    free(result.runs.bytes);
    free(result.out.bytes);
    PyBuffer_Release(&view);
    PyBuffer_Release(&last_offsets);
    return found;
}

static PyObject *map_filter_body(PyObject *self, PyObject *args)
{
    OffsetMap *map = (OffsetMap *)self;
    Py_buffer view;
    long long count, base, base_timestamp, horizon;
    int tombstones_go, why, moved = 0;
    Buffer out = {NULL, 0, 0};
    Choice choice;
    PyObject *found = NULL;
    if (!PyArg_ParseTuple(args, "y*LLLpL", &view, &count, &base, &base_timestamp, &tombstones_go, &horizon))
        return NULL;
    memset(&choice, 0, sizeof choice);
    if (!in_range(&view, 0))
        goto done;
    Py_BEGIN_ALLOW_THREADS
    why = base < 0 || base > MOST_OFFSET
              ? OTHER
              : choose(map, view.buf, view.len, count, base, base_timestamp, tombstones_go, &choice);
    if (why == END) {
        moved = choice.tombstones && horizon >= 0;
        if (choice.kept < count || moved)
            why = append_records(&out, view.buf, &choice,
                                 moved ? (int64_t)((uint64_t)base_timestamp - (uint64_t)horizon) : 0);
    }
    Py_END_ALLOW_THREADS
    if (why == NO_MEMORY)
        PyErr_NoMemory();
    else if (why == OTHER)
        found = Py_NewRef(Py_None);
    else
        found = Py_BuildValue("(LLLiy#)", (long long)choice.kept, (long long)choice.keyless,
                              (long long)choice.max_timestamp, moved, out.size ? (char *)out.bytes : "",
                              (Py_ssize_t)out.size);
done:
    free(choice.stays.bytes);
    free(out.bytes);
    PyBuffer_Release(&view);
    return found;
}

static PyMethodDef map_methods[] = {
    {"put", map_put, METH_VARARGS, "put(key, offset) -> bool"},
    {"get", map_get, METH_VARARGS, "get(key) -> offset"},
    {"hash", map_hash, METH_VARARGS, "hash(key) -> two numbers of 64 bits"},
    {"seen_up_to", map_seen_up_to, METH_VARARGS, "seen_up_to(offset)"},
    {"read_keys", map_read_keys, METH_VARARGS, "read_keys(data, start, first_dirty) -> position, why"},
    {"read_body", map_read_body, METH_VARARGS, "read_body(body, count, base_offset, first_dirty) -> why"},
    {"filter", map_filter, METH_VARARGS,
     "filter(data, start, now_ms, delete_retention_ms, round_end, interval, last_offsets)"
     " -> position, why, records read, records kept, records without a key, runs, output"},
    {"filter_body", map_filter_body, METH_VARARGS,
     "filter_body(body, count, base_offset, base_timestamp, tombstones_go, horizon)"
     " -> None, or kept, records without a key, max_timestamp, moved, body"},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef map_members[] = {
    {"latest_offset", T_LONGLONG, offsetof(OffsetMap, latest), 0, NULL},
    {"slots", T_LONGLONG, offsetof(OffsetMap, slots), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot map_slots[] = {
    {Py_tp_init, map_init},       {Py_tp_dealloc, map_dealloc}, {Py_sq_length, map_length},
    {Py_tp_methods, map_methods}, {Py_tp_members, map_members}, {0, NULL},
};

static PyType_Spec map_spec = {
    "ottla_protocol.records._records.OffsetMap", sizeof(OffsetMap), 0, Py_TPFLAGS_DEFAULT, map_slots,
};

int add_cleaning(PyObject *module)
{
    return add_type(module, &map_spec);
}
