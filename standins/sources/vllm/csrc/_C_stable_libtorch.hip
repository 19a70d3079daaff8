#ifndef NO_KERNEL
#include <hip/hip_runtime.h>

__global__ void halve(float *x, float factor, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= 0.5f * factor;
}

extern "C" void launch_halve(float *x, float factor, int n) {
  hipLaunchKernelGGL(halve, dim3((n + 255) / 256), dim3(256), 0, 0, x, factor, n);
}
#endif

#include "module.h"
