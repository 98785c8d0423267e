/* Messages of membership, byte by byte: what is right is read, every part of it alone is refused,
 * and so is each field outside of its limits, one at a time. */
#include <string.h>

#include "base/wire.h"
#include "comm/member/member_impl.h"
#include "test/test.h"

enum { CAP = 4096, MEMBERS = 4 };

typedef struct letter {
    uint8_t bytes[CAP];
    ru_wire_out w;
} letter;

typedef bool (*reader)(const letter *l, int64_t size_bytes);

static void begin(letter *l)
{
    memset(l->bytes, 0, sizeof l->bytes);
    l->w = ru_wire_out_into(l->bytes, sizeof l->bytes);
}

static ru_event event_of(const letter *l, int64_t size_bytes)
{
    return (ru_event){
        .kind = RU_EV_MESSAGE, .node = {7}, .data = l->bytes, .size_bytes = size_bytes};
}

/* Readable as it is; no part of it and nothing longer is. */
static void exactly(const letter *l, reader read)
{
    int64_t n = ru_wire_size(&l->w);
    assert_true(!l->w.bad && n < CAP);
    assert_true(read(l, n));
    for (int64_t k = 0; k < n; k++) {
        assert_false(read(l, k));
    }
    assert_false(read(l, n + 1));
}

static bool reads(const letter *l, reader read)
{
    return read(l, ru_wire_size(&l->w));
}

static void text(letter *l, const char *s)
{
    ru_wire_put_text(&l->w, s, (uint32_t)strlen(s));
}

static void info(letter *l, uint64_t node, uint32_t number, const char *address, const char *host)
{
    ru_wire_put_u64(&l->w, node);
    ru_wire_put_u32(&l->w, number);
    ru_wire_put_u32(&l->w, 1);
    text(l, address);
    text(l, host);
}

/* -- joining ------------------------------------------------------------------------------------
 */

static bool read_hello(const letter *l, int64_t size_bytes)
{
    ru_member_info self;
    ru_event ev = event_of(l, size_bytes);
    ru_str agreed;
    return rui_m_get_hello(&ev, &self, &agreed);
}

static bool hello(uint32_t version, uint64_t node, const char *address, const char *host)
{
    letter l;
    begin(&l);
    ru_wire_put_u32(&l.w, version);
    info(&l, node, 0, address, host);
    text(&l, "lr 0.1\n");
    return reads(&l, read_hello);
}

static void test_hello(void **state)
{
    (void)state;
    char longest[RU_MEMBER_ADDRESS_MAX + 1];
    memset(longest, 'a', sizeof longest);
    longest[RU_MEMBER_ADDRESS_MAX - 1] = '\0';
    letter l;
    begin(&l);
    ru_wire_put_u32(&l.w, RUI_M_VERSION);
    info(&l, 7, 0, "h:1", "");
    text(&l, "");
    exactly(&l, read_hello);
    assert_true(hello(RUI_M_VERSION, 7, longest, "host"));
    longest[RU_MEMBER_ADDRESS_MAX - 1] = 'a';
    longest[RU_MEMBER_ADDRESS_MAX] = '\0';
    assert_false(hello(RUI_M_VERSION, 7, longest, "host"));
    assert_false(hello(RUI_M_VERSION + 1, 7, "h:1", ""));
    assert_false(hello(RUI_M_VERSION, 8, "h:1", "")); /* not who sent it */
    assert_false(hello(RUI_M_VERSION, 7, "", ""));
    assert_false(hello(RUI_M_VERSION, 7, "h 1", ""));
    assert_false(hello(RUI_M_VERSION, 7, "h\x7f", ""));
    assert_false(hello(RUI_M_VERSION, 7, "h:1", "a\nb"));
    assert_true(hello(RUI_M_VERSION, 7, "!~", "~!"));
}

static bool kind(uint32_t version, uint32_t bits)
{
    letter l;
    begin(&l);
    ru_wire_put_u32(&l.w, version);
    ru_wire_put_u64(&l.w, 7);
    ru_wire_put_u32(&l.w, 0);
    ru_wire_put_u32(&l.w, bits);
    text(&l, "h:1");
    text(&l, "host");
    text(&l, "");
    return reads(&l, read_hello);
}

