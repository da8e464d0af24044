/* Threads that run one function side by side, and sleep while there is nothing to run. */
#pragma once
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

enum { MOST_THREADS = 64 };
enum { SPINS = 2000 }; /* looks at a number that another thread changes, before a thread sleeps: 30 to 100 us */
typedef void (*Work)(void *what, int thread, int threads);

static pthread_mutex_t in_use = PTHREAD_MUTEX_INITIALIZER; /* by the call whose work the threads do */
static pthread_mutex_t asleep = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static atomic_int sleepers;
static struct { Work work; void *what; int threads; } now;
static atomic_int call;            /* the number of the present work; changes under the lock, with now */
static atomic_int done;            /* threads that have finished it, beside the caller's */
static atomic_int arrived, opened; /* threads at the barrier, and how often it has opened */
static struct Worker { int thread, known; } workers[MOST_THREADS];
static int started; /* threads beside the caller's */

/* Wait while a number is what it was: first awake, because it changes soon in most cases, then asleep. */
static void await(atomic_int *number, int before) {
    for (int spins = 0; spins < SPINS; spins++) {
        if (atomic_load(number) != before) return;
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
    pthread_mutex_lock(&asleep);
    atomic_fetch_add(&sleepers, 1);
    while (atomic_load(number) == before) pthread_cond_wait(&changed, &asleep);
    atomic_fetch_sub(&sleepers, 1);
    pthread_mutex_unlock(&asleep);
}

/* Wake those who sleep until a number changes; called after it has. A sleeper counts itself before it looks. */
static void announce(void) {
    if (!atomic_load(&sleepers)) return;
    pthread_mutex_lock(&asleep);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&asleep);
}

/* Wait until all threads of the present work are here. */
static void meet(int threads) {
    if (threads == 1) return;
    const int before = atomic_load(&opened);
    if (atomic_fetch_add(&arrived, 1) < threads - 1) {
        await(&opened, before);
        return;
    }
    atomic_store(&arrived, 0);
    atomic_fetch_add(&opened, 1);
    announce();
}

static void *serve(void *given) {
    const struct Worker *worker = given;
    for (int known = worker->known;;) {
        await(&call, known);
        pthread_mutex_lock(&asleep);
        known = atomic_load(&call);
        const Work work = now.work;
        void *const what = now.what;
        const int threads = now.threads;
        pthread_mutex_unlock(&asleep);
        if (worker->thread >= threads) continue;
        work(what, worker->thread, threads);
        atomic_fetch_add(&done, 1);
        announce();
    }
    return NULL;
}

/* A forked process has none of the threads, and nobody who would open a lock. */
static void forget_threads(void) {
    started = 0;
    atomic_store(&arrived, 0);
    atomic_store(&sleepers, 0);
    pthread_mutex_init(&in_use, NULL);
    pthread_mutex_init(&asleep, NULL);
    pthread_cond_init(&changed, NULL);
}

static void watch_forks(void) { pthread_atfork(NULL, NULL, forget_threads); }

/* Start threads until there are so many beside the caller's; fewer if the system refuses. */
static void start(int wanted) {
    sigset_t every, before;
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before); /* signals are for the program's own threads */
    for (pthread_t ignored; started < wanted; started++) {
        workers[started] = (struct Worker){started + 1, atomic_load(&call)};
        if (pthread_create(&ignored, NULL, serve, &workers[started])) break;
        pthread_detach(ignored);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* Let up to so many threads do the work, this one included. It does it alone while the others work for another call. */
static void together(Work work, void *what, int threads) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (threads > MOST_THREADS) threads = MOST_THREADS;
    if (threads < 2 || pthread_mutex_trylock(&in_use)) {
        work(what, 0, 1);
        return;
    }
    pthread_once(&once, watch_forks);
    start(threads - 1);
    if (threads > started + 1) threads = started + 1;
    pthread_mutex_lock(&asleep);
    now.work = work, now.what = what, now.threads = threads;
    atomic_store(&done, 0);
    atomic_fetch_add(&call, 1);
    pthread_mutex_unlock(&asleep);
    announce();
    work(what, 0, threads);
    for (int finished; (finished = atomic_load(&done)) < threads - 1;) await(&done, finished);
    pthread_mutex_unlock(&in_use);
}
