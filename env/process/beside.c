#include "env/process/beside.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "env/process/process.h"
#include "env/process/self.h"
#include "env/process/shm.h"

typedef struct side {
    int64_t pid;
    char mark[RU_PROCESS_MARK_BYTES];
} side;

typedef struct shared {
    ru_shm_word head; /* events so far */
    side service, reader;
    ru_beside_facts facts;
    ru_beside_figures figures;
    int64_t inside; /* work that has arrived and not ended */
    ru_beside_event slot[RU_BESIDE_SLOTS];
} shared;

struct ru_beside {
    ru_shm *shm;
    shared *at;
    bool reads;
    uint32_t next; /* reader: the event that it has not seen */
};

static ru_status no_memory(ru_err *err)
{
    return RU_FAIL(err, RU_E_MEM, "no memory for a ring of events");
}

ru_status ru_beside_open(int64_t reader_pid, const ru_beside_facts *facts, ru_beside **out,
                         ru_err *err)
{
    ru_beside *b = calloc(1, sizeof *b);
    if (b == NULL) {
        return no_memory(err);
    }
    ru_status st = ru_shm_create("rubato-beside", sizeof(shared), &b->shm, err);
    if (st != RU_OK) {
        free(b);
        return st;
    }
    b->at = ru_shm_data(b->shm);
    b->at->facts = *facts;
    b->at->service.pid = ru_self_pid();
    b->at->reader.pid = reader_pid;
    if (!ru_process_mark(b->at->service.pid, b->at->service.mark) ||
        !ru_process_mark(reader_pid, b->at->reader.mark)) {
        ru_beside_close(b);
        return RU_FAIL(err, RU_E_PEER, "no process %lld runs on this machine",
                       (long long)reader_pid);
    }
    *out = b;
    return RU_OK;
}

const char *ru_beside_handle(const ru_beside *b)
{
    return ru_shm_handle(b->shm);
}

void ru_beside_put(ru_beside *b, ru_beside_kind kind, int64_t value, ru_time now)
{
    shared *s = b->at;
    uint32_t head = ru_shm_look(&s->head);
    int64_t inside = s->inside + (kind == RU_BESIDE_ARRIVED ? 1 : kind == RU_BESIDE_ENDED ? -1 : 0);
    inside = inside > 0 ? inside : 0; /* one that ends may have come before the ring */
    __atomic_store_n(&s->inside, inside, __ATOMIC_RELAXED);
    ru_beside_event *e = &s->slot[head % RU_BESIDE_SLOTS];
    __atomic_store_n(&e->at_ns, now.ns, __ATOMIC_RELAXED);
    __atomic_store_n(&e->value, value, __ATOMIC_RELAXED);
    __atomic_store_n(&e->kind, (uint32_t)kind, __ATOMIC_RELAXED);
    (void)ru_shm_post(&s->head, head + 1);
}

ru_status ru_beside_map(const char *handle, ru_beside **out, ru_err *err)
{
    ru_beside *b = calloc(1, sizeof *b);
    if (b == NULL) {
        return no_memory(err);
    }
    ru_status st = ru_shm_map(handle, sizeof(shared), &b->shm, err);
    if (st != RU_OK) {
        free(b);
        return st;
    }
    b->at = ru_shm_data(b->shm);
    b->reads = true;
    b->next = ru_shm_look(&b->at->head);
    *out = b;
    return RU_OK;
}

const ru_beside_facts *ru_beside_facts_get(const ru_beside *b)
{
    return &b->at->facts;
}

bool ru_beside_next(ru_beside *b, ru_beside_event *out)
{
    const shared *s = b->at;
    uint32_t head = ru_shm_look(&s->head);
    if (head == b->next) {
        return false;
    }
    bool kept = head - b->next < RU_BESIDE_SLOTS;
    if (kept) {
        const ru_beside_event *e = &s->slot[b->next % RU_BESIDE_SLOTS];
        *out = (ru_beside_event){.at_ns = __atomic_load_n(&e->at_ns, __ATOMIC_ACQUIRE),
                                 .value = __atomic_load_n(&e->value, __ATOMIC_ACQUIRE),
                                 .kind = __atomic_load_n(&e->kind, __ATOMIC_ACQUIRE)};
        head = ru_shm_look(&s->head);
        kept = head - b->next < RU_BESIDE_SLOTS; /* else the copy may be of two events */
    }
    if (!kept) {
        b->next = head;
        *out = (ru_beside_event){.at_ns = ru_clock_now().ns,
                                 .kind = RU_BESIDE_LOST,
                                 .value = __atomic_load_n(&s->inside, __ATOMIC_RELAXED) > 0};
        return true;
    }
    b->next++;
    return true;
}

void ru_beside_wait(ru_beside *b, int64_t most_ns)
{
    const ru_shm_wait_options o = {.spin_ns = 20000, .timeout_ns = most_ns};
    (void)ru_shm_wait(&b->at->head, b->next + 1, &o);
}

void ru_beside_tell(ru_beside *b, const ru_beside_figures *f)
{
    b->at->figures = *f; /* read by people: a torn figure is one figure late */
}

/* Number of the session of a process; negative: nobody knows. */
static int64_t session_of(int64_t pid)
{
    char path[64];
    long long n = -1;
    (void)snprintf(path, sizeof path, "/proc/%lld/autogroup", (long long)pid);
    FILE *f = fopen(path, "re");
    if (f == NULL || fscanf(f, "/autogroup-%lld", &n) != 1) {
        n = -1;
    }
    if (f != NULL) {
        (void)fclose(f);
    }
    return n;
}

bool ru_beside_apart(const ru_beside *b)
{
    int64_t own = session_of(ru_self_pid()), other = session_of(b->at->service.pid);
    return own >= 0 && other >= 0 && own != other;
}

void ru_beside_session_nice(int32_t nice)
{
    for (uint32_t k = 0; k < 10;
         k++) { /* users may do so once in a tenth of a second, all together */
        FILE *f = fopen("/proc/self/autogroup", "we");
        if (f == NULL) {
            return;
        }
        (void)fprintf(f, "%d", nice);
        if (fclose(f) == 0 || errno != EAGAIN) {
            return;
        }
        ru_clock_pause(30000000);
    }
}

ru_beside_figures ru_beside_told(const ru_beside *b)
{
    return b->at->figures;
}

int64_t ru_beside_reader(const ru_beside *b)
{
    return b->at->reader.pid;
}

bool ru_beside_other_lives(const ru_beside *b)
{
    const side *o = b->reads ? &b->at->service : &b->at->reader;
    return ru_process_signal(o->pid, o->mark, 0);
}

void ru_beside_close(ru_beside *b)
{
    if (b != NULL) {
        ru_shm_close(b->shm);
        free(b);
    }
}
