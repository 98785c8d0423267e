#!/bin/sh
# The library as others see it: library.sh SOURCE_DIR BUILD_DIR
#
# Installs into a scratch folder, compiles every installed header alone in C17 and C++17, looks at what
# librubato.so shows, then builds and runs the examples of docs/library.md as they stand there.
set -eu
source=$(realpath "$1") build=$(realpath "$2")
work=$(mktemp -d "${TMPDIR:-/tmp}/rubato-library-XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"
meson=/usr/bin/meson
[ -x "$meson" ] || meson=meson
cc=${CC:-cc} cxx=${CXX:-c++}
strict='-Wall -Wextra -Wpedantic -Werror'

fail() {
    echo "FAIL: $*" >&2
    exit 1
}

exec 9<"$build" # one script at a time: each puts the log back
flock 9
log=$build/meson-logs/install-log.txt # what `make uninstall` removes stays what it is
[ ! -f "$log" ] || cp "$log" "$work/log"
DESTDIR=$work/root "$meson" install -C "$build" --no-rebuild --quiet >/dev/null
if [ -f "$work/log" ]; then cp "$work/log" "$log"; else rm -f "$log"; fi
exec 9<&-
pc=$(find "$work/root" -name rubato.pc)
PKG_CONFIG_SYSROOT_DIR=$work/root PKG_CONFIG_PATH=$(dirname "$pc")
export PKG_CONFIG_SYSROOT_DIR PKG_CONFIG_PATH
cflags=$(pkg-config --cflags rubato) libs=$(pkg-config --libs rubato)
LD_LIBRARY_PATH=$(dirname "$(find "$work/root" -name librubato.so)")

languages='c:c17'
if command -v "$cxx" >/dev/null; then
    languages='c:c17 c++:c++17'
else
    echo "no C++ compiler: headers and example are tried in C only"
fi
include=$(echo "${cflags#-I}" | tr -d " ")
n=0
for header in $(cd "$include" && find rubato -name '*.h' | sort); do
    [ "$(grep -c '^RU_API_BEGIN$' "$include/$header")" = "$(grep -c '^RU_API_END$' "$include/$header")" ] ||
        fail "<$header> has an RU_API_BEGIN without its RU_API_END"
    echo "#include <$header>" >alone.txt
    for language in $languages; do
        compiler=$cc
        [ "${language%%:*}" = c ] || compiler=$cxx
        # shellcheck disable=SC2086
        $compiler -x "${language%%:*}" "-std=${language##*:}" $strict $cflags -fsyntax-only alone.txt ||
            fail "<$header> does not stand alone in ${language##*:}"
    done
    n=$((n + 1))
done
[ "$n" -gt 30 ] || fail "only $n headers are installed"

nm -D --defined-only "$LD_LIBRARY_PATH/librubato.so" | awk '{print $3}' >symbols.txt
foreign=$(grep -v '^ru_[a-z0-9_]*@@RUBATO_0$' symbols.txt | grep -vx RUBATO_0 || true)
[ -z "$foreign" ] || fail "librubato.so shows $foreign"
# Every function that a header promises is there, here or in the library of clients, and nothing else is.
sed 's/@@.*//' symbols.txt | grep '^ru_' | sort -u >exported.txt
nm -D --defined-only "$LD_LIBRARY_PATH/librubato-client.so" | awk '{ sub(/@@.*/, "", $3); print $3 }' | sort -u - exported.txt >shown.txt
find "$include/rubato" -name '*.h' -exec awk '/^RU_API_BEGIN$/ { on = 1 } /^RU_API_END$/ { on = 0 } on' {} + | grep -v '^[# ]\|^static' |
    sed 's|/\*.*||' | grep -oE '\bru_[a-z0-9_]+\(' | tr -d '(' | sort -u >promised.txt
[ -z "$(comm -23 exported.txt promised.txt)" ] || fail "exported, promised by no header: $(comm -23 exported.txt promised.txt)"
[ -z "$(comm -23 promised.txt shown.txt)" ] || fail "promised by a header, in no library: $(comm -23 promised.txt shown.txt)"
[ "$(wc -l <exported.txt)" -le 203 ] || fail "$(wc -l <exported.txt) functions are exported; at most 203: the doors of docs/library.md"

# The three ```c blocks and the first ```cpp block of the page.
sed -n '/^```c$/,/^```$/p' "$source/docs/library.md" | awk '/^```c$/ { n++; next } !/^```/ { print >(n == 1 ? "xor.c" : n == 2 ? "fit.c" : "spill.c") }'
sed -n '/^```cpp$/,/^```$/p' "$source/docs/library.md" | sed '/^```/d' >run.cc
# shellcheck disable=SC2086
$cc -std=c17 $strict $cflags xor.c -o xor $libs || fail "the C example of docs/library.md does not build"
export LD_LIBRARY_PATH
./xor >said.txt || fail "the C example ends with $?"
grep -q ', 4 of 4 right$' said.txt || fail "the C example did not learn: $(cat said.txt)"
# Files that outgrow a fast disk: sorted by sort, too, and nothing is left.
# shellcheck disable=SC2086
$cc -std=c17 $strict $cflags spill.c -o spill $libs || fail "the files of docs/library.md do not build"
awk 'BEGIN { srand(1); for (i = 0; i < 30000; i++) { print int(rand() * 1000000) } }' >numbers.txt
sort -n numbers.txt >sorted.txt
./spill fast slow <numbers.txt >spilled.txt || fail "the program with files ends with $?"
cmp sorted.txt spilled.txt || fail "the program with files sorts wrongly"
[ -z "$(find fast slow -name '*.part')" ] || fail "files are left: $(find fast slow -name '*.part')"
# Files that a program leaves are shown.
sed -e '/&none/d' -e '/ru_err none/d' spill.c >leave.c
# shellcheck disable=SC2086
$cc -std=c17 $strict $cflags leave.c -o leave $libs
./leave fast slow <numbers.txt >/dev/null
echo 'storage: [{path: fast, quota: 1MiB}, {path: slow, quota: 1GB}]' >folders.yaml
RUBATO_STORAGE=folders.yaml "$build/tool/rubato" store ls >said.txt
[ "$(grep -c '^run [0-9]*  *spill' said.txt)" = 30 ] || fail "store ls shows other files: $(cat said.txt)"
RUBATO_STORAGE=folders.yaml "$build/tool/rubato" store rm "spill/run 2" >removed.txt || fail "store rm of a program's file: $(cat removed.txt)"
RUBATO_STORAGE=folders.yaml "$build/tool/rubato" store ls >said.txt
[ "$(grep -c '^run [0-9]*  *spill' said.txt)" = 29 ] && ! grep -q '^run 2 ' said.txt || fail "store rm removes other files: $(cat said.txt)"
RUBATO_STORAGE=folders.yaml "$build/tool/rubato" store explain >explained.txt
grep -q '^  *sorted runs  *spill  *29  *31 ' explained.txt || fail "store explain does not show the group: $(cat explained.txt)"
grep -q 'files of groups: 0 begin where the policy' explained.txt && grep -q 'first fit), because' explained.txt || fail "store explain does not say who decided: $(cat explained.txt)"
# A program that is a member of a job: three found it, one is killed, one joins, and all that end have the same result.
# shellcheck disable=SC2086
$cc -std=c17 $strict $cflags fit.c -o fit $libs || fail "the member of docs/library.md does not build"
port=$((10000 + $$ % 1000)) # where no other script listens, below those that the kernel gives to others
./fit 127.0.0.1:$port 3 >fit.1 2>fit.1.err & first=$!
./fit 127.0.0.1:0 3 127.0.0.1:$port >fit.2 2>fit.2.err & second=$!
./fit 127.0.0.1:0 3 127.0.0.1:$port >fit.3 2>fit.3.err || fail "a member ends with $?: $(cat fit.3.err)"
wait $first || fail "the founder ends with $?: $(cat fit.1.err)"
wait $second || fail "a member ends with $?: $(cat fit.2.err)"
for k in 1 2 3; do
    grep -qE '^y = (2\.99|3\.00)[0-9]* x . (1\.00|0\.99)[0-9]*$' fit.$k || fail "member $k did not learn: $(cat fit.$k)"
    cmp fit.1 fit.$k || fail "members end with other parameters: $(cat fit.*)"
done
# Its steps take a millisecond until there is a file `go`: all have come when it is over.
sed -e 's/STEPS = 640/STEPS = 20000/' -e 's/^static float w/static int said;\n&/' -e '1i #include <unistd.h>' \
    -e 's/float \*g = ru_team_gradient/if (said++ == 0) { fprintf(stderr, "in\\n"); }\n        if (access("go", F_OK) != 0) { usleep(1000); }\n        &/' fit.c >long.c
# Wait until each of these members, by number, has begun a step.
are_in() {
    local k
    for k in "$@"; do
        for _ in $(seq 1 3000); do
            grep -qsx in fit.$k.err && continue 2 # its shell may not have made it yet
            sleep 0.1
        done
        fail "member $k of a longer job is not in it after a minute: $(cat fit.?.err)"
    done
}
# shellcheck disable=SC2086
$cc -std=gnu17 $cflags long.c -o fit-long $libs
for try in 1 2 3; do # who has no processor for long is left behind: not three times
    rm -f go fit.?.err
    ./fit-long 127.0.0.1:$port 3 >fit.1 2>fit.1.err & first=$!
    ./fit-long 127.0.0.1:0 3 127.0.0.1:$port >fit.2 2>fit.2.err & second=$!
    ./fit-long 127.0.0.1:0 3 127.0.0.1:$port >fit.3 2>fit.3.err & third=$!
    are_in 1 2 3
    ./fit-long 127.0.0.1:0 3 127.0.0.1:$port new >fit.4 2>fit.4.err & new=$!
    are_in 4
    kill -9 $first || fail "the founder ended before it was killed: $(cat fit.1.err)"
    : >go
    code=0
    for pid in $second $third $new; do wait $pid || code=$?; done
    [ $code -ne 0 ] || break
    grep -q 'the others continued without it\|may have continued with others' fit.?.err && [ $try -lt 3 ] || fail "a member ends with $code: $(cat fit.?.err)"
done
cmp fit.2 fit.3 || fail "survivors end with other parameters: $(cat fit.2 fit.3)"
grep -q '^y = ' fit.4 && cmp fit.2 fit.4 || fail "who joined ends with other parameters: $(cat fit.2 fit.4)"
if command -v "$cxx" >/dev/null; then
    # shellcheck disable=SC2086
    $cxx -std=c++17 $strict $cflags run.cc -o run $libs || fail "the C++ example of docs/library.md does not build"
    [ "$(./run)" = 0110 ] || fail "the C++ example says $(./run), not 0110"
fi
# The app of docs/apps.md: built outside the tree, trained, killed in the middle, resumed: the result is that of a
# run that nothing disturbed.
sed -n '/^```c$/,/^```$/p' "$source/docs/apps.md" | sed '/^```/d' >hinge.c
[ "$(wc -l <hinge.c)" -lt 150 ] || fail "the app of docs/apps.md has $(wc -l <hinge.c) lines"
# shellcheck disable=SC2086
$cc -std=c17 $strict $cflags -shared -fPIC hinge.c -o libhinge.so $libs || fail "the app of docs/apps.md does not build"
awk 'BEGIN { srand(1); for (i = 0; i < 3000; i++) { s = ""; y = 0; for (j = 1; j <= 8; j++) { v = rand() - 0.5; y += j % 2 ? v : -v;
    s = s sprintf(" %d:%.3f", j, v) } print (y > 0 ? "+1" : "-1") s } }' >train.svm
