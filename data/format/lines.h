/* Lines of a text that comes bit by bit, such as stdin, as UTF-8 with the same rules as files of
 * tables (csv_text.h): UTF-16 with a byte order mark and Latin-1 are converted, and CR alone ends a
 * line when there is no LF. The first line that is not UTF-8 makes all lines from there on Latin-1;
 * when a line before had letters of UTF-8, the text is neither.
 *
 * Thread: one at a time. */
#ifndef RU_DATA_LINES_H
#define RU_DATA_LINES_H

#include "base/arena.h"
#include "base/str.h"

typedef struct ru_lines ru_lines;

/* What a reader returns that was stopped: a line that has no end yet is left out. */
#define RU_LINES_STOPPED INT64_MIN

/* Up to `size_bytes` more bytes of the text; 0: its end; < 0: it cannot be read. May block. */
typedef int64_t (*ru_lines_fn)(void *self, void *into, int64_t size_bytes);

/* `path` is for messages, view. */
RU_MUST_USE ru_status ru_lines_open(const char *path, ru_lines_fn read, void *self, ru_arena *arena,
                                    ru_lines **out, ru_err *err);
/* The next line without its end; view until the next call. *found false: there is none. Errors:
 * RU_E_DATA when it is no text, RU_E_IO, RU_E_MEM. */
RU_MUST_USE ru_status ru_lines_next(ru_lines *l, ru_str *line, bool *found, ru_err *err);
void ru_lines_close(ru_lines *l); /* NULL is fine */

#endif
