/* A double of NVIDIA's driver library for machines without a GPU: as much of libcuda.so.1 as Plimsoll calls.

   Memory, copies, streams and recordings work, on memory of the host. Nothing pretends to compute: a kernel's launch
   is refused. It is stricter than the real one where that finds faults: a stream does nothing before it is waited for,
   every address of the device is held against what was allocated, and what the driver's documentation forbids or
   leaves open (a recorded copy of memory that is not pinned, memory that is freed under a copy) ends the process.

   Variables of the environment:
     FAKE_CUDA_REFUSE_PINNED=all|N   pinned memory is refused always, or the N-th time (from 1)
     FAKE_CUDA_REFUSE_MEMORY=1       memory of the device is refused
     FAKE_CUDA_PAGEABLE=late         memory that is not pinned is read when the stream is waited for, not at the call */

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef uint64_t CUdeviceptr;
enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    NOT_SUPPORTED = 801,
};

/* Memory that was given. */
struct block {
    char *first;
    size_t bytes;
    int host;
    struct block *next;
};

/* Guards all that is shared. */
extern pthread_mutex_t lock;

/* The context of the calling thread, if it has entered one. */
extern __thread void *current;

/* The block with all of these bytes, if there is one. */
struct block *block_of(const void *first, size_t bytes);

/* Ends the process. */
void fail(const char *what);
