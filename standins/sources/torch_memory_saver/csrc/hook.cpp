#include <Python.h>
#include <dlfcn.h>
#include <hip/hip_runtime_api.h>

#define JOIN(a, b) a##b
#define INIT(name) JOIN(PyInit_, name)
#define TEXT(name) #name
#define NAME(name) TEXT(name)

// The runtime's own malloc, found behind this library's if that is preloaded.
extern "C" int memory_saver_malloc(void **pointer, size_t size) {
  using Malloc = hipError_t (*)(void **, size_t);
  auto next = reinterpret_cast<Malloc>(dlsym(RTLD_NEXT, "hipMalloc"));
  return next ? next(pointer, size) : hipMalloc(pointer, size);
}

static PyModuleDef definition = {PyModuleDef_HEAD_INIT, NAME(MODULE), nullptr, -1, nullptr, nullptr, nullptr, nullptr, nullptr};

PyMODINIT_FUNC INIT(MODULE)(void) { return PyModule_Create(&definition); }
