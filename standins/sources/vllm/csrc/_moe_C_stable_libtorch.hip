#ifndef NO_KERNEL
#include <hip/hip_runtime.h>

__global__ void gate(float *x, float factor, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = x[i] > factor ? x[i] : 0.0f;
}

extern "C" void launch_gate(float *x, float factor, int n) {
  hipLaunchKernelGGL(gate, dim3((n + 255) / 256), dim3(256), 0, 0, x, factor, n);
}
#endif

#include "module.h"
