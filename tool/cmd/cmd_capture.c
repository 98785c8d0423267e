/* rubato capture: the world file of a running job, server or cluster. */
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "env/file/file.h"
#include "host/ask.h"
#include "launch/launch.h"
#include "store/world_file.h"
#include "tool/cluster/captured.h"
#include "tool/cluster/cluster.h"
#include "tool/cmd.h"
#include "tool/serve/client.h"

static ru_status put(const ru_world *w, ru_arena *arena, const char **text, int64_t *size,
                     ru_err *err)
{
    ru_text t = ru_text_arena(arena);
    RU_TRY(ru_world_file_put(w, &t, err));
    *text = t.p;
    *size = t.n;
    return RU_OK;
}

static ru_status run(ru_cmd_in *in, ru_err *err)
{
    ru_world_plan one;
    const char *token, *text = NULL, *at = in->args[0], *out = ru_cmd_text(in, "out");
    int64_t size = 0;
    ru_world w;
    const char *cluster = ru_path_join(in->arena, at, "cluster.yaml");
    bool of_cluster = cluster != NULL && ru_path_is_file(cluster);
    if (!of_cluster && rui_captured_is(at, in->arena)) {
        RU_TRY(rui_captured_plan(at, in->arena, &one, err));
        const ru_world made = {.plans = {&one, 1}};
        RU_TRY(put(&made, in->arena, &text, &size, err));
    } else if (of_cluster) {
        const rui_cluster_ask ask = {.folder = at, .path = "/world"};
        char *got = NULL;
        RU_TRY(rui_cluster_asked(&ask, in->arena, &got, &size, err));
        text = got;
    } else if (strncmp(at, "http", 4) == 0 && rui_served_is_address(at)) {
        char *got = NULL;
        RU_TRY(rui_served_get(at, "/v2/rubato/world", in->arena, &got, &size, err));
        text = got;
    } else {
        RU_TRY(ru_token_get(ru_cmd_text(in, "token-file"), in->arena, &token, err));
        RU_TRY(ru_ask_world(at, (const uint8_t *)token, (uint32_t)strlen(token), in->arena, &text,
                            &size, err));
    }
    /* What another program sent is checked before anybody works with it. */
    ru_status st = ru_world_file_parse(at, ru_str_n(text, size), in->arena, &w, err);
    if (st != RU_OK) {
        return ru_err_wrap(err, st, "the world file of %s", at);
    }
    if (of_cluster) {
        RU_TRY(rui_captured_services(at, in->arena, &w, err));
        RU_TRY(put(&w, in->arena, &text, &size, err));
    }
    if (out != NULL) {
        return ru_file_replace(out, text, size, err);
    }
    fwrite(text, 1, (size_t)size, stdout);
    return RU_OK;
}

static const ru_opt opts[] = {
    RU_OPT(TEXT, "token-file", "FILE",
           "file with the job's token (OUT/token of its run); default: RUBATO_TOKEN"),
    RU_OPT(TEXT, "out", "FILE", "file to write (default: standard output)", .letter = 'o'),
};

static const ru_example examples[] = {
    {"rubato capture 10.0.0.5:4000 --token-file runs/digits-1/token > world.json",
     "save facts and plans of a running job"},
    {"rubato capture http://127.0.0.1:8000 -o world.json", "those of a server of models"},
    {"rubato capture /srv/rubato -o world.json && rubato plan world.json alloc",
     "those of a cluster; make the plan of its last round again"},
    {"rubato capture burst -o world.json && rubato plan world.json burst",
     "the last choice of speeds of a service, made again"},
    {"rubato explain world.json", "show what was decided, and why"},
};

const ru_cmd rui_cmd_capture = {
    .name = "capture",
    .summary = "save the world file of a running job, server or cluster",
    .about =
        "HOST:PORT is the address of any worker of the job. The leader writes the file between two "
        "steps. It describes the machine, the job, all measurements so far, and each plan with its "
        "input. http://HOST:PORT is the address of a server (`rubato serve`; its token in "
        "RUBATO_TOKEN): "
        "times of its requests, and its choice of batches. FOLDER is that of a cluster (`rubato "
        "cluster`): nodes, jobs, and what its last round, its markets and its services asked the "
        "policies alloc, bid and burst; or that of one service or fleet (`cluster burst`, `cluster "
        "fleet`). `rubato explain`, `rubato plan` and "
        "`rubato sim` read it on any machine.",
    RU_CMD_ARGS("HOST:PORT|http://HOST:PORT|FOLDER", 1, 1),
    RU_CMD_LISTS(opts, examples),
    .exits = "69 no worker answers, or the token is not the job's|75 the job has no leader at the "
             "moment; try again",
    .run = run,
};
