#!/bin/bash
# Workers of a job with an app that die: recover.sh PATH_OF_RUBATO
#
#   1. two of four are killed, the leader among them: the others go on without a rollback, the model is as good.
#   2. the same with rows that rotate and rows that live with the data.
#   3. of jobs whose rows count what executors hold, two that do not lead: the counts agree with the words again.
set -euo pipefail
rubato=$(realpath "$1")
. "$(dirname "$0")/app.sh"
work=$(mktemp -d "${TMPDIR:-/tmp}/rubato-recover-XXXXXX")
cleanup() {
    jobs -p | xargs -r kill -9 2>/dev/null || true
    rm -rf "$work"
}
trap cleanup EXIT
cd "$work"
classes 4000 120
awk 'BEGIN { srand(5); for (u = 0; u < 400; u++) a[u] = rand() - 0.5; for (i = 0; i < 300; i++) b[i] = rand() - 0.5
    for (k = 0; k < 20000; k++) { u = int(rand() * 400); i = int(rand() * 300); print u, i, sprintf("%.3f", 3 + 4 * a[u] * b[i] + 0.1 * rand()) } }' >r.txt
cat >mlr.yaml <<YAML
app: mlr
data: {format: libsvm, train: [x.svm]}
clocks: {executors: 8}
train: {steps: 1600, seed: 5}
checkpoint: {every: 0s}
YAML
cat >mf.yaml <<YAML
app: mf
data: {format: ratings, train: [r.txt]}
clocks: {executors: 8}
train: {epochs: 900, seed: 5}
checkpoint: {every: 0s}
mf: {rank: 4, lr: 0.02, lambda: 0.02}
YAML
loss() { grep -oE '"(loss|rmse)":[0-9.e+-]+' "$1/metrics.jsonl" | tail -1 | cut -d: -f2; }
for app in mlr mf; do
    timeout 300 "$rubato" train $app.yaml -q -o one-$app >one-$app.log 2>&1 || fail "one process, $app"
    last=$(step one-$app)
    timeout --foreground 300 "$rubato" train $app.yaml -w 4 -o "$work/four-$app" >four-$app.log 2>&1 &
    job=$!
    until_step four-$app 1
    victims="$(worker four-$app 1) $(worker four-$app 2)" # the first leads
    until_step four-$app $((last / 4))
    # shellcheck disable=SC2086
    kill -9 $victims
    at=$(step four-$app)
    wait "$job" || true # its exit code tells of the killed ones
    [[ $(step four-$app) -eq $last ]] || fail "$app came to step $(step four-$app), expected $last"
    # Without a checkpoint a rollback begins again at 0: the steps would be reported once more.
    grep -q '"restored"' four-$app/metrics.jsonl && fail "$app rolled back"
    awk -v a="$(loss one-$app)" -v b="$(loss four-$app)" 'BEGIN { exit !(b <= a * 1.02 + 1e-9) }' ||
        fail "$app: loss $(loss four-$app), expected $(loss one-$app)"
    [[ -z $(ls four-$app/params | grep log-) ]] || fail "$app left its running checkpoint"
    for policy in save recover; do
        "$rubato" explain four-$app $policy >explain.log 2>&1 || fail "explain $policy"
        grep -q 'predicted and measured' explain.log || fail "explain shows no measured $policy"
    done
    echo "ok: $app, two of four killed at step $at of $last, loss $(loss four-$app) beside $(loss one-$app)"
done

awk 'BEGIN { srand(7); for (d = 0; d < 600; d++) { line = ""; y = rand(); for (w = 1 + int(rand() * 9); w <= 120; w += 1 + int(rand() * 20)) { n = 1 + int(3 * rand()); line = line " " w ":" n; all += n; y += w % 10 == 0 ? n : 0 }
    print y line } print all > "words" }' >w.svm
write() { # APP STEPS: its job
    printf 'app: %s\ndata: {format: libsvm, train: [w.svm]}\nclocks: {executors: 8}\ntrain: {steps: %d, seed: 5, threads: 1}\ncheckpoint: {every: 0s}\n%s\n' "$1" "$2" "$3" >$1.yaml
}
write lda 1000 'lda: {topics: 8}'
write lasso 4000 'lasso: {lambda: 0.01, block: 4}'
objective() { grep -oE '"(loss|log_likelihood)":[-0-9.e+]+' "$1/metrics.jsonl" | tail -1 | cut -d: -f2; }
# sum RUN TABLE: of all its values after the last clock
sum() {
    local file header at
    file=$(ls -d "$1"/checkpoints/* | tail -1)/tables.safetensors
    header=$(od -An -tu8 -N8 "$file" | tr -d ' ')
    at=$(tail -c +9 "$file" | head -c "$header" | grep -oE "\"$2\":\{[^}]*" | grep -oE '\[[0-9]+,[0-9]+\]$' | tr -d '[]')
    od -An -v -tf4 -j $((8 + header + ${at%,*})) -N $((${at#*,} - ${at%,*})) "$file" | awk '{ for (i = 1; i <= NF; i++) n += $i } END { print n }'
}
for app in lda lasso; do
    timeout 300 "$rubato" train $app.yaml -q -o one-$app >one-$app.log 2>&1 || fail "one process, $app"
    timeout --foreground 300 "$rubato" train $app.yaml -w 4 -o "$work/four-$app" >four-$app.log 2>&1 &
    job=$!
    until_step four-$app 1
    victims="$(worker four-$app 2) $(worker four-$app 3)" # the first leads
    until_step four-$app 30
    # shellcheck disable=SC2086
    kill -9 $victims
    wait "$job" || true
    [[ $(step four-$app) -eq $(step one-$app) ]] || fail "$app came to step $(step four-$app)"
    grep -q '"recounted"' four-$app/metrics.jsonl || fail "$app was not counted again"
    grep -q '"restored"' four-$app/metrics.jsonl && fail "$app rolled back"
    if [[ $app == lda ]]; then
        for table in words topics; do
            [[ $(sum four-lda $table) -eq $(cat words) ]] || fail "$table: $(sum four-lda $table) of $(cat words) words"
        done
    fi
    awk -v a="$(objective one-$app)" -v b="$(objective four-$app)" 'BEGIN { d = a > b ? a - b : b - a; exit !(d <= 0.02 * (a < 0 ? -a : a)) }' ||
        fail "$app: objective $(objective four-$app), expected $(objective one-$app)"
    echo "ok: $app, two of four killed, objective $(objective four-$app) beside $(objective one-$app)"
done
