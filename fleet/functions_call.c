/* Calls of workers: what they are told, what their answers mean. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/conf.h"
#include "base/json.h"
#include "base/log.h"
#include "fleet/functions_impl.h"

/* A call under way. */
typedef struct calling {
    rui_functions *a;
    ru_func_call call;
} calling;

typedef struct told {
    const char *error, *message, *why;
    int64_t step;
} told;

static const ru_conf_field told_fields[] = {
    RU_ROW_AS("errorType", TEXT, told, error, "", "of a function that failed"),
    RU_ROW_AS("errorMessage", TEXT, told, message, "", "its sentence"),
    RU_ROW(TEXT, told, why, "", "why no step follows"),
    RU_ROW(I64, told, step, "-1", "steps done"),
};
static const ru_conf_table told_table = RU_TABLE("answer", told, told_fields, NULL);

/* Would another instance fail as well? */
static ru_func_result result_of(const ru_function_outcome *o, const told *t)
{
    ru_function_result r = o->answer.result;
    static const ru_status again[] = {RU_E_PEER, RU_E_AGAIN, RU_E_IO, RU_E_CANCELLED};
    if (r != RU_FUNCTION_ERROR) {
        return r == RU_FUNCTION_OK       ? RU_FUNC_ENDED
               : r == RU_FUNCTION_MEMORY ? RU_FUNC_MEMORY
                                         : RU_FUNC_LOST;
    }
    if (strcmp(t->error, ru_status_name(RU_E_MEM)) == 0) {
        return RU_FUNC_MEMORY;
    }
    for (uint32_t k = 0; k < RU_ARRAY_LEN(again); k++) {
        if (strcmp(t->error, ru_status_name(again[k])) == 0) {
            return RU_FUNC_LOST;
        }
    }
    return t->error[0] != '\0' ? RU_FUNC_REFUSED : RU_FUNC_LOST;
}

static void on_done(void *self, const ru_function_outcome *o)
{
    const calling *c = self;
    ru_arena scratch;
    ru_conf *conf;
    told t = {.error = "", .message = "", .why = "", .step = -1};
    ru_arena_init(&scratch, 0);
    bool read = o->n > 0 && ru_conf_new(&told_table, &scratch, &conf, NULL) == RU_OK &&
                ru_conf_add_json(conf, "answer", o->text, o->n, NULL) == RU_OK &&
                ru_conf_apply(conf, &t, NULL) == RU_OK;
    ru_func_answer ans = {
        .epoch = c->call.epoch, .rank = c->call.rank, .result = result_of(o, &t), .step = t.step};
    bool ok = ans.result == RU_FUNC_ENDED;
    if (ok && (!read || t.step < 0)) { /* a platform that says 200 and nothing else */
        ans.result = strcmp(t.why, "fenced") == 0 ? RU_FUNC_ENDED : RU_FUNC_LOST;
    }
    ru_text why = ru_text_into(ans.why, sizeof ans.why);
    const char *text = t.message[0] != '\0' ? t.message
                       : ok                 ? "it answers something else than a worker"
                                            : o->why;
    ru_text_putf(&why, "worker %u: %.340s", c->call.rank, text);
    c->a->memory = c->a->memory || ans.result == RU_FUNC_MEMORY;
    if (ans.result != RU_FUNC_ENDED) {
        ru_log(RU_LOG_WARN, "functions", "lost", "epoch %u, %s", c->call.epoch, ans.why);
    }
    ru_arena_fini(&scratch);
    if (rui_functions_holds(c->a, &ans)) {
        return;
    }
    rui_functions_say(c->a, RU_FUNC_ANSWER, 0, &ans, sizeof ans);
    rui_functions_answered(c->a);
}

static ru_status put_files(rui_functions *a, const ru_func_call *call, ru_arena *arena, ru_json *j,
                           ru_err *err)
{
    ru_follow_part p;
    if (a->follow.files == NULL) {
        return RU_OK;
    }
    RU_TRY(rui_functions_follow_files(a, call, arena, &p, err));
    ru_json_open(j, "files", '[');
    for (uint32_t k = 0; k < p.n; k++) {
        ru_json_str(j, NULL, p.paths[k]);
    }
    ru_json_close(j);
    ru_json_i64(j, "before", p.before);
    ru_json_i64(j, "samples", p.samples);
    return RU_OK;
}

void rui_functions_call(rui_functions *a, const ru_func_call *call)
{
    ru_arena scratch;
    ru_err err = {0};
    ru_arena_init(&scratch, 0);
    ru_text body = ru_text_arena(&scratch);
    ru_json j = ru_json_into(&body);
    char text[64];
    calling *c = RU_NEW(&a->loop_arena, calling, 1);
    (void)snprintf(text, sizeof text, "%016" PRIx64, a->job);
    ru_json_open(&j, NULL, '{');
    ru_json_str(&j, "store", a->reach);
    ru_json_str(&j, "token", a->token);
    ru_json_str(&j, "keys", a->opt->keys != NULL ? a->opt->keys : "");
    ru_json_str(&j, "job", text);
    ru_json_i64(&j, "epoch", call->epoch);
    ru_json_i64(&j, "rank", call->rank);
    ru_json_i64(&j, "workers", call->workers);
    ru_json_i64(&j, "first", call->first);
    ru_json_i64(&j, "end", call->end);
    ru_json_i64(&j, "steps", a->run.steps);
    ru_json_i64(&j, "at", a->run.samples);
    ru_json_i64(&j, "batch", a->run.batch);
    ru_json_f64(&j, "left_s", (double)a->opt->scale.life_ns * 1e-9);
    ru_status st = put_files(a, call, &scratch, &j, &err);
    ru_json_str(&j, "facts", a->run.facts);
    ru_json_close(&j);
    if (st == RU_OK && (c == NULL || body.cut)) {
        st = RU_FAIL(&err, RU_E_MEM, "no memory for a call");
    }
    if (st == RU_OK) {
        *c = (calling){.a = a, .call = *call};
        st = ru_function_host_call(a->host, call->memory_mb, body.p, body.n, on_done, c, &err);
    }
    ru_arena_fini(&scratch);
    if (st != RU_OK) {
        rui_functions_fail(a, st, err.text);
    }
}
