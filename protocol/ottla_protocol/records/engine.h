/* What the C files of the module share. */
#pragma once
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

int add_type(PyObject *module, PyType_Spec *spec);
int add_messages(PyObject *module);
int add_recovery(PyObject *module);
int add_cleaning(PyObject *module);
