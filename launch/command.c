/* The command lines of workers. */
#include "launch/launch_impl.h"

#include "env/link/link_tcp.h"
#include "launch/ssh.h"
#include "train/pipe/pipe.h"

static void word(rui_words *w, const char *text)
{
    RU_CHECK(w->n + 1 < RUI_ARGS_MAX && text != NULL);
    w->at[w->n++] = text;
}

static void word_number(rui_words *w, const char *name, int64_t v)
{
    word(w, name);
    word(w, ru_arena_printf(w->arena, "%lld", (long long)v));
}

static void say_how_much(const ru_launch_options *o, rui_words *w)
{
    word(w, "--messages");
    word(w, o->train->columns > 0 ? "progress" : "run");
    if (o->train->quiet) {
        word(w, "-q");
    }
    for (int k = 0; k < o->verbose && k < 2; k++) {
        word(w, "-v");
    }
}

void rui_command_line(rui_launcher *l, const rui_child *c, const char *join, bool newcomer,
                      rui_words *w)
{
    const ru_launch_options *o = l->opt;
    word(w, l->exe);
    word(w, "worker");
    word(w, "--job");
    word(w, ru_path_join(l->arena, l->out, "job.yaml"));
    word(w, "--out");
    word(w, l->out);
    word_number(w, "--founders", o->parts ? o->n_max : o->n_start);
    word_number(w, "--begin", o->n_begin > 0 ? o->n_begin : 1);
    word_number(w, "--min", o->n_min);
    word_number(w, "--max", o->parts ? o->n_max + RU_PIPE_SPARES_MAX : o->n_max);
    word_number(w, "--threads", l->threads);
    word_number(w, "--rank", o->rank_first + c->rank);
    if (l->cores != NULL && c->slot < o->n_max) {
        word(w, "--cores");
        word(w, ru_arena_printf(l->arena, "%llx", (unsigned long long)l->cores[c->slot]));
    }
    if (join != NULL) {
        word(w, "--join");
        word(w, join);
    }
    if (newcomer) {
        word(w, "--newcomer");
    }
    bool there = join == NULL && o->at != NULL && ru_link_tcp_free(o->at);
    if (there) { /* who had joined looks for it there */
        word(w, "--listen");
        word(w, o->at);
    } else if (o->listen != NULL) {
        word(w, "--listen");
        word(w, join == NULL ? o->listen : ":0");
        if (join == NULL && o->toward != NULL) {
            word(w, "--toward");
            word(w, o->toward);
        }
    }
    if (o->weights != NULL && join == NULL) {
        word(w, "--weights");
        word(w, o->weights);
    }
    bool far = o->parts && (o->hosts != NULL || o->spares > 0);
    if (o->spares > 0 && join == NULL) {
        word_number(w, "--spares", o->spares);
    }
    if (o->sets != NULL && (!far || c->rank == 1)) {
        word(w, "--sets");
        word(w, o->sets);
    }
    if (far) {
        word(w, "--far");
        word_number(w, "--after", o->after);
    }
    if (o->train->resume) {
        word(w, "--resume");
    }
    if (o->deterministic) {
        word(w, "--deterministic");
    }
    if (o->equal_shares) {
        word(w, "--equal-shares");
    }
    if (o->sockets_only) {
        word(w, "--sockets");
    }
    if (o->transient) {
        word(w, "--tier");
        word(w, "transient");
    }
    say_how_much(o, w);
}

uint32_t rui_threads_asked(const rui_launcher *l)
{
    const ru_launch_options *o = l->opt;
    return o->app != NULL ? o->app->job->train.threads : o->train->job->train.threads;
}

/* The same program under the same path on another host, as a newcomer: it asks for job and state,
 * and reads the token from its input, where nobody sees it. RUBATO_SSH replaces the command. */
void rui_remote_line(rui_launcher *l, const rui_child *c, const char *join, rui_words *w)
{
    const char *words[RU_SSH_WORDS_MAX];
    uint32_t n = ru_ssh_words(l->arena, c->host, l->exe, words);
    for (uint32_t k = 0; k < n; k++) {
        word(w, words[k]);
    }
    word(w, "worker");
    word(w, "--join");
    word(w, join);
    word(w, ru_hosts_transient(l->opt->hosts, c->host) ? "--tier=transient" : "--tier=reliable");
    word(w, "--token-file");
    word(w, "-");
    word(w, "--listen");
    word(w, ":0");
    word_number(w, "--rank", c->rank);
    if (rui_threads_asked(l) != 0) {
        word_number(w, "--threads", rui_threads_asked(l));
    }
    if (l->opt->parts) {
        word_number(w, "--founders", l->opt->n_max);
        word(w, "--far");
        word_number(w, "--after", l->opt->after);
        if (l->opt->train->resume && l->opt->after == 0) { /* the folder of the run is there */
            word(w, "--resume");
        }
    }
    if (l->opt->deterministic) {
        word(w, "--deterministic");
    }
    if (l->opt->equal_shares) {
        word(w, "--equal-shares");
    }
    say_how_much(l->opt, w);
}