cat >hinge.yaml <<'END'
app: ./libhinge.so
data: {format: libsvm, train: train.svm}
train: {epochs: 400}
checkpoint: {every: 1ms}
hinge: {lr: 0.2}
END
rubato=$build/tool/rubato
"$rubato" train hinge.yaml --out whole -q >/dev/null || fail "the app of docs/apps.md does not train"
"$rubato" train hinge.yaml --out killed -q >/dev/null & pid=$!
while [ -z "$(ls killed/checkpoints 2>/dev/null)" ] && kill -0 $pid 2>/dev/null; do :; done
kill -9 $pid 2>/dev/null || true
wait $pid 2>/dev/null || true
"$rubato" train hinge.yaml --out killed --resume -q >/dev/null || fail "the killed run does not go on"
for run in whole killed; do "$rubato" export $run --safetensors $run.safetensors >/dev/null; done
cmp whole.safetensors killed.safetensors || fail "a killed and resumed app ends elsewhere"
tail -n 1 whole/metrics.jsonl | grep -q '"hinge":0\.[012]' || fail "the app did not learn: $(tail -n 1 whole/metrics.jsonl)"
# The apps that are linked in, each built as a library outside the tree: the results are the same.
ln -s "$source/apps" apps
awk 'BEGIN { srand(3); for (i = 0; i < 400; i++) { line = i % 4; for (c = 1 + int(rand() * 9); c <= 60; c += 1 + int(rand() * 20))
    line = line " " c ":" 1 + int(rand() * 3) + (c % 4 == i % 4); print line } }' >four.svm