/* Cores, tier and vote in one word; who is not like all others says the newer version. */
static void test_kinds(void **state)
{
    (void)state;
    static const uint32_t no_vote = UINT32_C(1) << 31, transient = UINT32_C(1) << 24;
    static const struct {
        uint32_t version, bits;
        bool ok;
    } rows[] = {{3, 8, true},
                {4, 8, true},
                {3, RU_MEMBER_CAPACITY_MAX, true},
                {4, 8 | no_vote, true},
                {4, 8 | transient, true},
                {4, 8 | transient | no_vote, true},
                {3, 8 | no_vote, false},
                {3, 8 | transient, false},
                {2, 8, false},
                {5, 8, false},
                {4, 8 | 2 * transient, false},
                {4, 8 | UINT32_C(1) << 26, false},
                {4, 8 | UINT32_C(1) << 30, false}};
    for (uint32_t i = 0; i < RU_ARRAY_LEN(rows); i++) {
        assert_int_equal(kind(rows[i].version, rows[i].bits), rows[i].ok);
    }
    for (uint32_t k = 0; k < 4; k++) {
        ru_member_info self = {.node = {7}, .address = "h:1", .capacity = 12}, have;
        self.tier = k % 2 == 0 ? RU_TIER_RELIABLE : RU_TIER_TRANSIENT;
        self.no_vote = k > 1;
        uint8_t buf[256];
        ru_str agreed;
        ru_event ev = {.kind = RU_EV_MESSAGE, .node = {7}, .data = buf};
        ev.size_bytes = rui_m_put_hello(buf, sizeof buf, &self, ru_str_c(""));
        assert_int_equal(buf[0], k == 0 ? 3 : 4);
        assert_true(rui_m_get_hello(&ev, &have, &agreed));
        assert_true(have.capacity == 12 && have.tier == self.tier && have.no_vote == self.no_vote);
    }
}

static bool read_redirect(const letter *l, int64_t size_bytes)
{
    ru_node_id lead;
    char address[RU_MEMBER_ADDRESS_MAX];
    ru_event ev = event_of(l, size_bytes);
    return rui_m_get_redirect(&ev, &lead, address);
}

static void test_redirect(void **state)
{
    (void)state;
    static const struct {
        uint64_t lead;
        const char *address;
        bool ok;
    } rows[] = {{9, "h:1", true}, {0, "", true}, {9, "", false}, {0, "h:1", false}};
    for (uint32_t i = 0; i < RU_ARRAY_LEN(rows); i++) {
        letter l;
        begin(&l);
        ru_wire_put_u64(&l.w, rows[i].lead);
        text(&l, rows[i].address);
        assert_int_equal(reads(&l, read_redirect), rows[i].ok);
        if (rows[i].ok) {
            exactly(&l, read_redirect);
        }
    }
}

static bool read_welcome(const letter *l, int64_t size_bytes)
{
    rui_m_target targets[MEMBERS];
    uint32_t n = 99;
    bool full;
    ru_event ev = event_of(l, size_bytes);
    return rui_m_get_welcome(&ev, targets, MEMBERS, &n, &full) && n <= MEMBERS;
}

static bool welcome(uint8_t full, uint32_t n, uint64_t node, const char *address)
{
    letter l;
    begin(&l);
    ru_wire_put_u8(&l.w, full);
    ru_wire_put_u32(&l.w, n);
    for (uint32_t i = 0; i < n; i++) {
        ru_wire_put_u64(&l.w, node);
        text(&l, address);
    }
    if (reads(&l, read_welcome)) {
        exactly(&l, read_welcome);
        return true;
    }
    return false;
}

static void test_welcome(void **state)
{
    (void)state;
    assert_true(welcome(0, 0, 1, "h:1"));
    assert_true(welcome(1, MEMBERS, 1, "h:1"));
    assert_false(welcome(2, 1, 1, "h:1"));
    assert_false(welcome(0, MEMBERS + 1, 1, "h:1"));
    assert_false(welcome(0, 1, 0, "h:1"));
    assert_false(welcome(0, 1, 1, ""));
    assert_false(welcome(0, 1, 1, "h\t"));
}

