#include "env/process/group.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "env/clock.h"
#include "env/file/file.h"
#include "env/process/group_impl.h"
#include "env/process/groups.h"
#include "env/process/origin.h"
#include "env/process/process.h"

enum { PASSES = 20, TREE_MAX = 1024 };
static const char rest_name[] = "rubato-rest";
static const char *const name_1[] = {"cpu", "cpuacct", "memory", "pids", "blkio"};
static const char *const name_2[] = {"cpu", "cpu", "memory", "pids", "io"};

/* The innermost folder that exists of those that rui_groups_each names: a container may name groups
 * that it does not see. */
typedef struct innermost {
    bool two;
    const char *dir;
} innermost;

static void look_at(void *arg, ru_arena *arena, const char *dir, bool two)
{
    innermost *in = arg;
    if (in->dir == NULL && two == in->two && rui_group_has(arena, dir, "cgroup.procs")) {
        in->dir = ru_arena_str(arena, dir);
    }
}

static bool name_is_good(const char *name)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    ru_str rest = ru_str_c(name), part;
    bool good = rest.n > 0 && rest.n < 512 && name[0] != '/' && name[rest.n - 1] != '/';
    while (good && ru_str_next(&rest, '/', &part)) {
        good = part.n > 0 && part.p[0] != '.' && (int64_t)strspn(part.p, letters) >= part.n;
    }
    return good;
}

/* Processes of the group `dir` go to `rubato-rest` in it; new ones may be born meanwhile. */
static ru_status move_rest(ru_group *g, const char *dir, ru_err *err)
{
    const char *rest = ru_path_join(&g->arena, dir, rest_name);
    if (rest == NULL || (mkdir(rest, 0755) != 0 && errno != EEXIST)) {
        return rui_group_fails(err, rest == NULL ? ENOMEM : errno, "cannot make the control group",
                               rest);
    }
    ru_arena_mark mark = ru_arena_mark_get(&g->arena);
    for (int pass = 0; pass < PASSES; pass++) {
        ru_str list = rui_group_text(&g->arena, dir, "cgroup.procs"), pid;
        bool some = false;
        while (ru_str_next(&list, '\n', &pid)) {
            char one[32];
            ru_text t = ru_text_into(one, sizeof one);
            ru_text_putf(&t, "%.*s", RU_STR_ARG(pid));
            some = some || pid.n > 0;
            if (pid.n > 0) {
                ru_status one_st = rui_group_put(rest, "cgroup.procs", one, NULL);
                (void)one_st;
            }
        }
        ru_arena_rewind(&g->arena, mark);
        if (!some) {
            break;
        }
    }
    return RU_OK; /* else the kernel refuses the controller */
}

static ru_status enable(ru_group *g, const char *dir, const char *controller, ru_err *err)
{
    if (rui_groups_listed(rui_group_text(&g->arena, dir, "cgroup.subtree_control"), ' ',
                          controller)) {
        return RU_OK;
    }
    if (!rui_groups_listed(rui_group_text(&g->arena, dir, "cgroup.controllers"), ' ', controller)) {
        return RU_FAIL(err, RU_E_MISSING, "the control group %s has no controller %s", dir,
                       controller);
    }
    char plus[32];
    ru_text t = ru_text_into(plus, sizeof plus);
    ru_text_putf(&t, "+%s", controller);
    return rui_group_put(dir, "cgroup.subtree_control", plus, err);
}