awk 'BEGIN { srand(5); for (k = 0; k < 3000; k++) { u = int(rand() * 60); i = int(rand() * 40); print u, i, u * i % 7 + rand() } }' >ratings.txt
for app in mf lda mlr lasso kmeans; do
    { echo '#include "train/app/app.h"' && echo "extern const ru_app_ops ru_app_$app;" && echo "const ru_app_ops *ru_app_main(void);" &&
        echo "const ru_app_ops *ru_app_main(void) { return &ru_app_$app; }"; } >main-$app.c
    kernels= data='libsvm, train: four.svm, test: four.svm'
    case $app in
        mf) kernels='apps/kern.c apps/mf_kern.c apps/lda_sample.c' data='ratings, train: ratings.txt, test: ratings.txt' ;;
        lda) kernels='apps/kern.c apps/mf_kern.c apps/lda_sample.c' ;;
        lasso) kernels=apps/lasso_drive.c ;;
    esac
    # shellcheck disable=SC2086
    $cc -std=gnu17 $strict -O2 -ffp-contract=off $cflags "-I$include/rubato" -I. -shared -fPIC -Wl,-z,defs main-$app.c apps/$app.c $kernels \
        -o lib$app.so $libs -lm || fail "$app does not build as a library"
    printf 'app: %s\ndata: {format: %s}\ntrain: {epochs: 3, seed: 5}\n' $app "$data" >$app.yaml
    "$rubato" train $app.yaml --out in-$app -q >/dev/null || fail "$app does not train"
    "$rubato" train $app.yaml -s app=./lib$app.so --out so-$app -q >/dev/null || fail "$app does not train as a library"
    for f in $(cd in-$app/checkpoints && find . -name '*.safetensors'); do
        cmp in-$app/checkpoints/$f so-$app/checkpoints/$f || fail "$app ends elsewhere as a library"
    done
    "$rubato" eval so-$app >so.txt && "$rubato" eval in-$app | cmp - so.txt || fail "$app is evaluated otherwise as a library"
