/* Memory of the GPU and of the host, given and taken back. */

#define _GNU_SOURCE
#include "fake.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const size_t TOTAL = (size_t)8 << 30;

pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct block *blocks;
static size_t used;
static int asked_for_pinned;

struct block *block_of(const void *first, size_t bytes) {
    for (struct block *block = blocks; block; block = block->next)
        if ((const char *)first >= block->first && (const char *)first + bytes <= block->first + block->bytes)
            return block;
    return NULL;
}

static CUresult give(size_t bytes, int host, void **first) {
    if (!current) return INVALID_CONTEXT;
    pthread_mutex_lock(&lock);
    CUresult result = OUT_OF_MEMORY;
    if (host || bytes <= TOTAL - used) {
        void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory != MAP_FAILED) {
            struct block *block = malloc(sizeof *block);
            *block = (struct block){memory, bytes, host, blocks};
            blocks = block;
            used += host ? 0 : bytes;
            *first = memory;
            result = SUCCESS;
        }
    }
    pthread_mutex_unlock(&lock);
    return result;
}

static CUresult take_back(void *first) {
    pthread_mutex_lock(&lock);
    struct block **at = &blocks;
    while (*at && (*at)->first != first) at = &(*at)->next;
    struct block *block = *at;
    if (!block) fail("memory is freed that was not allocated");
    *at = block->next;
    used -= block->host ? 0 : block->bytes;
    munmap(block->first, block->bytes);
    free(block);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    *total = TOTAL;
    *free_bytes = TOTAL - used;
    return current ? SUCCESS : INVALID_CONTEXT;
}

CUresult cuMemAlloc_v2(CUdeviceptr *first, size_t bytes) {
    return getenv("FAKE_CUDA_REFUSE_MEMORY") ? OUT_OF_MEMORY : give(bytes, 0, (void **)first);
}

CUresult cuMemFree_v2(CUdeviceptr first) {
    return take_back((void *)first);
}

CUresult cuMemHostAlloc(void **first, size_t bytes, unsigned flags) {
    (void)flags;
    const char *refused = getenv("FAKE_CUDA_REFUSE_PINNED");
    int nth = __atomic_add_fetch(&asked_for_pinned, 1, __ATOMIC_SEQ_CST);
    if (refused && (!strcmp(refused, "all") || atoi(refused) == nth)) return OUT_OF_MEMORY;
    return give(bytes, 1, first);
}

CUresult cuMemFreeHost(void *first) {
    return take_back(first);
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *address, void *first, unsigned flags) {
    *address = (CUdeviceptr)first;
    return flags ? INVALID_VALUE : SUCCESS;
}
