/* How a program is started on another host.
 *
 * Thread: any. */
#ifndef RU_LAUNCH_SSH_H
#define RU_LAUNCH_SSH_H

#include "base/arena.h"

enum { RU_SSH_WORDS_MAX = 8 };

/* The first words of the command line: ssh without questions, or the program that RUBATO_SSH names,
 * the host, and the path of `exe` (under which the other host must have it, too). Returns how many.
 * Owner: `arena`; a word is NULL when it is full. */
uint32_t ru_ssh_words(ru_arena *arena, const char *host, const char *exe,
                      const char *words[RU_SSH_WORDS_MAX]);

#endif
