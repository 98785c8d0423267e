/* From grants and from what agents say to orders: a job starts when all that it needs is free, a
 * slot is free when its process is gone, and the last worker of a job leaves no one. */
#include <string.h>

#include "base/log.h"
#include "cluster/account.h"
#include "cluster/scheduler_impl.h"
#include "env/file/file.h"

static uint32_t number_of(const rui_scheduler *s, const ru_book_job *j)
{
    return (uint32_t)(j - s->book.jobs.at) + 1;
}

/* The job in a slot; NULL: none, or one that never ran and so has no process. */
static const ru_book_job *begun(const rui_scheduler *s, uint32_t slot)
{
    const ru_book_job *j = ru_book_job_at(&s->book, s->book.of[slot]);
    return j != NULL && j->generation > 0 ? j : NULL;
}

/* Workers that a node was told to have of a job; UINT32_MAX: it was told nothing. */
static uint32_t told_of(const rui_live *l, uint32_t job, uint32_t generation)
{
    for (uint32_t i = 0; i < l->told.n; i++) {
        if (l->told.at[i].job == job && l->told.at[i].generation == generation) {
            return l->told.at[i].want;
        }
    }
    return UINT32_MAX;
}

/* Does p leave a node after q? As the agents have it (agent_proc.c). */
static bool leaves_after(const ru_cluster_proc *p, const ru_cluster_proc *q)
{
    bool in = p->address[0] != 0;
    return in != (q->address[0] != 0) ? in : p->rank < q->rank;
}

/* Was process i of a node told to leave, or will it be when the node follows what it was told? */
static bool is_leaving(const rui_live *l, uint32_t i)
{
    const ru_cluster_proc *p = &l->state.procs[i];
    uint32_t before = 0;
    for (uint32_t k = 0; k < l->state.n; k++) {
        const ru_cluster_proc *q = &l->state.procs[k];
        before += q->job == p->job && q->generation == p->generation && q->alive && !q->goes &&
                  leaves_after(q, p);
    }
    return p->goes || before >= told_of(l, p->job, p->generation);
}

/* In the job, and it stays there. */
static bool stays(const rui_live *l, const ru_book_job *j, uint32_t i)
{
    const ru_cluster_proc *p = &l->state.procs[i];
    return p->generation == j->generation && p->address[0] != 0 && !is_leaving(l, i);
}

/* Processes of a job on a node: all, those of its generation, and those of them that stay in it. */
static uint32_t alive_on(const rui_scheduler *s, const ru_book_job *j, uint32_t k, uint32_t *own,
                         uint32_t *stay)
{
    const rui_live *l = &s->live[k];
    uint32_t n = 0;
    *own = *stay = 0;
    for (uint32_t i = 0; i < l->state.n; i++) {
        bool its = l->state.procs[i].job == number_of(s, j) && l->state.procs[i].alive;
        n += its;
        *own += its && l->state.procs[i].generation == j->generation;
        *stay += its && stays(l, j, i);
    }
    return n;
}

/* Is a worker of it on a node that no market takes away, and stays there? */
static bool has_safe(const rui_scheduler *s, const ru_book_job *j)
{
    uint32_t own, stay = 0;
    for (uint32_t k = 0; k < s->book.n_nodes && stay == 0; k++) {
        if (s->book.nodes[k].market == 0) {
            (void)alive_on(s, j, k, &own, &stay);
        }
    }
    return stay > 0;
}

uint32_t rui_scheduler_alive(const rui_scheduler *s, const ru_book_job *j, uint32_t *ready,
                             const char **at)
{
    uint32_t n = 0;
    uint64_t best = UINT64_MAX;
    *ready = 0;
    for (uint32_t k = 0; k < s->book.n_nodes; k++) {
        const ru_cluster_state *st = &s->live[k].state;
        uint64_t goes = (uint64_t)(ru_book_granted(&s->book, j, k) == 0) << 32;
        for (uint32_t i = 0; i < st->n; i++) {
            const ru_cluster_proc *p = &st->procs[i];
            if (p->job != number_of(s, j) || !p->alive) {
                continue;
            }
            n++;
            if (stays(&s->live[k], j, i)) {
                ++*ready;
                if (at != NULL && (goes | p->rank) < best) { /* the newest of a node leave first */
                    best = goes | p->rank;
                    *at = p->address;
                }
            }
        }
    }
    return n;
}

