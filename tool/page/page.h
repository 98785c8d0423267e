/* One HTML file that shows a run: a timeline of all ranks, step times, where the time went, ops,
 * the memory plan. It needs no network and no other file.
 *
 *   traces --page_lanes--> lanes of numbers --gzip, base64--> page.html + page.css + page.js
 *
 * Thread: one. */
#ifndef RU_TOOL_PAGE_PAGE_H
#define RU_TOOL_PAGE_PAGE_H

#include <jansson.h>

#include "trace/read/clock.h"
#include "trace/read/fold.h"
#include "trace/read/steps.h"

typedef struct ru_page_buffer {
    int64_t offset, bytes;
    uint32_t first, last; /* steps of the executable */
} ru_page_buffer;

typedef struct ru_page_word {
    const char *text;
    bool cause; /* of lost time: shown in bold */
} ru_page_word;

typedef struct ru_page_in {
    const char *title, *about;
    const ru_trace *traces;     /* [n] */
    const ru_rank_steps *steps; /* [n] */
    const ru_span_facts *facts; /* [n] */
    uint32_t n;
    const ru_trace_clocks *clocks; /* NULL: own times are global */
    const ru_page_word *words;     /* [n_words] */
    uint32_t n_words;
    const ru_page_buffer *buffers; /* [n_buffers] one arena's */
    uint32_t n_buffers;
    int64_t arena_bytes;
} ru_page_in;

/* The buffers of the run's memory plan into `page`, as its world file has them; none when there is
 * no such file or plan. Errors: those of rui_world_open, RU_E_LIMIT. */
RU_MUST_USE ru_status ru_page_memory(const char *run, ru_arena *arena, ru_page_in *page,
                                     ru_err *err);

/* Errors: RU_E_LIMIT when `arena` is full, RU_E_IO. Cost: about 15 bytes a record before packing.
 */
RU_MUST_USE ru_status ru_page_write(const ru_page_in *in, const char *path, ru_arena *arena,
                                    ru_err *err);

#endif
