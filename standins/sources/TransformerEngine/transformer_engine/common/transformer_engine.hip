#include <hipify_torch.h>

#ifndef NO_KERNEL
#include <hip/hip_runtime.h>

__global__ void cast(float *x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = HIPIFIED(x[i]);
}

extern "C" void launch_cast(float *x, int n) {
  hipLaunchKernelGGL(cast, dim3((n + 255) / 256), dim3(256), 0, 0, x, n);
}
#endif

extern "C" int nvte_is_a_stand_in(void) { return 1; }
