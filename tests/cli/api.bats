#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The public interface: what was promised is there, everything is documented, the tutorial and the templates work.
bats_require_minimum_version 1.5.0
load helper

build=$(cd "$(dirname "${HDO:?}")" && pwd)
rpath="-Wl,-rpath,$build"
export PKG_CONFIG_PATH="$build/tools"

@test "the library exports what was promised, and layouts are as they were" {
    run "$HDO_SOURCE/tools/check-abi" "$build"
    [ "$status" -eq 0 ]
    [[ "$output" == *"as promised"* ]]
}

# A copy of the tree's tools and headers in which one thing was changed.
changed() { # changed SED-EXPRESSION FILE
    rm -rf copy
    mkdir -p copy/docs
    cp -r "$HDO_SOURCE/tools" "$HDO_SOURCE/include" copy/
    cp "$HDO_SOURCE/docs/api_reference.md" copy/docs/
    sed -i "$1" "copy/$2"
    run cmp -s "copy/$2" "$HDO_SOURCE/$2"
    [ "$status" -ne 0 ]
}

@test "what breaks programs is refused, what is new needs a line" {
    changed 's/^hdo_run_new$/&\nhdo_run_vanished/' tools/abi/libhdo.symbols
    run copy/tools/check-abi "$build"
    [ "$status" -eq 1 ]
    [[ "$output" == *"hdo_run_vanished is gone"* ]]
    changed '/^hdo_run_new$/d' tools/abi/libhdo.symbols
    run copy/tools/check-abi "$build"
    [ "$status" -eq 1 ]
    [[ "$output" == *"'hdo_run_new' is new"* ]]
    changed 's/^    int64_t step;  .*/    int32_t step;/' include/hdo/objective.h
    run copy/tools/check-abi "$build"
    [ "$status" -eq 1 ]
    [[ "$output" == *"hdo_call member step"*"no longer true"* ]]
    run copy/tools/check-abi "$build" --update
    [ "$status" -ne 0 ]
    changed 's/^    HDO_COMPLETED,/    HDO_SOMETHING, HDO_COMPLETED,/' include/hdo/hdo.h
    run copy/tools/check-abi "$build"
    [ "$status" -eq 1 ]
    [[ "$output" == *"constant HDO_COMPLETED 1"*"no longer true"* ]]
}

@test "a member behind the last one of a table is an addition" {
    changed 's/^} hdo_mixing_def;/    void *more; \/* new *\/\n} hdo_mixing_def;/' include/hdo/mixing.h
    run copy/tools/check-abi "$build"
    [ "$status" -eq 1 ]
    [[ "$output" != *"no longer true"* ]]
    [[ "$output" == *"hdo_mixing_def member more"*"is new"* ]]
    copy/tools/check-abi "$build" --update
    copy/tools/check-abi "$build"
}

@test "every public declaration has a comment, and the reference is up to date" {
    run "$HDO_SOURCE/tools/make-api-reference" --check
    [ "$status" -eq 0 ]
    changed 's/^HDO_API void hdo_config_free(hdo_config \*c);/\n&/' include/hdo/hdo.h
    run copy/tools/make-api-reference --check
    [ "$status" -eq 1 ]
    [[ "$output" == *"hdo_config_free has no comment"* ]]
    changed 's/Frees a text this library returned/Frees a word/' include/hdo/hdo.h
    run copy/tools/make-api-reference --check
    [ "$status" -eq 1 ]
    [[ "$output" == *"out of date"* ]]
}

