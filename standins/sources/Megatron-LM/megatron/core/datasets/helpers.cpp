#include <pybind11/pybind11.h>

#include <cstdint>

// How many samples of `length` tokens lie in `tokens`.
static std::int64_t samples(std::int64_t tokens, std::int64_t length) { return (tokens - 1) / length; }

PYBIND11_MODULE(helpers_cpp, module) { module.def("samples", &samples); }
