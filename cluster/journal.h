/* What happened in a cluster, in order and for good: the state of a scheduler is the fold of these
 * events, so that a scheduler that was killed goes on where it was, and everybody
 * can read who did what.
 *
 * An event is on the disk before `append` returns; only then may anybody hear of it or act on it.
 * It is a file of SQLite, which one scheduler at a time has open, or tables of PostgreSQL, of whose
 * schedulers one leads.
 *
 * Thread: one at a time. */
#ifndef RU_CLUSTER_JOURNAL_H
#define RU_CLUSTER_JOURNAL_H

#include "base/arena.h"
#include "base/status.h"

/* What the numbers and texts mean is the business of who writes them. */
typedef struct ru_journal_event {
    int64_t seq;     /* 1, 2, ...: given by append */
    int64_t at_ns;   /* on the cluster's clock, which stands still while no scheduler runs */
    int64_t wall_ns; /* for people */
    uint32_t kind;
    int64_t job, node, a, b;
    const char *who, *text; /* never NULL in what is read; views until the call returns */
} ru_journal_event;

typedef struct ru_journal ru_journal;

typedef struct ru_journal_ops {
    const char *name;
    /* All of the events or none, durably. Errors: RU_E_CREATE (the disk is full), RU_E_IO; nothing
     * was added then and the next append may succeed. RU_E_PEER: the database is not there, or was
     * lost, so that it is not known whether they were added; RU_E_AGAIN: another one leads. Then
     * `lead` must come first, and who had the lead again reads on. */
    ru_status (*append)(void *self, ru_journal_event *events, uint32_t n, ru_err *err);
    /* Every event after `seq`, in order, until `fn` returns another status than RU_OK.
     * Errors: RU_E_DATA for a damaged journal, those of `fn`. */
    ru_status (*read)(void *self, int64_t seq,
                      ru_status (*fn)(void *arg, const ru_journal_event *e, ru_err *err), void *arg,
                      ru_err *err);
    /* A whole copy beside the journal, which the error about a damaged one names. It replaces the
     * last. Errors: RU_E_CREATE, RU_E_IO, RU_E_MEM; the last one stays then. NULL:
     * copies are the database's business. */
    ru_status (*snapshot)(void *self, ru_err *err);
    /* Take the lead, or see whether it is still had; waits for a moment at most, so call it again
     * and again. *epoch rises with each time that it was taken, whoever took it. Errors: RU_E_AGAIN
     * (another one leads, or led since this one did), RU_E_PEER (the database is not there),
     * RU_E_PERM, RU_E_DATA. NULL: who has it open leads. */
    ru_status (*lead)(void *self, uint64_t *epoch, ru_err *err);
    void (*close)(void *self);
} ru_journal_ops;

struct ru_journal {
    const ru_journal_ops *ops;
    void *self;
};

/* Is this the address of a database, postgres://...? */
bool ru_journal_is_database(const char *at);
/* Errors: RU_E_CONFIG for an address that is none, or holds a password: it would be in files and
 * messages. */
RU_MUST_USE ru_status ru_journal_check(const char *at, ru_err *err);
/* The journal at an address or path, of the cluster in `folder`. Errors: those of
 * ru_journal_sqlite, ru_journal_check; RU_E_PEER (no server answers), RU_E_PERM (its password). */
RU_MUST_USE ru_status ru_journal_open(const char *at, const char *folder, ru_arena *arena,
                                      ru_journal *out, ru_err *err);
/* The journal in the file `path`, made when it is not there, readable by this user alone.
 * Errors: RU_E_AGAIN (another scheduler has it open), RU_E_DATA (no journal, or of a later
 * version), RU_E_CREATE, RU_E_UNSUPPORTED (no SQLite). */
RU_MUST_USE ru_status ru_journal_sqlite(const char *path, ru_arena *arena, ru_journal *out,
                                        ru_err *err);

#endif
