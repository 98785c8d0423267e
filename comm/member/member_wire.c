/* Membership messages to bytes and back. All little-endian (base/wire.h), texts with their length
 * in front; every field of what arrives is checked before anything of it is used. */
#include <string.h>

#include "comm/member/member_impl.h"

/* Printable, no blanks: it goes into log lines and to the resolver. */
static bool word_ok(const char *s, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (s[i] <= ' ' || s[i] > '~') {
            return false;
        }
    }
    return true;
}

bool rui_m_address_ok(const char *s, uint32_t n)
{
    return n > 0 && n < RU_MEMBER_ADDRESS_MAX && word_ok(s, n);
}

static void put_text(ru_wire_out *w, const char *s)
{
    ru_wire_put_text(w, s, (uint32_t)strlen(s));
}

/* A text into `into` with its NUL; false when it is too long or not printable. */
static bool get_word(ru_wire_in *w, char *into, uint32_t cap)
{
    uint32_t n = 0;
    const char *s = ru_wire_text(w, cap - 1, &n);
    if (w->bad || !word_ok(s, n)) {
        return false;
    }
    if (n > 0) {
        memcpy(into, s, n);
    }
    into[n] = '\0';
    return true;
}

static bool done(const ru_wire_in *w)
{
    return !w->bad && ru_wire_left(w) == 0;
}

static ru_wire_in from(const ru_event *ev)
{
    return ru_wire_in_from(ev->data, ev->size_bytes);
}

static int64_t written(const ru_wire_out *w)
{
    RU_CHECK(!w->bad);
    return ru_wire_size(w);
}

/* Capacity, tier and vote share a word: bits 0-23, 24-25, 31. The others are 0. */
enum { TIER_AT = 24, TIER_MASK = 3, NO_VOTE_AT = 31 };

static void put_kind(ru_wire_out *w, const ru_member_info *info)
{
    RU_CHECK(info->capacity <= RU_MEMBER_CAPACITY_MAX);
    ru_wire_put_u32(w, info->capacity | (uint32_t)info->tier << TIER_AT |
                           (uint32_t)info->no_vote << NO_VOTE_AT);
}

static bool get_kind(ru_wire_in *w, ru_member_info *info)
{
    uint32_t kind = ru_wire_u32(w), tier = kind >> TIER_AT & TIER_MASK;
    uint32_t known =
        RU_MEMBER_CAPACITY_MAX | (uint32_t)TIER_MASK << TIER_AT | UINT32_C(1) << NO_VOTE_AT;
    info->capacity = kind & RU_MEMBER_CAPACITY_MAX;
    info->tier = (ru_tier)tier;
    info->no_vote = kind >> NO_VOTE_AT != 0;
    return (kind & ~known) == 0 && tier < RU_TIERS;
}

void rui_m_put_info(ru_wire_out *w, const ru_member_info *info)
{
    ru_wire_put_u64(w, info->node.v);
    ru_wire_put_u32(w, info->number);
    put_kind(w, info);
    put_text(w, info->address);
    put_text(w, info->host);
}

bool rui_m_get_info(ru_wire_in *w, ru_member_info *info)
{
    info->node.v = ru_wire_u64(w);
    info->number = ru_wire_u32(w);
    return get_kind(w, info) && get_word(w, info->address, sizeof info->address) &&
           get_word(w, info->host, sizeof info->host) && info->node.v != 0 &&
           info->address[0] != '\0';
}

/* The least version that its receiver must know. */
static uint32_t version_of(const ru_member_info *self)
{
    bool alike = self->tier == RU_TIER_RELIABLE && !self->no_vote;
    return alike ? RUI_M_VERSION_ALIKE : RUI_M_VERSION;
}

bool rui_m_version_ok(uint32_t version)
{
    return version >= RUI_M_VERSION_ALIKE && version <= RUI_M_VERSION;
}

int64_t rui_m_put_hello(void *buf, int64_t cap, const ru_member_info *self, ru_str agreed)
{
    ru_wire_out w = ru_wire_out_into(buf, cap);
    ru_wire_put_u32(&w, version_of(self));
    rui_m_put_info(&w, self);
    ru_wire_put_text(&w, agreed.p, (uint32_t)agreed.n);
    return written(&w);
}

bool rui_m_get_hello(const ru_event *ev, ru_member_info *self, ru_str *agreed)
{
    ru_wire_in w = from(ev);
    uint32_t version = ru_wire_u32(&w);
    if (!rui_m_version_ok(version) || !rui_m_get_info(&w, self) || version < version_of(self)) {
        return false;
    }
    uint32_t n = 0;
    const char *text = ru_wire_text(&w, RU_MEMBER_AGREED_MAX, &n);
    *agreed = ru_str_n(text, n);
    return done(&w) && ru_node_is(self->node, ev->node);
}

