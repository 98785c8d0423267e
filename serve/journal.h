/* What the server did with its last requests: a ring of entries in memory, which `rubato explain`
 * reads, and the access log, one JSON object a line.
 *
 *   head --parse--> in a buffer --buffer--> its batch leaves --queue--> a thread has it
 * --compute--> done --answer--> handed to the connection
 *
 * A thread writes the log.
 *
 * Thread: loop only. */
#ifndef RU_SERVE_JOURNAL_H
#define RU_SERVE_JOURNAL_H

#include "base/tell.h"
#include "serve/serve.h"

typedef struct rui_entry {
    char id[64]; /* the client's, else the server's own: "#17" */
    char method[8], path[128];
    char trace[33], parent[17], span[17]; /* of its traceparent, and the server's span; "": none */
    int64_t at_ns;                        /* its head was there; since 1970 */
    int64_t bytes_in, bytes_out;
    int64_t parse_ns, buffer_ns, queue_ns, compute_ns, answer_ns, all_ns;
    uint32_t status, rows, batch_rows, batch_requests;
    uint32_t why; /* its batch left, ru_serve_reason; batch_requests 0: it was in none */
} rui_entry;

typedef struct rui_journal rui_journal;

/* path NULL: no access log. Errors: RU_E_MEM, those of ru_log_file_open. */
RU_MUST_USE ru_status rui_journal_open(const char *path, ru_arena *arena, rui_journal **out,
                                       ru_err *err);
void rui_journal_close(rui_journal *j); /* writes what waits; NULL is fine */
/* An id for a request that has none. */
void rui_journal_name(rui_journal *j, char id[64]);
/* true: its line waits for rui_journal_flush, soon. A log that cannot be written says so once. */
bool rui_journal_add(rui_journal *j, const rui_entry *e);
bool rui_journal_flush(rui_journal *j); /* false: the log falls behind; ask again soon */
/* How long the parts of one request took and why its batch left, by its id, the newest;
 * or of the infer requests that were answered 200, the one at a quantile "pQ" of their times.
 * false: there is none; the text says so. */
bool rui_journal_explain(const rui_journal *j, ru_str which, const ru_tell *o);

#endif