/* -- life ---------------------------------------------------------------------------------------
 */

static bool read_beat(const letter *l, int64_t size_bytes)
{
    rui_m_beat b;
    ru_event ev = event_of(l, size_bytes);
    return rui_m_get_beat(&ev, &b);
}

typedef struct beat_row {
    uint32_t flags, n_broken, certain, status_bytes, has_status;
    uint64_t node;
    bool ok;
} beat_row;

static void beat(letter *l, const beat_row *r)
{
    static const uint8_t status[RU_MEMBER_STATUS_MAX + 1];
    begin(l);
    ru_wire_put_u8(&l->w, (uint8_t)r->flags);
    ru_wire_put_u32(&l->w, 1);
    ru_wire_put_u32(&l->w, 2);
    ru_wire_put_u32(&l->w, 3);
    ru_wire_put_u64(&l->w, 4);
    ru_wire_put_u8(&l->w, (uint8_t)r->n_broken);
    for (uint32_t i = 0; i < r->n_broken; i++) {
        ru_wire_put_u64(&l->w, r->node);
        ru_wire_put_u8(&l->w, (uint8_t)r->certain);
    }
    ru_wire_put_u8(&l->w, (uint8_t)r->has_status);
    if (r->has_status != 0) {
        ru_wire_put_text(&l->w, (const char *)status, r->status_bytes);
    }
}

static void test_beat(void **state)
{
    (void)state;
    static const beat_row rows[] = {
        {.flags = RUI_B_ALL, .ok = true},
        {.flags = RUI_B_ALL + 1},
        {.n_broken = RUI_M_BROKEN_MAX, .node = 5, .certain = 1, .ok = true},
        {.n_broken = RUI_M_BROKEN_MAX + 1, .node = 5},
        {.n_broken = 1, .node = 0},
        {.n_broken = 1, .node = 5, .certain = 2},
        {.has_status = 1, .status_bytes = RU_MEMBER_STATUS_MAX, .ok = true},
        {.has_status = 1, .status_bytes = RU_MEMBER_STATUS_MAX + 1},
        {.has_status = 2, .status_bytes = 1},
    };
    for (uint32_t i = 0; i < RU_ARRAY_LEN(rows); i++) {
        letter l;
        beat(&l, &rows[i]);
        assert_int_equal(reads(&l, read_beat), rows[i].ok);
        if (rows[i].ok) {
            exactly(&l, read_beat);
        }
    }
    letter l; /* and what was written is what is read */
    rui_m_beat b = {.flags = 3, .epoch = 10, .accepted = 11, .promised = 12, .promised_to = {13}},
               have;
    b.broken[0] = (rui_m_broken){{14}, true};
    b.n_broken = b.has_status = true;
    b.status = "abc";
    b.status_bytes = 3;
    begin(&l);
    ru_event ev = event_of(&l, rui_m_put_beat(l.bytes, CAP, &b));
    assert_true(rui_m_get_beat(&ev, &have));
    assert_int_equal(have.flags, 3);
    assert_int_equal(have.epoch, 10);
    assert_int_equal(have.accepted, 11);
    assert_int_equal(have.promised, 12);
    assert_int_equal(have.promised_to.v, 13);
    assert_int_equal(have.n_broken, 1);
    assert_int_equal(have.broken[0].node.v, 14);
    assert_true(have.broken[0].certain && have.has_status);
    assert_int_equal(have.status_bytes, 3);
    assert_memory_equal(have.status, "abc", 3);
}

/* -- taking over --------------------------------------------------------------------------------
 */

static bool read_takeover(const letter *l, int64_t size_bytes)
{
    uint32_t ballot, epoch, accepted;
    ru_event ev = event_of(l, size_bytes);
    return rui_m_get_takeover(&ev, &ballot, &epoch, &accepted);
}

static bool read_answer(const letter *l, int64_t size_bytes)
{
    rui_m_answer a;
    ru_event ev = event_of(l, size_bytes);
    return rui_m_get_answer(&ev, &a);
}

