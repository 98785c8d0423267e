/* Where a process came from: its parents and its beginning, by /proc.
 *
 * Thread: any. */
#ifndef RU_ENV_ORIGIN_H
#define RU_ENV_ORIGIN_H

#include "base/status.h"

/* Is it this process, or one that this process came from? */
bool ru_process_is_above(int64_t pid);
/* Did it begin after the file was last written? Then the file does not speak of it. Both times are
 * compared on the wall clock, with 2 s to spare. false also when one of the two is not there. */
bool ru_process_follows(int64_t pid, const char *path);

/* A number of /proc/PID/stat from the fourth on, counted from 1; false: it has ended. */
bool rui_process_field(int64_t pid, int field, int64_t *out);

#endif
