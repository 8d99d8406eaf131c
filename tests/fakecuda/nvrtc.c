/* A double of NVIDIA's run-time compiler, which takes any source for good: the double of the driver takes any binary.
   So a server starts on it at once, and without a compiler. */

#include <stddef.h>
#include <string.h>

typedef int nvrtcResult;
static const char BINARY[] = "no binary of any kernel";
static char program;

nvrtcResult nvrtcCreateProgram(void **made) {
    *made = &program;
    return 0;
}

nvrtcResult nvrtcDestroyProgram(void **made) {
    *made = NULL;
    return 0;
}

nvrtcResult nvrtcCompileProgram(void *made, int count, const char *const *options) {
    return made && options && count > 0 ? 0 : 1;
}

nvrtcResult nvrtcGetCUBINSize(void *made, size_t *bytes) {
    *bytes = sizeof BINARY;
    return made ? 0 : 1;
}

nvrtcResult nvrtcGetCUBIN(void *made, char *binary) {
    memcpy(binary, BINARY, sizeof BINARY);
    return made ? 0 : 1;
}

nvrtcResult nvrtcGetProgramLogSize(void *made, size_t *bytes) {
    *bytes = 1;
    return made ? 0 : 1;
}

nvrtcResult nvrtcGetProgramLog(void *made, char *log) {
    *log = 0;
    return made ? 0 : 1;
}

const char *nvrtcGetErrorString(nvrtcResult error) {
    return error ? "an error" : "no error";
}
