#include "env/file/room.h"

#include <stddef.h>

static int64_t taken(const ru_room *r, ru_lock *held)
{
    int64_t n = ru_lock_number(r->lock);
    if (n < 0) {
        n = ru_dir_bytes(r->folders[0]) + ru_dir_bytes(r->folders[1]);
        ru_lock_number_put(held, n);
    }
    return n;
}

int64_t ru_room_left(const ru_room *r, ru_lock *held)
{
    ru_err none = {0};
    ru_lock *own = NULL;
    int64_t n = held == NULL ? ru_lock_number(r->lock) : -1;
    if (n < 0 && held == NULL && ru_lock_open(r->lock, true, true, &own, &none) != RU_OK) {
        return 0;
    }
    n = n < 0 ? taken(r, held != NULL ? held : own) : n;
    ru_lock_close(own);
    return r->quota_bytes - n;
}

void ru_room_take(const ru_room *r, ru_lock *held, int64_t bytes)
{
    int64_t n = ru_lock_number(r->lock); /* unknown: the files will be counted */
    if (n >= 0) {
        ru_lock_number_put(held, n + bytes > 0 ? n + bytes : 0);
    }
}

void ru_room_give(const ru_room *r, int64_t bytes)
{
    ru_err none = {0};
    ru_lock *l = NULL;
    if (bytes > 0 && ru_lock_open(r->lock, true, true, &l, &none) == RU_OK) {
        ru_room_take(r, l, -bytes);
        ru_lock_close(l);
    }
}

void ru_room_forget(const ru_room *r, ru_lock *held)
{
    ru_err none = {0};
    ru_lock *own = NULL;
    if (held != NULL || ru_lock_open(r->lock, true, true, &own, &none) == RU_OK) {
        ru_lock_number_put(held != NULL ? held : own, -1);
        ru_lock_close(own);
    }
}
