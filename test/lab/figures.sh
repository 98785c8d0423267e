# Sourced by scripts that take figures of real workers in the laboratory: a folder $work and a network $lab,
# which go when the script ends. Set before: net, and short, a name of at most four letters.
work=$(mktemp -d "${TMPDIR:-/tmp}/rubato-$short-XXXXXX")
lab=ru$short$$
lab=${lab:0:12}
export RUBATO_TOKEN=of-the-figures-of-the-laboratory
cleanup() {
    jobs -p | xargs -r kill -9 2>/dev/null || true
    sleep 0.2
    "$net" down "$lab" >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap cleanup EXIT
cd "$work"