int64_t rui_m_put_refused(void *buf, int64_t cap, const char *why)
{
    ru_wire_out w = ru_wire_out_into(buf, cap);
    put_text(&w, why);
    return written(&w);
}

/* A sentence for people: what is not printable is shown as '?'. */
static bool get_sentence(ru_wire_in *w, char *why, uint32_t cap)
{
    uint32_t n = 0;
    const char *s = ru_wire_text(w, cap - 1, &n);
    if (!done(w)) {
        return false;
    }
    for (uint32_t i = 0; i < n; i++) {
        why[i] = s[i] < ' ' || s[i] > '~' ? '?' : s[i];
    }
    why[n] = '\0';
    return true;
}

bool rui_m_get_refused(const ru_event *ev, char why[RUI_M_REFUSED_MAX])
{
    ru_wire_in w = from(ev);
    return get_sentence(&w, why, RUI_M_REFUSED_MAX);
}

int64_t rui_m_put_redirect(void *buf, int64_t cap, ru_node_id lead, const char *address)
{
    ru_wire_out w = ru_wire_out_into(buf, cap);
    ru_wire_put_u64(&w, lead.v);
    put_text(&w, address);
    return written(&w);
}

bool rui_m_get_redirect(const ru_event *ev, ru_node_id *lead, char address[RU_MEMBER_ADDRESS_MAX])
{
    ru_wire_in w = from(ev);
    lead->v = ru_wire_u64(&w);
    return get_word(&w, address, RU_MEMBER_ADDRESS_MAX) && done(&w) &&
           (lead->v == 0) == (address[0] == '\0');
}

bool rui_m_get_welcome(const ru_event *ev, rui_m_target *into, uint32_t n_max, uint32_t *n,
                       bool *full)
{
    ru_wire_in w = from(ev);
    uint8_t f = ru_wire_u8(&w);
    uint32_t count = ru_wire_u32(&w);
    if (w.bad || f > 1 || count > n_max) {
        return false;
    }
    *n = 0;
    for (uint32_t i = 0; i < count; i++) {
        into[i] = (rui_m_target){.node = {ru_wire_u64(&w)}};
        if (!get_word(&w, into[i].address, sizeof into[i].address) || into[i].node.v == 0 ||
            into[i].address[0] == '\0') {
            return false;
        }
    }
    *full = f == 1;
    *n = done(&w) ? count : 0;
    return done(&w);
}

int64_t rui_m_put_beat(void *buf, int64_t cap, const rui_m_beat *b)
{
    ru_wire_out w = ru_wire_out_into(buf, cap);
    ru_wire_put_u8(&w, b->flags);
    ru_wire_put_u32(&w, b->epoch);
    ru_wire_put_u32(&w, b->accepted);
    ru_wire_put_u32(&w, b->promised);
    ru_wire_put_u64(&w, b->promised_to.v);
    ru_wire_put_u8(&w, (uint8_t)b->n_broken);
    for (uint32_t i = 0; i < b->n_broken; i++) {
        ru_wire_put_u64(&w, b->broken[i].node.v);
        ru_wire_put_u8(&w, b->broken[i].certain);
    }
    ru_wire_put_u8(&w, b->has_status);
    if (b->has_status) {
        ru_wire_put_text(&w, b->status, b->status_bytes);
    }
    return written(&w);
}

static bool get_status(ru_wire_in *w, const void **status, uint32_t *size_bytes)
{
    *size_bytes = 0;
    *status = ru_wire_text(w, RU_MEMBER_STATUS_MAX, size_bytes);
    return !w->bad;
}

bool rui_m_get_beat(const ru_event *ev, rui_m_beat *b)
{
    ru_wire_in w = from(ev);
    *b = (rui_m_beat){.flags = ru_wire_u8(&w)};
    b->epoch = ru_wire_u32(&w);
    b->accepted = ru_wire_u32(&w);
    b->promised = ru_wire_u32(&w);
    b->promised_to.v = ru_wire_u64(&w);
    b->n_broken = ru_wire_u8(&w);
    if (w.bad || (b->flags & ~RUI_B_ALL) != 0 || b->n_broken > RUI_M_BROKEN_MAX) {
        return false;
    }
    for (uint32_t i = 0; i < b->n_broken; i++) {
        b->broken[i].node.v = ru_wire_u64(&w);
        uint8_t certain = ru_wire_u8(&w);
        if (certain > 1 || b->broken[i].node.v == 0) {
            return false;
        }
        b->broken[i].certain = certain == 1;
    }
    uint8_t has = ru_wire_u8(&w);
    b->has_status = has == 1;
    return has <= 1 && (!b->has_status || get_status(&w, &b->status, &b->status_bytes)) && done(&w);
}

int64_t rui_m_put_takeover(void *buf, int64_t cap, uint32_t ballot, uint32_t epoch,
                           uint32_t accepted)
{
    ru_wire_out w = ru_wire_out_into(buf, cap);
    ru_wire_put_u32(&w, ballot);
    ru_wire_put_u32(&w, epoch);
    ru_wire_put_u32(&w, accepted);
    return written(&w);
}