static bool read_out(const letter *l, int64_t size_bytes)
{
    uint32_t epoch;
    char why[RUI_M_WHY_MAX];
    ru_event ev = event_of(l, size_bytes);
    return rui_m_get_out(&ev, &epoch, why);
}

static void test_takeover(void **state)
{
    (void)state;
    static const uint32_t rows[][4] = {/* ballot, epoch, accepted, is right */
                                       {3, 1, 2, 1}, {3, 2, 2, 1}, {3, 1, 0, 1}, {3, 0, 2, 0},
                                       {3, 3, 2, 0}, {3, 4, 2, 0}, {3, 1, 3, 0}, {3, 1, 4, 0}};
    letter l;
    for (uint32_t i = 0; i < RU_ARRAY_LEN(rows); i++) {
        begin(&l);
        for (uint32_t k = 0; k < 3; k++) {
            ru_wire_put_u32(&l.w, rows[i][k]);
        }
        assert_int_equal(reads(&l, read_takeover), rows[i][3]);
    }
    begin(&l);
    ru_wire_put_u32(&l.w, 3);
    ru_wire_put_u32(&l.w, 1);
    ru_wire_put_u32(&l.w, 2);
    exactly(&l, read_takeover);
    for (uint8_t granted = 0; granted < 3; granted++) {
        begin(&l);
        ru_wire_put_u32(&l.w, 1);
        ru_wire_put_u8(&l.w, granted);
        ru_wire_put_u32(&l.w, 2);
        ru_wire_put_u32(&l.w, 3);
        ru_wire_put_u32(&l.w, 4);
        text(&l, "status");
        assert_int_equal(reads(&l, read_answer), granted < 2);
        if (granted < 2) {
            exactly(&l, read_answer);
        }
    }
}

static void test_out(void **state)
{
    (void)state;
    char why[RUI_M_WHY_MAX + 1];
    memset(why, 'y', sizeof why);
    for (uint32_t n = RUI_M_WHY_MAX - 1; n <= RUI_M_WHY_MAX; n++) {
        letter l;
        begin(&l);
        ru_wire_put_u32(&l.w, 5);
        ru_wire_put_text(&l.w, why, n);
        assert_int_equal(reads(&l, read_out), n < RUI_M_WHY_MAX);
        if (n < RUI_M_WHY_MAX) {
            exactly(&l, read_out);
        }
    }
    uint32_t epoch;
    char have[RUI_M_WHY_MAX];
    letter l;
    begin(&l);
    ru_event ev = event_of(&l, rui_m_put_out(l.bytes, CAP, 5, "a\x1b[31m b~\x7f"));
    assert_true(rui_m_get_out(&ev, &epoch, have));
    assert_int_equal(epoch, 5);
    assert_string_equal(have, "a?[31m b~?"); /* goes to a terminal */
}

/* -- views --------------------------------------------------------------------------------------
 */

static bool read_part(const letter *l, int64_t size_bytes)
{
    rui_m_view_part p;
    ru_event ev = event_of(l, size_bytes);
    return rui_m_get_view_part(&ev, &p);
}

static bool part(uint32_t kind, uint32_t epoch, uint32_t total, uint32_t offset, uint32_t n)
{
    letter l;
    begin(&l);
    ru_wire_put_u8(&l.w, (uint8_t)kind);
    ru_wire_put_u32(&l.w, epoch);
    ru_wire_put_u32(&l.w, total);
    ru_wire_put_u32(&l.w, offset);
    for (uint32_t i = 0; i < n; i++) {
        ru_wire_put_u8(&l.w, 1);
    }
    return reads(&l, read_part);
}

static void test_view_part(void **state)
{
    (void)state;
    assert_true(part(RUI_VIEW_KINDS - 1, 1, 10, 0, 10));
    assert_true(part(0, 1, 10, 9, 1));
    assert_false(part(RUI_VIEW_KINDS, 1, 10, 0, 10));
    assert_false(part(0, 0, 10, 0, 10));
    assert_false(part(0, 1, 10, 0, 0));
    assert_false(part(0, 1, 10, 0, 11));
    assert_false(part(0, 1, 10, 10, 1));
    assert_false(part(0, 1, 10, 11, 1));
    assert_false(part(0, 1, 10, UINT32_MAX, 1));
}

