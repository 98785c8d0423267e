# Sourced by scripts that look at exit codes and at what is said, from a folder of their own.
failed=0
fail() {
    echo "FAIL: $*" >&2
    failed=1
}
# expect CODE WORDS COMMAND...: the exit code, and words in the sentence on stderr
expect() {
    code=$1
    words=$2
    shift 2
    got=0
    "$@" >out.txt 2>err.txt || got=$?
    if [ "$got" -ne "$code" ]; then
        fail "'$*' exits $got, expected $code: $(tail -1 err.txt)"
    elif ! grep -q -- "$words" err.txt; then
        fail "'$*' does not say '$words': $(tail -1 err.txt)"
    else
        echo "ok: $code $(grep -- "$words" err.txt | tail -1)"
    fi
}
