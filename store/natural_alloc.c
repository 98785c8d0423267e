/* Workloads of jobs as inputs of the policy `alloc`: all jobs of the file wait at the arrival of
 * the last one, or, where instants are not compared, all at once. `nodes` comes by --set. */
#include <stddef.h>

#include "store/natural.h"

static const char *const workload_head = "name,time,application,num_replicas,batch_size";
static const char *const philly_head = "timestamp,duration,num_gpus,gpu_time,cluster";
enum { COLUMNS = 5 };

static bool has_head(ru_str text, const char *head)
{
    ru_str line;
    return ru_str_next(&text, '\n', &line) && ru_str_eq_c(ru_str_trim(line), head);
}

static bool is_workload(const char *path, ru_str text)
{
    (void)path;
    return has_head(text, workload_head);
}

static bool is_philly(const char *path, ru_str text)
{
    (void)path;
    return has_head(text, philly_head);
}

/* The next row that is not blank; false at the end. */
static bool row_of(ru_str *rest, uint32_t *number, ru_str cells[COLUMNS], uint32_t *n)
{
    ru_str line;
    while (ru_str_next(rest, '\n', &line)) {
        ++*number;
        line = ru_str_trim(line);
        if (line.n == 0) {
            continue;
        }
        for (*n = 0; *n < COLUMNS && ru_str_next(&line, ',', &cells[*n]); ++*n) {
        }
        *n += line.n > 0; /* one cell too many */
        return true;
    }
    return false;
}

static ru_status bad_row(const char *path, uint32_t number, const char *head, ru_err *err)
{
    return RU_FAIL(err, RU_E_DATA,
                   "%s:%u: expected '%s', 1 to 65536 devices and a time of 0 to 1e9 seconds", path,
                   number, head);
}

static bool devices_of(ru_str cell, int64_t *out)
{
    return ru_str_i64(ru_str_trim(cell), out) && *out >= 1 && *out <= 65536;
}

static bool seconds_of(ru_str cell, double *out)
{
    return ru_str_f64(ru_str_trim(cell), out) && *out >= 0 && *out <= 1e9;
}

static void put_devices(ru_json *j, int64_t devices)
{
    ru_json_i64(j, "replicas", devices);
    ru_json_i64(j, "replicas_max", devices);
}

static ru_status read_workload(const char *path, ru_str text, ru_arena *arena, ru_json *j,
                               ru_err *err)
{
    ru_str rest = text, cells[COLUMNS];
    uint32_t number = 0, n;
    double at = 0, last = 0;
    int64_t devices;
    (void)row_of(&rest, &number, cells, &n);
    while (row_of(&rest, &number, cells, &n)) {
        double before = at;
        if (n != COLUMNS || !seconds_of(cells[1], &at) || !devices_of(cells[3], &devices)) {
            return bad_row(path, number, workload_head, err);
        }
        if (at < before) {
            return RU_FAIL(err, RU_E_DATA, "%s:%u: the job arrives before the one above", path,
                           number);
        }
        last = at;
    }
    ru_json_open(j, "jobs", '[');
    rest = text;
    (void)row_of(&rest, &number, cells, &n);
    while (row_of(&rest, &number, cells, &n)) {
        const char *name = ru_arena_strn(arena, cells[0].p, cells[0].n);
        char age[32];
        ru_text t = ru_text_into(age, sizeof age);
        if (name == NULL || !seconds_of(cells[1], &at) || !devices_of(cells[3], &devices)) {
            return RU_FAIL(err, RU_E_LIMIT, "%s: no memory for its jobs", path);
        }
        ru_text_putf(&t, "%lldms", (long long)((last - at) * 1000));
        ru_json_open(j, NULL, '{');
        ru_json_str(j, "name", name);
        ru_json_str(j, "age", age);
        put_devices(j, devices);
        ru_json_close(j);
    }
    ru_json_close(j);
    return RU_OK;
}

/* A step of such a job is a second of its duration. */
static ru_status read_philly(const char *path, ru_str text, ru_arena *arena, ru_json *j,
                             ru_err *err)
{
    (void)arena;
    ru_str rest = text, cells[COLUMNS];
    uint32_t number = 0, n;
    (void)row_of(&rest, &number, cells, &n);
    ru_json_open(j, "jobs", '[');
    while (row_of(&rest, &number, cells, &n)) {
        double duration;
        int64_t devices;
        if (n != COLUMNS || !seconds_of(cells[1], &duration) || !devices_of(cells[2], &devices)) {
            return bad_row(path, number, philly_head, err);
        }
        ru_json_open(j, NULL, '{');
        put_devices(j, devices);
        ru_json_f64(j, "remaining", duration);
        ru_json_open(j, "step", '[');
        ru_json_f64(j, NULL, 1);
        ru_json_close(j);
        ru_json_close(j);
    }
    ru_json_close(j);
    return RU_OK;
}

const ru_natural rui_natural_alloc_workload = {
    .policy = "alloc",
    .what = "workload: 'name,time,application,num_replicas,batch_size', a job a line in order of "
            "arrival; 'nodes' by --set",
    .is = is_workload,
    .read = read_workload,
};

const ru_natural rui_natural_alloc_philly = {
    .policy = "alloc",
    .what = "Philly trace: 'timestamp,duration,num_gpus,gpu_time,cluster', a job a line; 'nodes' "
            "by --set",
    .is = is_philly,
    .read = read_philly,
};