done
# The same on several workers: the leader is killed, and a worker that comes takes executors over.
same() {
    "$rubato" export "$1" --safetensors "$1.safetensors" >/dev/null
    cmp "$2.safetensors" "$1.safetensors" || fail "$3"
}
awk '{ for (i = 0; i < 10; i++) print }' train.svm >long.svm
sed 's/every: 1ms/every: 1s/; s/train.svm/long.svm/' hinge.yaml >long.yaml
"$rubato" train long.yaml --out long -q >/dev/null || fail "the app does not train for long"
"$rubato" export long --safetensors long.safetensors >/dev/null
"$rubato" train long.yaml -w 2:3 --out "$work/several" >several.log 2>&1 & pid=$!
while ! grep -q '"step":40,' several/metrics.jsonl 2>/dev/null && kill -0 $pid 2>/dev/null; do sleep 0.05; done
# shellcheck disable=SC2046
set -- $(pgrep -f "worker --job $work/several/job.yaml")
[ $# -ge 2 ] && kill -9 "$1" || fail "there are no two workers, of which one is killed: $(cat several.log)"
# Who is left stands still most of the time, so that it is not done before another one has come.
while ! grep -q '"what":"join","worker":3' several/metrics.jsonl && kill -STOP "$2" 2>/dev/null; do
    sleep 0.1
    kill -CONT "$2" || break
    sleep 0.02
done
wait $pid || fail "the job of which a worker was killed fails: $(tail -n 3 several.log)"
grep -q 'starting another worker' several.log || fail "no worker came: $(cat several.log)"
"$rubato" explain several moves | grep -q 'predicted and measured' || fail "nothing moved to the worker that came: $(cat several.log)"
same several long "the app ends elsewhere on several workers"

# One process, three workers, one process; then an app that crashes, and is corrected.
sed 's/epochs: 400/epochs: 60/' hinge.yaml >short.yaml
"$rubato" train short.yaml --out short -q >/dev/null
"$rubato" export short --safetensors short.safetensors >/dev/null
"$rubato" train short.yaml -s train.epochs=20 --out hop -q >/dev/null
"$rubato" train short.yaml -s train.epochs=40 --out hop -w 3 --resume -q >hop.log 2>&1 || fail "three workers do not continue the run of one process: $(cat hop.log)"
ls hop/params/40-* >/dev/null || fail "three workers did not begin where one process ended: $(ls hop/params)"
"$rubato" train short.yaml --out hop --resume -q >/dev/null || fail "one process does not continue the run of three workers"
same hop short "the app ends elsewhere by way of three workers"
sed 's|    float \*gradient = view->delta\[0\];|&\n    if (task->executor == 1 \&\& task->clock == 30) { *(volatile int *)8 = 1; }|' hinge.c >crash.c
sed 's/libhinge/libcrash/' short.yaml >crash.yaml
# shellcheck disable=SC2086
$cc -std=c17 $cflags -shared -fPIC crash.c -o libcrash.so $libs
for w in 1 3; do
    code=0
    "$rubato" train crash.yaml --out crash-$w -w $w -q >crash.log 2>&1 || code=$?
    [ "$code" -eq 1 ] || fail "an app that crashes ends with $code on $w: $(cat crash.log)"
    grep -q 'libcrash.so crashed in run of executor 1, clock 30 (signal 11' crash.log || fail "the crash is not named: $(cat crash.log)"
done
grep -q 'crashed 2 workers in run of executor 1 in clock 30' crash.log || fail "the job tried the app for ever: $(cat crash.log)"
# Other functions, and other ends: exit in a task, a merge that does not come back.
sed 's|\*(volatile int \*)8 = 1|exit(0)|' crash.c >exits.c
sed 's|^static .*tables(|static void stuck(const void *self, uint32_t n, float *value, float *extra, const float *update)\n{\n    (void)self, (void)n, (void)value, (void)extra, (void)update;\n    for (volatile int i = 0;; i = i + 1) { }\n}\n\n&|
    s|RU_APP_ADAGRAD|RU_APP_USER|; s|\.version = RU_APP_VERSION,|& .merge = stuck,|' hinge.c >stuck.c
for bad in exits stuck; do
    # shellcheck disable=SC2086
    $cc -std=c17 $cflags -shared -fPIC $bad.c -o lib$bad.so $libs
    sed "s/libhinge/lib$bad/" short.yaml >$bad.yaml
    code=0
    timeout 300 "$rubato" train $bad.yaml -s clocks.task_limit=5s --out $bad -q >$bad.log 2>&1 || code=$?
    [ "$code" -eq 1 ] || fail "an app of which a function never ends well ends with $code: $(cat $bad.log)"
done
grep -q 'ended the process in run of executor 1, clock 30 (exit)' exits.log || fail "the exit is not named: $(cat exits.log)"
grep -q 'did not return from merge in clock 0' stuck.log || fail "the merge that loops is not named: $(cat stuck.log)"
cp libhinge.so libcrash.so
"$rubato" train crash.yaml --out crash-3 -w 2 --resume -q >crash.log 2>&1 || fail "the corrected app does not continue: $(cat crash.log)"
same crash-3 short "the corrected app ends elsewhere"
echo "ok: $n headers, $(wc -l <exported.txt) functions, examples: $(cat said.txt)"
