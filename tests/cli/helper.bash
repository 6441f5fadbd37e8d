# Shared by the command-line tests: $HDO is the program, every test has its own folder.
setup() {
    : "${HDO:?set HDO to the program under test}"
    TMP=$(mktemp -d)
    cd "$TMP" || exit 1
    export HDO_RUNS_DIR="$TMP/runs" NO_COLOR=1
    unset HDO_CONFIG HDO_NUM_THREADS
}
teardown() {
    cd /
    rm -rf "$TMP"
}
no_litter() { # FOLDER: no temporary file was left in it
    [ -d "$1" ]
    [ -z "$(find "$1" -name '*tmp*')" ]
}
small="--set steps=20 --set data.train=400 --set data.val=200 -q"
