/* What all members of a job must agree on, by name: a joiner tells it in its HELLO, the leader
 * holds it against its own. Whoever differs is refused for good, and both ends say in what. */
#include <string.h>

#include "comm/member/member_impl.h"

enum { NAMED_MAX = 4, VALUE_MAX = 60 };

/* "name value" */
static ru_str name_of(ru_str line)
{
    int64_t blank = ru_str_find(line, " ");
    return blank < 0 ? line : ru_str_n(line.p, blank);
}

static bool value_of(ru_str text, ru_str name, ru_str *value)
{
    ru_str line;
    while (ru_str_next(&text, '\n', &line)) {
        if (name.n > 0 && ru_str_eq(name_of(line), name)) {
            *value = ru_str_from(line, name.n + 1);
            return true;
        }
    }
    return false;
}

static void put_value(ru_text *t, ru_str v)
{
    if (v.n == 0) {
        ru_text_put(t, "empty");
    }
    for (int64_t i = 0; i < v.n && i < VALUE_MAX; i++) {
        ru_text_putf(t, "%c", v.p[i] < ' ' || v.p[i] > '~' ? '?' : v.p[i]);
    }
    ru_text_put(t, v.n > VALUE_MAX ? "..." : "");
}

/* What both name and give different values, as one sees it who has `mine`. */
uint32_t rui_m_differences(ru_str mine, ru_str theirs, ru_text *t)
{
    ru_str rest = mine, line, other;
    uint32_t n = 0;
    while (ru_str_next(&rest, '\n', &line)) {
        ru_str name = name_of(line), value = ru_str_from(line, name.n + 1);
        if (!value_of(theirs, name, &other) || ru_str_eq(value, other) || ++n > NAMED_MAX) {
            continue;
        }
        ru_text_putf(t, "%s%.*s is ", n > 1 ? "; " : "", RU_STR_ARG(name));
        put_value(t, value);
        ru_text_put(t, " here, ");
        put_value(t, other);
        ru_text_put(t, " there");
    }
    if (n > NAMED_MAX) {
        ru_text_putf(t, "; and %u more", n - NAMED_MAX);
    }
    return n;
}

static ru_str own(const ru_member *m)
{
    return ru_str_c(m->opt.agreed);
}

static void refuse(ru_member *m, rui_m_peer *p, const char *address, const char *here,
                   const char *there, ru_effects *fx)
{
    enum { AGAIN_NS = 1000000000, DROP_NS = 2000000000 };
    if (p->told_at.ns != 0 && rui_m_since(m, p->told_at) < AGAIN_NS) {
        return;
    }
    p->told_at = m->now;
    p->drop_at = ru_time_after(m->now, DROP_NS);
    m->refused++;
    memcpy(m->refused_why, here, sizeof m->refused_why);
    ru_fx_log(fx, RU_LOG_WARN, "the process at %.70s may not join: %s", address, here);
    uint8_t buf[RUI_SMALL_MAX];
    ru_fx_send(fx, p->node, RUI_M_REFUSED, buf, rui_m_put_refused(buf, sizeof buf, there));
}

bool rui_m_agrees(ru_member *m, rui_m_peer *p, const ru_member_info *who, ru_str theirs,
                  ru_effects *fx)
{
    char here[RUI_M_REFUSED_MAX], there[RUI_M_REFUSED_MAX];
    ru_text h = ru_text_into(here, sizeof here), t = ru_text_into(there, sizeof there);
    if (rui_m_differences(own(m), theirs, &h) == 0) {
        return true;
    }
    (void)rui_m_differences(theirs, own(m), &t);
    refuse(m, p, who->address, here, there, fx);
    return false;
}

bool rui_m_same_version(ru_member *m, const ru_event *ev, ru_effects *fx)
{
    ru_wire_in w = ru_wire_in_from(ev->data, ev->size_bytes);
    uint32_t version = ru_wire_u32(&w);
    if (w.bad || rui_m_version_ok(version)) {
        return true; /* if it is malformed, that is found elsewhere */
    }
    char here[RUI_M_REFUSED_MAX], there[RUI_M_REFUSED_MAX], who[RUI_WHO_MAX];
    ru_text h = ru_text_into(here, sizeof here), t = ru_text_into(there, sizeof there);
    ru_text_putf(&h, "the version of the protocol is %d here, %u there", RUI_M_VERSION, version);
    ru_text_putf(&t, "the version of the protocol is %u here, %d there", version, RUI_M_VERSION);
    rui_m_peer *p = rui_m_peer_find(m, ev->node);
    RU_CHECK(p != NULL);
    refuse(m, p, rui_m_who(m, ev->node, who, sizeof who), here, there, fx);
    return false;
}

void rui_m_refused(ru_member *m, const ru_event *ev, ru_effects *fx)
{
    char why[RUI_M_REFUSED_MAX];
    if (!rui_m_get_refused(ev, why)) {
        rui_m_hostile(m, fx, ev->node, "a malformed refusal");
    } else if (m->phase == RUI_JOINS) {
        rui_m_out_for(m, fx, RU_E_CONFIG,
                      "this worker differs from the job that it would join: %s; start it with the "
                      "same job, data, options and program as the others",
                      why);
    }
}
