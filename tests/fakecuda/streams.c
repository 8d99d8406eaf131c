/* Streams, what is put into them, and recordings. */

#include "fake.h"
#include <stdlib.h>
#include <string.h>

/* Something to do: a copy, or where `from` is null a fill with `value`. */
struct op {
    char *to;
    const char *from;
    size_t bytes;
    unsigned char value;
    struct op *next;
};

/* A stream, and what is recorded of one. */
struct stream {
    struct op *ops;
    struct graph *recording;
};
struct graph {
    struct op *ops;
};

static void check(const void *first, size_t bytes) {
    if (!block_of(first, bytes)) fail("an address that was not allocated");
}

static void append(struct op **ops, struct op op) {
    while (*ops) ops = &(*ops)->next;
    *ops = malloc(sizeof op);
    **ops = op;
    (*ops)->next = NULL;
}

static void drop(struct op **ops) {
    while (*ops) {
        struct op *first = *ops;
        *ops = first->next;
        free(first);
    }
}

/* Does what a stream has. */
static void flush(struct stream *stream) {
    for (struct op *op = stream->ops; op; op = op->next)
        if (op->from) memmove(op->to, op->from, op->bytes);
        else memset(op->to, op->value, op->bytes);
    drop(&stream->ops);
}

/* Puts a copy into a stream; `host` is its end in the memory of the host, if it has one there. */
static CUresult copy(struct stream *stream, void *to, const void *from, size_t bytes, const void *host) {
    if (!current) return INVALID_CONTEXT;
    pthread_mutex_lock(&lock);
    if (to != host) check(to, bytes);
    if (from != host) check(from, bytes);
    const struct block *pinned = host ? block_of(host, bytes) : NULL;
    const char *mode = getenv("FAKE_CUDA_PAGEABLE");
    int late = !host || pinned || (mode && !strcmp(mode, "late"));
    if (stream->recording && host && !pinned) fail("a recorded copy of memory that is not pinned");
    append(stream->recording ? &stream->recording->ops : &stream->ops, (struct op){to, from, bytes, 0, NULL});
    if (!stream->recording && !late) flush(stream);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, struct stream *stream) {
    return copy(stream, (void *)to, from, bytes, from);
}

CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, struct stream *stream) {
    return copy(stream, to, (void *)from, bytes, to);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, struct stream *stream) {
    return copy(stream, (void *)to, (void *)from, bytes, NULL);
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, struct stream *stream) {
    if (!current) return INVALID_CONTEXT;
    pthread_mutex_lock(&lock);
    check((void *)to, bytes);
    struct op op = {(char *)to, NULL, bytes, value, NULL};
    append(stream->recording ? &stream->recording->ops : &stream->ops, op);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

CUresult cuStreamCreate(struct stream **stream, unsigned flags) {
    (void)flags;
    if (!current) return INVALID_CONTEXT;
    *stream = calloc(1, sizeof **stream);
    return SUCCESS;
}

CUresult cuStreamSynchronize(struct stream *stream) {
    if (!current) return INVALID_CONTEXT;
    pthread_mutex_lock(&lock);
    if (stream->recording) fail("a stream is waited for that is recorded");
    flush(stream);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

CUresult cuStreamDestroy_v2(struct stream *stream) {
    if (stream->ops) fail("a stream is destroyed that was not waited for");
    free(stream);
    return SUCCESS;
}

CUresult cuStreamBeginCapture_v2(struct stream *stream, int mode) {
    (void)mode;
    if (stream->ops) fail("a stream is recorded that was not waited for");
    stream->recording = calloc(1, sizeof *stream->recording);
    return SUCCESS;
}

CUresult cuStreamEndCapture(struct stream *stream, struct graph **graph) {
    *graph = stream->recording;
    stream->recording = NULL;
    return *graph ? SUCCESS : INVALID_VALUE;
}

CUresult cuGraphInstantiateWithFlags(struct graph **made, const struct graph *graph, unsigned long long flags) {
    *made = calloc(1, sizeof **made);
    for (struct op *op = graph->ops; op; op = op->next) append(&(*made)->ops, *op);
    return flags ? INVALID_VALUE : SUCCESS;
}

CUresult cuGraphUpload(struct graph *graph, struct stream *stream) {
    return graph && stream ? SUCCESS : INVALID_VALUE;
}

CUresult cuGraphLaunch(struct graph *graph, struct stream *stream) {
    if (!current) return INVALID_CONTEXT;
    pthread_mutex_lock(&lock);
    for (struct op *op = graph->ops; op; op = op->next) append(&stream->ops, *op);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

CUresult cuGraphDestroy(struct graph *graph) {
    drop(&graph->ops);
    free(graph);
    return SUCCESS;
}

CUresult cuGraphExecDestroy(struct graph *graph) {
    return cuGraphDestroy(graph);
}