/* -- ends ----------------------------------------------------------------------------------------
 */

/* What is known of a job's processes that ended. */
typedef struct ends {
    bool done, stopped, any;
    bool silent; /* one ended well and did not leave, and does not tell the job's end */
    bool lost;   /* one did not leave */
    int32_t code;
    const char *why;
} ends;

const char *rui_scheduler_why(const ru_cluster_proc *p)
{
    return p->why[0] != 0 ? p->why
           : p->code < 0  ? "a worker was ended by a signal"
                          : "a worker ended before it could tell why; see the files log.* in the "
                            "run's folder";
}

/* The newest generation of which a process is known, alive or not, that is not the job's own; 0:
 * one of its own is known, or none at all. */
static uint32_t older_of(const rui_scheduler *s, const ru_book_job *j, bool alive)
{
    uint32_t newest = 0;
    for (uint32_t k = 0; k < s->book.n_nodes; k++) {
        const ru_cluster_state *st = &s->live[k].state;
        for (uint32_t i = 0; i < st->n; i++) {
            const ru_cluster_proc *p = &st->procs[i];
            if (p->job != number_of(s, j) || p->generation > j->generation) {
                continue;
            }
            if (p->generation == j->generation) {
                return 0;
            }
            newest = (p->alive || !alive) && p->generation > newest ? p->generation : newest;
        }
    }
    return newest;
}

static ends ends_of(const rui_scheduler *s, const ru_book_job *j)
{
    ends e = {.why = ""};
    uint32_t older = older_of(s, j, false);
    for (uint32_t k = 0; k < s->book.n_nodes; k++) {
        const ru_cluster_state *st = &s->live[k].state;
        for (uint32_t i = 0; i < st->n; i++) {
            const ru_cluster_proc *p = &st->procs[i];
            if (p->job != number_of(s, j) || p->alive) {
                continue;
            }
            if (p->generation != j->generation) { /* it was done as it was told to stop */
                bool its = p->generation == older && p->ended[0] != 0;
                e.done = e.done || (its && strcmp(p->ended, "stopped") != 0);
                continue;
            }
            e.any = true;
            e.lost = e.lost || !p->left;
            bool told = p->ended[0] != 0, stopped = strcmp(p->ended, "stopped") == 0;
            e.done = e.done || (told && !stopped);
            e.stopped = e.stopped || (stopped && !p->left);
            e.silent = e.silent || (p->code == 0 && !p->left && !told);
            if (p->code != 0 && (e.why[0] == 0 || p->why[0] != 0)) {
                e.code = p->code;
                e.why = rui_scheduler_why(p);
            }
        }
    }
    return e;
}

/* Has every node that may hold a process of it spoken? */
static bool all_known(const rui_scheduler *s, const ru_book_job *j)
{
    bool known = true;
    for (uint32_t k = 0; k < s->book.n_nodes; k++) {
        bool may = j->generation > 0 && s->book.nodes[k].slots > 0;
        known = known && (!may || s->live[k].known);
    }
    return known;
}

bool rui_scheduler_ended(const rui_scheduler *s, const ru_book_job *j, ru_journal_event *e)
{
    uint32_t ready;
    if ((j->generation == 0 && !j->cancelled) || !all_known(s, j) ||
        rui_scheduler_alive(s, j, &ready, NULL) > 0) {
        return false;
    }
    ends w = ends_of(s, j);
    *e = (ru_journal_event){.job = number_of(s, j), .kind = RU_BOOK_END, .text = ""};
    if (w.done) {
        e->a = RU_BOOK_DONE;
    } else if (j->cancelled) {
        e->a = RU_BOOK_CANCELLED;
    } else if (j->state == RU_BOOK_RUNS && w.any && w.stopped) {
        e->a = RU_BOOK_CANCELLED;
        e->text = "a signal from outside stopped it";
    } else if (j->state == RU_BOOK_RUNS && w.silent && w.why[0] == 0) {
        *e = (ru_journal_event){.job = e->job,
                                .kind = RU_BOOK_FAIL,
                                .a = ru_status_exit_code(RU_E_PEER),
                                .text = "its workers ended and none told how; it goes on from its "
                                        "newest checkpoint"};
    } else if (j->state == RU_BOOK_RUNS && w.any) {
        *e = (ru_journal_event){.job = e->job, .kind = RU_BOOK_FAIL, .a = w.code, .text = w.why};
    } else {
        return false;
    }
    return true;
}

