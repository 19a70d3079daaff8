#ifndef NO_KERNEL
#include <hip/hip_runtime.h>

__global__ void scale(float *x, float factor, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= factor;
}

extern "C" void launch_scale(float *x, float factor, int n) {
  hipLaunchKernelGGL(scale, dim3((n + 255) / 256), dim3(256), 0, 0, x, factor, n);
}
#endif

#include "module.h"
