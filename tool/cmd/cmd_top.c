/* rubato top: what a run does now, from the files that it writes or from its address. */
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "env/clock.h"
#include "env/file/file.h"
#include "launch/launch.h"
#include "tool/cmd.h"
#include "watch/run.h"
#include "web/fetch.h"

enum { ROWS = 24, COLUMNS = 80 };

static void put_screen(const ru_top *t, bool terminal, ru_arena *arena)
{
    struct winsize size = {.ws_row = ROWS, .ws_col = COLUMNS};
    if (!terminal || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) {
        size = (struct winsize){.ws_row = ROWS, .ws_col = COLUMNS};
    }
    ru_text text = ru_text_arena(arena);
    uint32_t rows = size.ws_row > 9 ? size.ws_row - 1u : 8;
    ru_top_draw(t, rows, size.ws_col > 40 ? size.ws_col : 40, &text);
    printf("%s%s", terminal ? "\033[H\033[2J" : "", text.p);
    fflush(stdout);
}

/* Where views come from: the files of a run here, or a job's address. */
typedef struct source {
    ru_watch *watch;
    const char *url, *token;
} source;

static bool is_address(const char *word)
{
    const char *colon = strrchr(word, ':');
    return colon != NULL && !ru_path_exists(word) && colon[1] != '\0' &&
           strspn(colon + 1, "0123456789") == strlen(colon + 1);
}

static ru_status open_source(ru_cmd_in *in, source *s, ru_err *err)
{
    const char *run = in->args[0];
    if (is_address(run)) {
        s->url =
            ru_arena_printf(in->arena, "http://%s%s/top", run[0] == ':' ? "127.0.0.1" : "", run);
        return s->url == NULL
                   ? RU_FAIL(err, RU_E_MEM, "there is no memory for the view")
                   : ru_token_get(ru_cmd_text(in, "token-file"), in->arena, &s->token, err);
    }
    const char *job = ru_path_join(in->arena, run, "job.yaml");
    if (!ru_path_is_dir(run) || job == NULL || !ru_path_exists(job)) {
        return RU_FAIL(
            err, RU_E_MISSING,
            "there is no run %s; name a folder that `rubato train` writes, or HOST:PORT of "
            "a job with --metrics",
            run);
    }
    return ru_watch_open(run, in->arena, &s->watch, err);
}

static ru_status look(const source *s, ru_arena *arena, ru_top *t, ru_err *err)
{
    char *text;
    int64_t n;
    if (s->watch != NULL) {
        return ru_watch_look(s->watch, arena, t, err);
    }
    const ru_fetch g = {.url = s->url, .token = s->token};
    RU_TRY(ru_http_fetch(&g, arena, &text, &n, err));
    return ru_top_read(text, n, arena, t, err);
}

static ru_status put_json(const ru_top *t, ru_arena *arena, ru_err *err)
{
    ru_text text = ru_text_arena(arena);
    RU_TRY(ru_top_json(t, &text, err));
    puts(text.p);
    fflush(stdout);
    return RU_OK;
}

static ru_status run(ru_cmd_in *in, ru_err *err)
{
    source s = {0};
    bool json = ru_cmd_flag(in, "json"), terminal = isatty(STDOUT_FILENO) != 0 && !json;
    bool once = ru_cmd_flag(in, "once") || (!terminal && !json);
    RU_TRY(open_source(in, &s, err));
    for (;;) {
        ru_arena arena;
        ru_arena_init(&arena, 0);
        ru_top t;
        ru_status st = look(&s, &arena, &t, err);
        if (st == RU_OK && json) {
            st = put_json(&t, &arena, err);
        } else if (st == RU_OK) {
            put_screen(&t, terminal, &arena);
        }
        bool ended = st == RU_OK && t.ended != NULL;
        ru_arena_fini(&arena);
        if (st != RU_OK || once || ended) {
            return st;
        }
        ru_clock_pause(ru_cmd_i64(in, "every"));
    }
}

static const ru_opt opts[] = {
    RU_OPT(TIME, "every", "TIME", "time between two views", .def = "1s",
           RU_IN(100000000, 3600000000000)),
    RU_OPT(TEXT, "token-file", "FILE",
           "of HOST:PORT: file with the token, OUT/token of the run (default: RUBATO_TOKEN)"),
    RU_OPT(FLAG, "once", NULL, "print one view and exit"),
    RU_OPT(FLAG, "json", NULL, "print the views as JSON Lines (rubato.top/1) on stdout"),
};

static const ru_example examples[] = {
    {"rubato top runs/lenet", "watch a run until it ends; Ctrl-C leaves it alone"},
    {"rubato top runs/lenet --once", "print one view"},
    {"rubato top node7:9400 --token-file token", "watch a job that runs with --metrics :9400"},
};

const ru_cmd rui_cmd_top = {
    .name = "top",
    .summary = "show what a run does now, rank by rank",
    .about =
        "RUN is the folder of a run on this machine or on a disk that its machines share, or "
        "HOST:PORT "
        "of a job that was started with --metrics. Every "
        "second the view shows the last ten seconds: steps a second of each rank; how its time "
        "divides into compute, network, waiting for a peer, input and other; how many steps it is "
        "behind; bytes a second that it sends for sums of gradients and for copies of the state; "
        "ranks that are silent; causes of lost time; the last events. The view reads files only "
        "and cannot slow the job.",
    RU_CMD_ARGS("RUN|HOST:PORT", 1, 1),
    RU_CMD_LISTS(opts, examples),
    .exits = "66 there is no such run|69 nobody answers at HOST:PORT|77 the token is not the job's",
    .run = run,
};