void rui_scheduler_judge(rui_scheduler *s)
{
    for (uint32_t slot = 0; slot < s->book.sched.n_jobs; slot++) {
        const ru_book_job *j = ru_book_job_at(&s->book, s->book.of[slot]);
        ru_journal_event e;
        ru_err err;
        if (j == NULL || !rui_scheduler_ended(s, j, &e)) {
            continue;
        }
        e.who = "scheduler";
        if (rui_scheduler_event(s, e, &err) != RU_OK) {
            ru_log(RU_LOG_ERROR, "cluster", "journal", "%s", err.text);
            return;
        }
        s->plan_due = true;
    }
}

/* -- the folder of a run -------------------------------------------------------------------------
 */

static ru_status put_file(const char *out, const char *name, const char *text, bool secret,
                          ru_arena *scratch, ru_err *err)
{
    const char *path = ru_path_join(scratch, out, name);
    if (path == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the folder %s", out);
    }
    int64_t n = (int64_t)strlen(text);
    return secret ? ru_file_secret(path, text, n, err) : ru_file_own(path, text, n, err);
}

/* To the account, if there is one. */
static ru_status give(const ru_account *account, const char *path, bool folder, ru_err *err)
{
    if (path == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the folder of a run");
    }
    if (folder) {
        RU_TRY(ru_dir_make(path, err));
    }
    return account != NULL ? ru_account_give(account, path, err) : RU_OK;
}

/* Before a generation begins: its number stands in the folder, and what workers need. The folder
 * is its owner's alone, so what a later generation finds there is not trusted. */
static ru_status prepare(bool own, const ru_book_job *j, ru_arena *scratch, ru_err *err)
{
    ru_account room;
    const ru_account *account;
    RU_TRY(ru_cluster_account(own, j->owner, scratch, &room, &account, err));
    static const char *const folders[] = {"checkpoints", "trace", "plans"};
    const char *number = ru_arena_printf(scratch, "%u\n", j->generation);
    if (number == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for the folder %s", j->spec.out);
    }
    if (account != NULL && ru_path_exists(j->spec.out) && !ru_account_has(j->spec.out)) {
        return put_file(j->spec.out, "generation", number, false, scratch, err);
    }
    RU_TRY(ru_dir_make(j->spec.out, err));
    RU_TRY(ru_dir_private(j->spec.out, err));
    for (uint32_t k = 0; k < RU_ARRAY_LEN(folders); k++) {
        RU_TRY(give(account, ru_path_join(scratch, j->spec.out, folders[k]), true, err));
    }
    RU_TRY(put_file(j->spec.out, "token", j->spec.token, true, scratch, err));
    RU_TRY(put_file(j->spec.out, "job.yaml", j->spec.yaml, false, scratch, err));
    RU_TRY(put_file(j->spec.out, "generation", number, false, scratch, err));
    RU_TRY(give(account, ru_path_join(scratch, j->spec.out, "token"), false, err));
    RU_TRY(give(account, ru_path_join(scratch, j->spec.out, "job.yaml"), false, err));
    return give(account, j->spec.out, false, err); /* last: until now nobody else could touch it */
}

/* Did this scheduler prepare the job's generation? */
static bool is_prepared(const rui_scheduler *s, const ru_book_job *j)
{
    return s->prepared[j->slot] == ((uint64_t)number_of(s, j) << 32 | j->generation);
}