/* The folders from the base to the group, and in version 2 the controller in each of them. */
static ru_status make_dirs(ru_group *g, int tree, const char *name, ru_err *err)
{
    const char *base = g->base[tree], *at = base;
    /* A group that bounds others holds no processes, except the root, which has no type. */
    if (g->two && rui_group_has(&g->arena, base, "cgroup.type") &&
        ru_str_trim(rui_group_text(&g->arena, base, "cgroup.procs")).n > 0) {
        RU_TRY(move_rest(g, base, err));
    }
    ru_str rest = ru_str_c(name), part;
    while (ru_str_next(&rest, '/', &part)) {
        if (g->two) {
            RU_TRY(enable(g, at, name_2[tree], err));
        }
        const char *dir = ru_arena_printf(&g->arena, "%s/%.*s", at, RU_STR_ARG(part));
        if (dir == NULL || (mkdir(dir, 0755) != 0 && errno != EEXIST)) {
            return rui_group_fails(err, dir == NULL ? ENOMEM : errno,
                                   "cannot make the control group", dir == NULL ? name : dir);
        }
        at = dir;
    }
    /* The same folder has the same pointer: what is done to each folder is done once. */
    for (int k = 0; k < RUI_TREES; k++) {
        if (g->dir[k] != NULL && strcmp(g->dir[k], at) == 0) {
            at = g->dir[k];
        }
    }
    g->dir[tree] = at;
    return RU_OK;
}

static ru_status make_tree(ru_group *g, int tree, const char *name, ru_err *err)
{
    const char *controller = g->two ? name_2[tree] : name_1[tree];
    if (g->base[tree] == NULL) {
        return RU_FAIL(err, RU_E_MISSING, "no control groups with %s are mounted", controller);
    }
    /* Another process may remove an empty folder between two of ours. */
    ru_status st = RU_OK;
    for (int pass = 0; pass < PASSES; pass++) {
        st = make_dirs(g, tree, name, err);
        if (st != RU_E_MISSING || !rui_group_has(&g->arena, g->base[tree], "cgroup.procs")) {
            break;
        }
    }
    RU_TRY(st);
    for (int k = 0; k < RUI_TREES; k++) {
        if (k != tree && g->dir[k] == g->dir[tree] && g->procs[k] >= 0) {
            return RU_OK;
        }
    }
    const char *procs = ru_path_join(&g->arena, g->dir[tree], "cgroup.procs");
    g->procs[tree] = procs == NULL ? -1 : open(procs, O_WRONLY | O_CLOEXEC);
    if (g->procs[tree] < 0) {
        int e = errno;
        g->dir[tree] = NULL;
        return rui_group_fails(err, e, "cannot write", procs == NULL ? name : procs);
    }
    return RU_OK;
}