bool rui_m_get_takeover(const ru_event *ev, uint32_t *ballot, uint32_t *epoch, uint32_t *accepted)
{
    ru_wire_in w = from(ev);
    *ballot = ru_wire_u32(&w);
    *epoch = ru_wire_u32(&w);
    *accepted = ru_wire_u32(&w);
    return done(&w) && *epoch > 0 && *ballot > *epoch && *ballot > *accepted;
}

int64_t rui_m_put_answer(void *buf, int64_t cap, const rui_m_answer *a)
{
    ru_wire_out w = ru_wire_out_into(buf, cap);
    ru_wire_put_u32(&w, a->ballot);
    ru_wire_put_u8(&w, a->granted);
    ru_wire_put_u32(&w, a->epoch);
    ru_wire_put_u32(&w, a->accepted);
    ru_wire_put_u32(&w, a->promised);
    ru_wire_put_text(&w, a->status, a->status_bytes);
    return written(&w);
}

bool rui_m_get_answer(const ru_event *ev, rui_m_answer *a)
{
    ru_wire_in w = from(ev);
    a->ballot = ru_wire_u32(&w);
    uint8_t granted = ru_wire_u8(&w);
    a->granted = granted == 1;
    a->epoch = ru_wire_u32(&w);
    a->accepted = ru_wire_u32(&w);
    a->promised = ru_wire_u32(&w);
    return granted <= 1 && get_status(&w, &a->status, &a->status_bytes) && done(&w);
}

int64_t rui_m_put_out(void *buf, int64_t cap, uint32_t epoch, const char *why)
{
    ru_wire_out w = ru_wire_out_into(buf, cap);
    ru_wire_put_u32(&w, epoch);
    put_text(&w, why);
    return written(&w);
}

bool rui_m_get_out(const ru_event *ev, uint32_t *epoch, char why[RUI_M_WHY_MAX])
{
    ru_wire_in w = from(ev);
    *epoch = ru_wire_u32(&w);
    return get_sentence(&w, why, RUI_M_WHY_MAX);
}

bool rui_m_get_view_part(const ru_event *ev, rui_m_view_part *p)
{
    ru_wire_in w = from(ev);
    uint8_t kind = ru_wire_u8(&w);
    p->kind = (rui_m_view_kind)kind;
    p->epoch = ru_wire_u32(&w);
    p->total_bytes = ru_wire_u32(&w);
    p->offset = ru_wire_u32(&w);
    p->data_bytes = ru_wire_left(&w);
    p->data = ru_wire_bytes(&w, p->data_bytes);
    return !w.bad && kind < RUI_VIEW_KINDS && p->epoch > 0 && p->data_bytes > 0 &&
           p->offset <= p->total_bytes && p->data_bytes <= p->total_bytes - p->offset;
}

static bool get_removed(ru_wire_in *w, uint32_t n_max, rui_m_view_head *h)
{
    h->n_removed = ru_wire_u32(w);
    if (w->bad || h->n_removed > n_max) {
        return false;
    }
    h->removed = ru_wire_bytes(w, (int64_t)h->n_removed * 8);
    return !w->bad;
}

bool rui_m_get_view(const uint8_t *bytes, int64_t size_bytes, uint32_t n_max, rui_m_view_head *h)
{
    ru_wire_in w = ru_wire_in_from(bytes, size_bytes);
    *h = (rui_m_view_head){.epoch = ru_wire_u32(&w)};
    h->prev = ru_wire_u32(&w);
    h->base = ru_wire_u32(&w);
    h->leader.v = ru_wire_u64(&w);
    h->number_next = ru_wire_u32(&w);
    h->n_total = ru_wire_u32(&w);
    if (!get_removed(&w, n_max, h)) {
        return false;
    }
    h->n_added = ru_wire_u32(&w);
    if (w.bad || h->n_added > n_max || h->n_total == 0 || h->n_total > n_max || h->leader.v == 0 ||
        h->prev >= h->epoch || (h->base != 0 && h->base != h->prev)) {
        return false;
    }
    if (h->base == 0 && (h->n_removed != 0 || h->n_added != h->n_total)) {
        return false;
    }
    h->added = w;
    uint32_t number = 0;
    for (uint32_t i = 0; i < h->n_added; i++) {
        ru_member_info info;
        if (!rui_m_get_info(&w, &info) || info.number <= number || info.number >= h->number_next) {
            return false;
        }
        number = info.number;
    }
    h->blob_bytes = ru_wire_u32(&w);
    if (w.bad || h->blob_bytes > RU_MEMBER_BLOB_MAX) {
        return false;
    }
    h->blob = ru_wire_bytes(&w, h->blob_bytes);
    return done(&w);
}