static bool prepared(rui_scheduler *s, const ru_book_job *j)
{
    ru_arena scratch;
    ru_err err;
    if (is_prepared(s, j)) {
        return true;
    }
    ru_arena_init(&scratch, 0);
    ru_status st = prepare(s->opt->own_accounts, j, &scratch, &err);
    ru_arena_fini(&scratch);
    if (st != RU_OK) {
        ru_log(RU_LOG_ERROR, "cluster", "prepare", "job %u cannot start: %s", number_of(s, j),
               err.text);
        return false;
    }
    s->prepared[j->slot] = (uint64_t)number_of(s, j) << 32 | j->generation;
    return true;
}

/* -- orders --------------------------------------------------------------------------------------
 */

/* Slots of node k that a job holds, or was told to take. */
static uint32_t held(const rui_scheduler *s, const ru_book_job *j, uint32_t k)
{
    uint32_t own, stay, all = alive_on(s, j, k, &own, &stay);
    uint32_t grant = ru_book_granted(&s->book, j, k);
    uint32_t told = told_of(&s->live[k], number_of(s, j), j->generation);
    told = told == UINT32_MAX ? 0 : told < grant ? told : grant;
    return all > told ? all : told;
}

/* Slots of node k that nobody holds. */
static uint32_t free_on(const rui_scheduler *s, uint32_t k)
{
    uint32_t used = 0, slots = s->book.nodes[k].slots;
    for (uint32_t slot = 0; slot < s->book.sched.n_jobs; slot++) {
        const ru_book_job *j = begun(s, slot);
        used += j != NULL ? held(s, j, k) : 0;
    }
    return used < slots ? slots - used : 0;
}

/* May a job of which nothing runs begin? All that it needs at least must be free at once. *first:
 * where, rather on a node of the cluster's own: who founds a job must be reliable. */
static bool may_begin(const rui_scheduler *s, const ru_book_job *j, uint32_t *first)
{
    const ru_sched_job *p = ru_book_place(&s->book, j);
    uint32_t n = 0;
    *first = UINT32_MAX;
    for (uint32_t i = 0; i < p->n_parts; i++) {
        uint32_t k = p->parts[i].node, has = held(s, j, k), free = free_on(s, k);
        uint32_t lacks = p->parts[i].devices > has ? p->parts[i].devices - has : 0;
        uint32_t gets = has + (lacks < free ? lacks : free);
        gets = s->live[k].guest.v != 0 ? gets : 0;
        bool better = *first == UINT32_MAX ||
                      (s->book.nodes[*first].market > 0 && s->book.nodes[k].market == 0);
        *first = better && gets > 0 ? k : *first;
        n += gets;
    }
    return n > 0 && n >= (j->min < p->replicas ? j->min : p->replicas);
}

/* Was another node than k told to found the job, so that it may have done so, or do so still? */
static bool others_found(const rui_scheduler *s, uint32_t job, uint32_t generation, uint32_t k)
{
    bool may = false;
    for (uint32_t n = 0; n < s->book.n_nodes; n++) {
        const rui_live *l = &s->live[n];
        for (uint32_t i = 0; i < l->told.n && n != k && s->book.nodes[n].slots > 0; i++) {
            const ru_cluster_order *o = &l->told.at[i];
            may = may || (o->job == job && o->generation == generation &&
                          (o->want > 0 ? o->found : l->state.heard != l->told.number));
        }
    }
    return may;
}

/* The generation that has to end, with its checkpoint, before the job's own begins; 0: none. Once
 * that has begun, older workers are those of nodes that were given up, which agents kill. */
static uint32_t ends_first(const rui_scheduler *s, const ru_book_job *j)
{
    return is_prepared(s, j) ? 0 : older_of(s, j, true);
}

