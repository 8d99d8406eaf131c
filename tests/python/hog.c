// Memory that a process holds and knows nothing of, for tests of what it says then: preloaded, it holds HOG_BYTES of
// resident memory for as long as the file HOG is there.
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static void *work(void *unused) {
    const char *file = getenv("HOG");
    size_t bytes = strtoull(getenv("HOG_BYTES"), 0, 10);
    void *held = 0;
    for (;; usleep(5000)) {
        int wanted = access(file, F_OK) == 0;
        if (wanted && !held) {
            held = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        } else if (!wanted && held) {
            munmap(held, bytes);
            held = 0;
        }
    }
    return unused;
}

__attribute__((constructor)) static void start(void) {
    pthread_t thread;
    if (getenv("HOG")) pthread_create(&thread, 0, work, 0);
}
