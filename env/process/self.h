/* This process: stop signals, memory, terminal, name.
 *
 * Thread: any; the descriptor of stop signals is polled only by who watches. */
#ifndef RU_ENV_SELF_H
#define RU_ENV_SELF_H

#include "base/status.h"

RU_API_BEGIN

/* From now on the first SIGINT, SIGTERM or SIGHUP is only counted (the owner drains and ends by
 * itself); the second ends the process at once with 128 + its number, unless it comes within 50 ms
 * (timeout(1) signals its child and then its group). One that was ignored when the process started
 * stays ignored (nohup; a shell's background job has no SIGINT). A pipe that nobody reads is an
 * error of its write. Who watches already keeps what came; several may watch, in any threads. */
void ru_self_stop_watch(void);
/* Number of the first stop signal; 0: none came. */
int ru_self_stop_asked(void);
/* A descriptor that is readable once a stop signal came (for an event loop; never read it), until
 * ru_self_stop_unwatch; -1 when nobody watches or it cannot be had. */
int ru_self_stop_fd(void);
/* The last one: the actions of before; forgets what came. */
void ru_self_stop_unwatch(void);

RU_API_END

/* Write to standard output at once what tells how a job goes on. If nobody reads it any more (a
 * closed pipe, a terminal that is gone), this and all later output goes nowhere: the job does not
 * end with its reader. Other errors stay in `stdout` (ferror). */
void ru_self_tell(const void *data, int64_t size_bytes);
/* Standard input, output and error that were closed at the start become /dev/null, so that no file
 * of a job takes their number; reading and writing them fails as before. First in main. */
void ru_self_streams(void);

int64_t ru_self_rss_peak_bytes(void); /* largest resident size so far; 0: not known */
int64_t ru_self_rss_bytes(void);      /* resident size now; 0: not known */
/* Start of the process on the clock of ru_clock_now; 0: not known. */
int64_t ru_self_start_ns(void);
int64_t ru_self_pid(void);
/* How often the kernel took the processor from a thread of this process that could have gone on. */
int64_t ru_self_preempted(void);
/* Random bytes from the kernel that cannot be predicted; crashes if the kernel has none. */
void ru_self_random(void *into, int64_t size_bytes);

/* Start this program again in this process, with the same arguments and NAME=value in the
 * environment: for settings that libraries read only when they are loaded. Returns only when that
 * was not possible. */
void ru_self_again(const char *name, const char *value);

/* The name of this process in ps and top, at most 15 bytes; a program that was started through a
 * link, as above, has the link's name otherwise. */
void ru_self_name(const char *name);

/* Columns of the terminal behind file descriptor `fd`; 0: not a terminal. */
uint32_t ru_self_columns(int fd);

/* What the machine calls itself and its processor; "unknown" when it does not say. */
void ru_self_host(char *into, int64_t size_bytes);
/* The addresses of this machine's interfaces that are up, as text without a port: at most `max`;
 * returns how many. */
enum { RU_SELF_ADDRESS_BYTES = 64 };
uint32_t ru_self_addresses(char (*into)[RU_SELF_ADDRESS_BYTES], uint32_t max);
void ru_self_cpu(char *into, int64_t size_bytes);
int64_t ru_self_memory_bytes(void); /* physical memory; 0: not known */
/* Which build of the code this is: the linker's build id of the program or library that holds it,
 * else a hash of the program's bytes. The same text, the same bytes. */
enum { RU_SELF_BUILD_BYTES = 41 };
void ru_self_build(char into[RU_SELF_BUILD_BYTES]);
uint32_t ru_self_cores(void); /* that this process may run on; at least 1 */

#endif