/* May a node start a worker of an older generation, by orders that are on their way? */
static bool older_comes(const rui_scheduler *s, const ru_book_job *j)
{
    bool may = false;
    for (uint32_t k = 0; k < s->book.n_nodes; k++) {
        const rui_live *l = &s->live[k];
        bool open = s->book.nodes[k].slots > 0 && l->state.heard != l->told.number;
        for (uint32_t i = 0; open && i < l->told.n; i++) {
            const ru_cluster_order *o = &l->told.at[i];
            may =
                may || (o->job == number_of(s, j) && o->generation < j->generation && o->want > 0);
        }
    }
    return may;
}

static void order_one(rui_scheduler *s, const ru_book_job *j, uint32_t k, uint32_t *free,
                      ru_cluster_order *o)
{
    uint32_t own, here, ready, grant = ru_book_granted(&s->book, j, k), has = held(s, j, k);
    const char *at = "";
    uint32_t alive = rui_scheduler_alive(s, j, &ready, &at), first, before = ends_first(s, j);
    (void)alive_on(s, j, k, &own, &here);
    *o = (ru_cluster_order){.job = number_of(s, j),
                            .generation = before > 0 ? before : j->generation,
                            .rank_first = k * RU_BOOK_NODES_MAX * 16,
                            .most = 1024,
                            .resume = j->generation > 1,
                            .end = before > 0 || j->cancelled || s->closing ||
                                   j->state != RU_BOOK_RUNS,
                            .join = at,
                            .out = j->spec.out,
                            .token = j->spec.token,
                            .owner = j->owner};
    if (o->end) {
        return;
    }
    if (alive == 0) { /* nothing of it runs, if all have spoken: all that it needs, or nothing */
        if (!all_known(s, j) || older_comes(s, j) || !may_begin(s, j, &first) || !prepared(s, j)) {
            return;
        }
        o->found = first == k && !others_found(s, o->job, o->generation, k);
    } else if (ready == 0) {
        /* Its first worker is on its way, or older ones have to end; or all that were in the job
         * are lost, and those on their way can join nobody. */
        o->want = ends_of(s, j).lost ? 0 : own;
        return;
    }
    o->rented = s->book.nodes[k].market > 0 && has_safe(s, j);
    uint32_t gets = grant > has ? grant - has : 0;
    gets = gets < *free ? gets : *free;
    *free -= gets;
    o->want = grant >= has ? has + gets : grant;
    if (o->want == 0 && here > 0 && here == ready) {
        o->want = 1; /* until one of another node is in the job, and stays */
    }
}

/* May node k have processes of a job that it has not told of? Orders that it follows by now and
 * that want none there are the end of that. */
static bool may_have(const rui_live *l, uint32_t job)
{
    bool may = false;
    for (uint32_t i = 0; i < l->told.n; i++) {
        may = may || (l->told.at[i].job == job &&
                      (l->told.at[i].want > 0 || l->state.heard != l->told.number));
    }
    return may;
}

bool rui_scheduler_silence(const rui_scheduler *s)
{
    bool silence = true;
    for (uint32_t k = 0; k < s->book.n_nodes; k++) {
        const rui_live *l = &s->live[k];
        bool heard = l->guest.v == 0 || l->state.heard == l->told.number;
        silence = silence && (s->book.nodes[k].slots == 0 || (l->known && heard));
        for (uint32_t i = 0; i < l->state.n; i++) {
            silence = silence && !l->state.procs[i].alive;
        }
    }
    return silence;
}

void rui_scheduler_orders(rui_scheduler *s, uint32_t k, ru_cluster_orders *out)
{
    uint32_t free = free_on(s, k);
    *out = (ru_cluster_orders){.number = 0};
    for (uint32_t slot = 0; slot < s->book.sched.n_jobs; slot++) {
        const ru_book_job *j = begun(s, slot);
        bool its = j != NULL &&
                   (ru_book_granted(&s->book, j, k) > 0 || may_have(&s->live[k], number_of(s, j)));
        for (uint32_t i = 0; j != NULL && !its && i < s->live[k].state.n; i++) {
            its = s->live[k].state.procs[i].job == number_of(s, j);
        }
        if (its && out->n < RU_CLUSTER_PROCS_MAX) {
            order_one(s, j, k, &free, &out->at[out->n++]);
        }
    }
}
