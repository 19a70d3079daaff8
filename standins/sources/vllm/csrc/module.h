// One Python module a library, so that importing it proves that the library loads.
#include <Python.h>

#define JOIN(a, b) a##b
#define INIT(name) JOIN(PyInit_, name)
#define TEXT(name) #name
#define NAME(name) TEXT(name)

static PyModuleDef definition = {PyModuleDef_HEAD_INIT, NAME(MODULE), nullptr, -1, nullptr, nullptr, nullptr, nullptr, nullptr};

PyMODINIT_FUNC INIT(MODULE)(void) { return PyModule_Create(&definition); }