/* By a lock on its folder, which the kernel gives up with the process. */
static ru_status claim(ru_group *g, int tree, ru_err *err)
{
    if (g->lock >= 0) {
        return RU_OK;
    }
    g->lock = open(g->dir[tree], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (g->lock >= 0 && flock(g->lock, LOCK_EX | LOCK_NB) == 0) {
        return RU_OK;
    }
    return errno == EWOULDBLOCK
               ? RU_FAIL(err, RU_E_AGAIN, "another process has the control group %s", g->dir[tree])
               : rui_group_fails(err, errno, "cannot lock", g->dir[tree]);
}

/* Which version, and below which folder of each controller. */
static void find_bases(ru_group *g, const ru_group_place *place)
{
    const char *root = place != NULL && place->root != NULL ? place->root : rui_groups_root;
    bool given = place != NULL && place->own != NULL;
    ru_str own = given ? ru_str_c(place->own) : rui_groups_own(&g->arena);
    for (int tree = 0; tree < RUI_TREES; tree++) {
        innermost in = {0};
        rui_groups_each(&g->arena, own, root, name_1[tree], look_at, &in);
        g->base[tree] = in.dir;
        g->two = g->two || in.dir != NULL;
    }
    g->two = !g->two;
    if (g->two) {
        innermost in = {.two = true};
        rui_groups_each(&g->arena, own, root, "", look_at, &in);
        char *end = in.dir == NULL ? NULL : strrchr(in.dir, '/');
        if (end != NULL && strcmp(end + 1, rest_name) == 0) { /* moved there by an earlier one */
            in.dir = ru_arena_strn(&g->arena, in.dir, end - in.dir);
        }
        for (int tree = 0; tree < RUI_TREES; tree++) {
            g->base[tree] = tree == RUI_USAGE ? NULL : in.dir;
        }
    }
}

ru_status ru_group_make(const char *name, const ru_group_limits *limits,
                        const ru_group_place *place, uint32_t *lacks, ru_group **out, ru_err *err)
{
    if (!name_is_good(name)) {
        return RU_FAIL(err, RU_E_ARG, "'%s' is no name of a control group", name);
    }
    ru_group *g = calloc(1, sizeof *g);
    if (g == NULL) {
        return RU_FAIL(err, RU_E_MEM, "no memory for a control group");
    }
    ru_arena_init(&g->arena, 8 << 20);
    g->lock = -1;
    for (int tree = 0; tree < RUI_TREES; tree++) {
        g->procs[tree] = -1;
    }
    find_bases(g, place);
    uint32_t wanted = rui_group_wants(limits) | limits->measured, missing = 0;
    ru_status st = RU_OK;
    for (int tree = 0; tree < RUI_TREES && st == RU_OK; tree++) {
        if (tree == RUI_USAGE) { /* a figure of version 1 alone */
            if (!g->two && (wanted & RU_GROUP_CPU) != 0) {
                ru_status none = make_tree(g, tree, name, NULL);
                (void)none;
            }
        } else if ((wanted & rui_group_bit[tree]) != 0) {
            ru_err one = {0};
            st = make_tree(g, tree, name, &one);
            st = st == RU_OK && limits->alone ? claim(g, tree, &one) : st;
            st = st == RU_OK ? rui_group_set_tree(g, tree, limits, &one) : st;
            if (st != RU_OK && missing == 0) {
                (void)RU_FAIL(err, st, "%s", one.text);
            }
            missing |= st != RU_OK ? rui_group_bit[tree] : 0;
            st = lacks != NULL ? RU_OK : st;
        }
    }
    if (st != RU_OK) {
        ru_status left = st != RU_E_AGAIN ? ru_group_remove(g, NULL) : RU_OK;
        (void)left;
        ru_group_close(g);
        return st;
    }
    if (lacks != NULL) {
        *lacks = missing;
    }
    *out = g;
    return RU_OK;
}

ru_status ru_group_enter(ru_group *g, int64_t pid, ru_err *err)
{
    for (int tree = 0; tree < RUI_TREES; tree++) {
        if (g->procs[tree] >= 0) {
            RU_TRY(rui_group_put_i64(g->dir[tree], "cgroup.procs", pid, err));
        }
    }
    return RU_OK;
}

/* One look at all processes: those whose parents are in `in` follow them; true: some did. */
static bool follow(ru_group *g, int64_t *in, uint32_t *n, ru_arena *arena)
{
    char **names;
    uint32_t n_names = 0, before = *n;
    if (ru_dir_list("/proc", arena, &names, &n_names, NULL) != RU_OK) {
        return false;
    }
    for (uint32_t k = 0; k < n_names; k++) {
        int64_t pid, parent;
        bool follows = false, is_in = false;
        if (!ru_str_i64(ru_str_c(names[k]), &pid) || !rui_process_field(pid, 4, &parent)) {
            continue;
        }
        for (uint32_t i = 0; i < *n; i++) {
            follows = follows || in[i] == parent;
            is_in = is_in || in[i] == pid;
        }
        if (follows && !is_in && *n < TREE_MAX && ru_group_enter(g, pid, NULL) == RU_OK) {
            in[(*n)++] = pid;
        }
    }
    return *n > before;
}

ru_status ru_group_enter_all(ru_group *g, int64_t pid, ru_err *err)
{
    ru_arena arena;
    int64_t in[TREE_MAX] = {pid};
    uint32_t n = 1;
    bool more = true;
    RU_TRY(ru_group_enter(g, pid, err)); /* what it starts from now on is in the group */
    for (int pass = 0; pass < PASSES && more; pass++) {
        ru_arena_init(&arena, 0);
        more = follow(g, in, &n, &arena);
        ru_arena_fini(&arena);
    }
    return n < TREE_MAX ? RU_OK
                        : RU_FAIL(err, RU_E_LIMIT, "%d or more processes came from process %lld",
                                  TREE_MAX, (long long)pid);
}

bool rui_group_enter_self(const ru_group *g)
{
    for (int tree = 0; tree < RUI_TREES; tree++) {
        if (g->procs[tree] >= 0 && pwrite(g->procs[tree], "0", 1, 0) != 1) {
            return false;
        }
    }
    return true;
}

uint32_t ru_group_kill(const ru_group *g)
{
    uint32_t first = 0;
    const char *dir = NULL;
    for (int tree = 0; tree < RUI_TREES; tree++) {
        dir = dir == NULL ? g->dir[tree] : dir;
    }
    for (int pass = 0; pass < PASSES && dir != NULL; pass++) {
        ru_arena arena;
        ru_arena_init(&arena, 8 << 20);
        ru_str list = rui_group_text(&arena, dir, "cgroup.procs"), line;
        uint32_t n = 0;
        int64_t pid;
        while (ru_str_next(&list, '\n', &line)) {
            if (ru_str_i64(line, &pid) && pid > 1 && pid != getpid()) {
                n += kill((pid_t)pid, SIGKILL) == 0;
            }
        }
        ru_arena_fini(&arena);
        first = pass == 0 ? n : first;
        if (n == 0) {
            break;
        }
    }
    return first;
}

static void close_procs(ru_group *g)
{
    for (int tree = 0; tree < RUI_TREES; tree++) {
        if (g->procs[tree] >= 0) {
            close(g->procs[tree]);
        }
        g->procs[tree] = -1;
    }
}

ru_status ru_group_remove(ru_group *g, ru_err *err)
{
    for (int tree = 0; tree < RUI_TREES; tree++) {
        if (g->dir[tree] == NULL) {
            continue;
        }
        char *dir = ru_arena_str(&g->arena, g->dir[tree]);
        if (dir == NULL || (rmdir(dir) != 0 && errno != ENOENT)) {
            return rui_group_fails(err, dir == NULL ? ENOMEM : errno,
                                   "cannot remove the control group", g->dir[tree]);
        }
        for (char *end = strrchr(dir, '/');
             end != NULL && end > dir + strlen(g->base[tree]) && (*end = 0, rmdir(dir) == 0);
             end = strrchr(dir, '/')) {
        }
    }
    close_procs(g);
    memset(g->dir, 0, sizeof g->dir);
    return RU_OK;
}

void ru_group_close(ru_group *g)
{
    if (g != NULL) {
        close_procs(g);
        if (g->lock >= 0) {
            close(g->lock);
        }
        ru_arena_fini(&g->arena);
        free(g);
    }
}

/* Its processes may take a moment to end. */
static uint32_t end_left(const char *name, const ru_group_place *place)
{
    const ru_group_limits alone = {.measured = RU_GROUP_CPU, .alone = true};
    ru_group *g;
    if (ru_group_make(name, &alone, place, NULL, &g, NULL) != RU_OK) {
        return 0;
    }
    uint32_t n = ru_group_kill(g);
    for (int pass = 0; ru_group_remove(g, NULL) != RU_OK && pass < PASSES; pass++) {
        ru_clock_pause(5000000);
    }
    ru_group_close(g);
    return n;
}

uint32_t ru_group_sweep(const char *name, const ru_group_place *place)
{
    ru_group at = {0};
    ru_arena_init(&at.arena, 8 << 20);
    find_bases(&at, place);
    char **names;
    uint32_t n_names = 0, n = 0;
    const char *slash = strrchr(name, '/'), *last = slash == NULL ? name : slash + 1;
    const char *dir =
        at.base[RUI_CPU] == NULL
            ? NULL
            : ru_arena_printf(&at.arena, "%s/%.*s", at.base[RUI_CPU], (int)(last - name), name);
    if (dir != NULL && ru_dir_list(dir, &at.arena, &names, &n_names, NULL) == RU_OK) {
        for (uint32_t k = 0; k < n_names; k++) {
            int64_t number;
            const char *whole =
                ru_arena_printf(&at.arena, "%.*s%s", (int)(last - name), name, names[k]);
            if (whole != NULL && strncmp(whole, name, strlen(name)) == 0 &&
                ru_str_i64(ru_str_c(whole + strlen(name)), &number) && number >= 0) {
                n += end_left(whole, place);
            }
        }
    }
    ru_arena_fini(&at.arena);
    return n;
}