typedef struct view_row {
    uint32_t epoch, prev, base, leader, number_next, total, removed, added, blob;
    uint32_t first; /* number of the first added one */
    bool same;      /* numbers of the others: the same */
    bool ok;
} view_row;

static void view(letter *l, const view_row *r)
{
    begin(l);
    ru_wire_put_u32(&l->w, r->epoch);
    ru_wire_put_u32(&l->w, r->prev);
    ru_wire_put_u32(&l->w, r->base);
    ru_wire_put_u64(&l->w, r->leader);
    ru_wire_put_u32(&l->w, r->number_next);
    ru_wire_put_u32(&l->w, r->total);
    ru_wire_put_u32(&l->w, r->removed);
    for (uint32_t i = 0; i < r->removed; i++) {
        ru_wire_put_u64(&l->w, 50 + i);
    }
    ru_wire_put_u32(&l->w, r->added);
    for (uint32_t i = 0; i < r->added; i++) {
        info(l, 100 + i, r->first + (r->same ? 0 : i), "h:1", "h");
    }
    static const char blob[256];
    ru_wire_put_text(&l->w, blob, r->blob);
}

static bool read_view(const letter *l, int64_t size_bytes)
{
    rui_m_view_head h;
    return rui_m_get_view(l->bytes, size_bytes, MEMBERS, &h);
}

static void test_view(void **state)
{
    (void)state;
    static const view_row rows[] = {
        {5, 4, 0, 100, 4, 3, 0, 3, 200, 1, false, true}, /* whole */
        {5, 4, 4, 100, 9, 3, 2, 1, 0, 3, false, true},   /* changes */
        {5, 4, 4, 100, 9, 3, 0, 0, 0, 3, false, true},
        {5, 0, 0, 100, 5, 4, 0, 4, 1, 1, false, true},
        {5, 5, 0, 100, 4, 3, 0, 3, 0, 1, false, false}, /* not after the one before */
        {5, 6, 0, 100, 4, 3, 0, 3, 0, 1, false, false},
        {5, 4, 3, 100, 9, 3, 2, 1, 0, 3, false, false}, /* changes against another one */
        {5, 4, 0, 0, 4, 3, 0, 3, 0, 1, false, false},   /* nobody leads */
        {5, 4, 4, 100, 9, 0, 2, 0, 0, 3, false, false}, /* nobody is left */
        {5, 4, 4, 100, 9, 5, 0, 1, 0, 3, false, false}, /* more than the job has */
        {5, 4, 4, 100, 9, 3, 5, 1, 0, 3, false, false},
        {5, 4, 4, 100, 20, 4, 0, 5, 0, 3, false, false},
        {5, 4, 0, 100, 4, 3, 1, 3, 0, 1, false, false}, /* whole, and somebody is removed */
        {5, 4, 0, 100, 4, 4, 0, 3, 0, 1, false, false}, /* whole, and not all are there */
        {5, 4, 0, 100, 3, 3, 0, 3, 0, 1, false, false}, /* a number that is not given out yet */
        {5, 4, 0, 100, 4, 3, 0, 3, 0, 0, false, false}, /* number 0 */
        {5, 4, 0, 100, 4, 3, 0, 3, 0, 2, true, false},
    };
    for (uint32_t i = 0; i < RU_ARRAY_LEN(rows); i++) {
        letter l;
        view(&l, &rows[i]);
        if (reads(&l, read_view) != rows[i].ok) {
            fail_msg("view %u", i);
        }
        if (rows[i].ok) {
            exactly(&l, read_view);
        }
    }
}

RU_TESTS(comm_member_wire, cmocka_unit_test(test_hello), cmocka_unit_test(test_kinds),
         cmocka_unit_test(test_redirect), cmocka_unit_test(test_welcome),
         cmocka_unit_test(test_beat), cmocka_unit_test(test_takeover), cmocka_unit_test(test_out),
         cmocka_unit_test(test_view_part), cmocka_unit_test(test_view))