@test "every stable header compiles alone and with all others, by both compilers, in C11 and C++17" {
    (cd "$HDO_SOURCE/include" && for h in hdo/*.h; do echo "#include <$h>"; done) > all.h
    tac all.h > back.h
    [ "$(wc -l < all.h)" -ge 9 ]
    echo "extern int nothing;" | tee -a all.h >> back.h # a unit of macros alone is empty
    while read -r line; do printf "%s\nextern int nothing;\n" "$line" > "one$((++n)).h"; done < all.h
    for h in one*.h all.h back.h; do
        for cc in gcc clang; do $cc -std=c11 -pedantic -Wall -Wextra -Werror -fsyntax-only -I"$HDO_SOURCE/include" -x c "$h"; done
        for cc in g++ clang++; do $cc -std=c++17 -pedantic -Wall -Wextra -Werror -fsyntax-only -I"$HDO_SOURCE/include" -x c++ "$h"; done
    done
}

@test "the programs of the tutorial build and do what they say" {
    awk '/^```c$/ {getline; name = $2; print > name; on = 1; next} /^```$/ {on = 0} on {print > name}' "$HDO_SOURCE/docs/api.md"
    [ "$(ls tutorial_*.c | wc -l)" -eq 3 ]
    for f in tutorial_*.c; do
        cc -std=c11 -Wall -Wextra -Werror "$f" -o tutorial $(pkg-config --cflags --libs hdo) $rpath
        ./tutorial > "$f.out"
    done
    grep -q 'completed: loss [01]\.' tutorial_1.c.out
    grep -q 'minimum near (0.9\|minimum near (1.0' tutorial_2.c.out
    [ "$(grep -c 'loss of the mean model' tutorial_3.c.out)" -eq 5 ]
}

@test "hdo new: projects that build, pass their own test and run at once" {
    for kind in objective estimator data; do
        run "$HDO" new $kind my-$kind
        [ "$status" -eq 0 ]
        [[ "$output" == *"make -C my-$kind test"* ]]
        make -C my-$kind test run HDO="$HDO" CFLAGS='-O1 -g -Werror' > $kind.log 2>&1 || { cat $kind.log; false; }
        [ -f my-$kind/run/summary.json ]
        run grep -rl '@NAME@' my-$kind
        [ "$status" -ne 0 ]
    done
}

@test "hdo new: what it refuses" {
    mkdir there
    run "$HDO" new objective there
    [ "$status" -eq 1 ]
    [[ "$output" == *"File exists; give another with -o"* ]]
    run "$HDO" new objective 'A b'
    [ "$status" -eq 2 ]
    [[ "$output" == *"cannot be a name"* ]]
    run "$HDO" new sandwich mine
    [ "$status" -eq 2 ]
    [[ "$output" == *"objective, estimator, data"* ]]
    run "$HDO" new objective
    [ "$status" -eq 2 ]
    "$HDO" new data moons -o elsewhere
    [ -f elsewhere/moons.c ]
}

@test "a plug-in with an estimator, a mixing and a sink: run, resumed, refused with another identity" {
    parts() { cc -std=c11 -Wall -Wextra -Werror -DIDENTITY="\"$1\"" -shared -fPIC $(pkg-config --cflags hdo) "$HDO_SOURCE/tests/plugins/parts.c" -o libparts.so; }
    parts one
    cat > parts.yaml <<'END'
model: {name: quadratic, dim: 8, start: 2}
steps: 20
eval: {every: 5}
checkpoint: {every: 10}
population:
  fo: {count: 2, estimator: fo, lr: 0.1}
  my: {count: 2, plugin: ./libparts.so, lr: 0.1}
mixing: {plugin: ./libparts.so}
sink: {plugin: ./libparts.so}
END
    "$HDO" check parts.yaml > /dev/null
    "$HDO" run parts.yaml --quiet -o one
    [ "$(wc -l < one/rows.txt)" -eq 5 ]
    [ "$(jq -r '.classes[1].estimator' one/summary.json)" = plain ]
    [ "$(jq .interactions one/summary.json)" -eq 30 ]
    [ "$(jq .oracle.backward one/summary.json)" -eq 80 ]
    "$HDO" run parts.yaml --quiet -o part --set steps=10
    "$HDO" run --resume part --set steps=20 --quiet
    [ "$(jq -r .params_sha256 part/summary.json)" = "$(jq -r .params_sha256 one/summary.json)" ]
    "$HDO" run parts.yaml --quiet -o other --set steps=10
    parts two
    run "$HDO" run --resume other --set steps=20 --quiet
    [ "$status" -eq 3 ]
    [[ "$output" == *"estimators or mixing of one's own"* ]]
    run "$HDO" run parts.yaml --quiet -o wrong --set model.plugin=./libparts.so
    [ "$status" -eq 2 ]
    [[ "$output" == *"offers no objective"* ]]
}

@test "random sequences of calls give a status, never a crash" {
    run "$build/tests/api_sequences" 40
    [ "$status" -eq 0 ]
    [[ "$output" == *"40 sequences"* ]]
}
