/* What the GPU is, and modules and kernels, of which none runs. */

#include "fake.h"
#include <stdio.h>
#include <stdlib.h>

__thread void *current;
static int initialized;
static char device_context, module, function;

void fail(const char *what) {
    fprintf(stderr, "fake CUDA driver: %s\n", what);
    abort();
}

CUresult cuInit(unsigned flags) {
    initialized = 1;
    return flags ? INVALID_VALUE : SUCCESS;
}

CUresult cuDriverGetVersion(int *version) {
    *version = 13000;
    return SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char **name) {
    *name = error == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR";
    return SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char **text) {
    *text = error == OUT_OF_MEMORY ? "out of memory" : error == NOT_SUPPORTED ? "operation not supported" : "an error";
    return SUCCESS;
}

CUresult cuDeviceGetCount(int *count) {
    *count = 1;
    return initialized ? SUCCESS : NOT_INITIALIZED;
}

CUresult cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return ordinal == 0 ? SUCCESS : INVALID_DEVICE;
}

CUresult cuDeviceGetName(char *name, int bytes, int device) {
    (void)device;
    snprintf(name, (size_t)bytes, "fake GPU");
    return SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, int attribute, int device) {
    (void)device;
    switch (attribute) {
        case 16: *value = 16; return SUCCESS;     /* multiprocessors */
        case 18: *value = 0; return SUCCESS;      /* integrated */
        case 75: *value = 9; return SUCCESS;      /* compute capability */
        case 76: *value = 0; return SUCCESS;
        case 97: *value = 232448; return SUCCESS; /* shared memory of a block */
        default: return INVALID_VALUE;
    }
}

CUresult cuDeviceGetPCIBusId(char *id, int bytes, int device) {
    (void)device;
    snprintf(id, (size_t)bytes, "0000:ff:1f.7");
    return SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(void **context, int device) {
    *context = &device_context;
    return device == 0 ? SUCCESS : INVALID_DEVICE;
}

CUresult cuDevicePrimaryCtxRelease_v2(int device) {
    return device == 0 ? SUCCESS : INVALID_DEVICE;
}

CUresult cuCtxSetCurrent(void *context) {
    current = context;
    return SUCCESS;
}

/* Any image is taken for a module, and any name is a kernel's. */
CUresult cuModuleLoadData(void **handle, const void *image) {
    *handle = &module;
    return image ? SUCCESS : INVALID_VALUE;
}

CUresult cuModuleUnload(void *handle) {
    return handle == &module ? SUCCESS : INVALID_VALUE;
}

CUresult cuModuleGetFunction(void **handle, void *of, const char *name) {
    *handle = &function;
    return of && name ? SUCCESS : INVALID_VALUE;
}

CUresult cuFuncGetAttribute(int *value, int attribute, void *handle) {
    (void)attribute;
    *value = 0;
    return handle ? SUCCESS : INVALID_VALUE;
}

CUresult cuFuncSetAttribute(void *handle, int attribute, int value) {
    (void)attribute, (void)value;
    return handle ? SUCCESS : INVALID_VALUE;
}

CUresult cuLaunchKernel(void) {
    return NOT_SUPPORTED;
}

CUresult cuLaunchKernelEx(void) {
    return NOT_SUPPORTED;
}
