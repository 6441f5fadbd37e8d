#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# The installed copy: any prefix, DESTDIR, moved elsewhere, used by programs in C and C++ through pkg-config.
bats_require_minimum_version 1.5.0
load helper

build=$(cd "$(dirname "${HDO:?}")" && pwd)
prefix_of() { jq -r '.[] | select(.name == "prefix").value' "$build/meson-info/intro-buildoptions.json"; }
make_() { make --no-print-directory -C "${HDO_SOURCE:?}" BUILD="$build" "$@"; }

setup_file() {
    export OLD_PREFIX STAGE
    OLD_PREFIX=$(prefix_of)
    STAGE=$(mktemp -d)
    cp "$build/meson-logs/install-log.txt" "$STAGE/log" 2>/dev/null || true
    make_ install PREFIX="$STAGE/a b" > "$STAGE/out" 2>&1 || { cat "$STAGE/out"; return 1; }
}
teardown_file() {
    [ "$(prefix_of)" = "$OLD_PREFIX" ] || meson configure "$build" -Dprefix="$OLD_PREFIX"
    cp "$STAGE/log" "$build/meson-logs/install-log.txt" 2>/dev/null || true
    rm -rf "$STAGE"
}
libdir_of() { dirname "$(find "$1" -name libhdo.so)"; }

@test "make install PREFIX= after make: the program starts and trains" {
    cd "$STAGE/a b"
    [ -x bin/hdo ]
    run env -u LD_LIBRARY_PATH bin/hdo version
    [ "$status" -eq 0 ]
    [ "$output" = "$("$HDO" version)" ]
    env -u LD_LIBRARY_PATH -u HDO_LIBEXEC_DIR bin/hdo run demo $small -o "$TMP/r"
    [ -f "$TMP/r/summary.json" ]
    [ -s share/man/man1/hdo.1 ]
    [ -s share/man/man5/hdo.yaml.5 ]
    [ -x libexec/hdo/hdo-data-get ]
    run readelf -d bin/hdo
    [[ "$output" == *'$ORIGIN/../lib'* ]]
}

@test "an installation may be moved" {
    cp -r "$STAGE/a b" moved
    mv "$STAGE/a b" "$STAGE/gone"
    env -u LD_LIBRARY_PATH moved/bin/hdo run demo $small -o r && ok=yes
    run env -u HDO_LIBEXEC_DIR HDO_DATA_DIR="$TMP/data" PATH=/usr/bin:/bin moved/bin/hdo data get mnist --via curl --offline
    mv "$STAGE/gone" "$STAGE/a b"
    [ "$ok" = yes ]
    [[ "$output" != *"is not installed"* ]]
}

@test "examples compile through pkg-config outside the tree, in C and in C++" {
    cp -r "$STAGE/a b" inst
    lib=$(libdir_of inst)
    export PKG_CONFIG_PATH="$lib/pkgconfig"
    [ "$(pkg-config --modversion hdo)" = "$("$HDO" version | awk 'NR == 1 {print $2}')" ]
    flags="$(pkg-config --cflags --libs hdo-lab) -Wl,-rpath,$PWD/$lib"
    # A node needs one of the two libraries.
    cc -std=c11 -Wall -Wextra -Werror "$HDO_SOURCE/examples/01_quadratic.c" -o example $(pkg-config --cflags --libs hdo) \
        -Wl,-rpath,"$PWD/$lib" -lm
    run ldd example
    [[ "$output" == *libhdo.so* ]]
    [[ "$output" != *libhdo-lab* ]]
    cp "$HDO_SOURCE"/examples/0* .
    for e in 01_quadratic 02_who_helps 03_own_objective 04_own_estimator 05_own_data 06_ask_tell; do
        cc -std=c11 -Wall -Wextra -Werror $e.c -o example $flags -lm
        env -u LD_LIBRARY_PATH ./example > $e.out
    done
    grep -q 'step 3000: loss of the mean model 0.000' 03_own_objective.out
    [ "$(grep -c 'after 76800 forward passes' 04_own_estimator.out)" -eq 2 ]
    grep -q 'step  600: accuracy of the mean model 0.9' 05_own_data.out
    grep -q 'the best mixture: 0.100 0.200 0.300 0.400' 06_ask_tell.out
    g++ -std=c++17 -Wall -Wextra -Wpedantic -Werror 07_cplusplus.cc -o example $(pkg-config --cflags --libs hdo) -Wl,-rpath,"$PWD/$lib"
    run env -u LD_LIBRARY_PATH ./example
    [ "$output" = 'y = 2.00 x + -0.50' ]
    cc -std=c11 -Wall -Wextra -Werror -shared -fPIC $(pkg-config --cflags hdo) 08_plugin.c -o libspring.so -lm
    env -u LD_LIBRARY_PATH inst/bin/hdo run 08_plugin.yaml --quiet -o springs
    [ "$(jq -r .model springs/summary.json)" = spring ]
    [ "$(jq '.final.val_loss_mean < -30' springs/summary.json)" = true ]
    for e in 0*.c 0*.cc; do [ "$(wc -l < "$e")" -lt 80 ]; done
    (cd inst/include && for h in hdo/*.h hdo/*/*.h; do echo "#include <$h>"; done) > all.h
    cat all.h - > program.cc <<'END'
#include <cstdio>
#include <vector>
int main() {
    hdo_config c;
    hdo_error e{};
    hdo_run *run = nullptr;
    hdo_stop why = HDO_RUNNING;
    hdo_config_default(&c);
    if (hdo_config_set_from(&c, "steps", "5", HDO_FROM_FLAG, &e) != HDO_OK) return 2;
    if (hdo_run_create(&run, &c, nullptr, &e) != HDO_OK) return std::puts(e.msg), 3;
    while (why == HDO_RUNNING && hdo_run_advance(run, 1, &why, &e) == HDO_OK) {}
    hdo_check_options o = hdo_check_default();
    std::printf("%d %g %d\n", static_cast<int>(why), hdo_run_last_row(run)->all.loss_mean, o.samples);
    hdo_run_destroy(run);
    return hdo_paper_at(0) != nullptr && hdo_known_name(HDO_GIVEN) != nullptr && hdo_bench_selects("a", "a") &&
           hdo_student_quantile(0.975, 2) > 4 && hdo_version() != nullptr ? 0 : 4;
}
END
    g++ -std=c++17 -Wall -Wextra -Wpedantic -Werror program.cc -o program $flags
    env -u LD_LIBRARY_PATH ./program
}

@test "projects of hdo new build and pass their test with an installed copy alone" {
    cp -r "$STAGE/a b" inst
    export PKG_CONFIG_PATH="$PWD/$(libdir_of inst)/pkgconfig"
    for kind in objective estimator data; do
        env -u LD_LIBRARY_PATH inst/bin/hdo new $kind my-$kind
        env -u LD_LIBRARY_PATH make -C my-$kind test run HDO="$PWD/inst/bin/hdo" > $kind.log 2>&1 || { cat $kind.log; false; }
        [ -f my-$kind/run/summary.json ]
    done
}

@test "every public header compiles alone and all together, in C11 and C++17" {
    cd "$STAGE/a b/include"
    for h in hdo/*.h hdo/*/*.h; do
        echo "#include <$h>" >> "$TMP/all.h"
        printf '#include <%s>\nextern int nothing;\n' "$h" | cc -std=c11 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I. -x c -
        echo "#include <$h>" | g++ -std=c++17 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I. -x c++ -
    done
    tac "$TMP/all.h" > "$TMP/back.h"
    for order in all back; do
        cc -std=c11 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I. -x c "$TMP/$order.h"
        g++ -std=c++17 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -I. -x c++ "$TMP/$order.h"
    done
}

@test "DESTDIR stages the prefix; uninstall takes everything back" {
    make_ install PREFIX=/opt/hdo DESTDIR="$TMP/stage" > out 2>&1 || { cat out; false; }
    [ -x stage/opt/hdo/bin/hdo ]
    env -u LD_LIBRARY_PATH stage/opt/hdo/bin/hdo version
    run grep -r "$TMP" stage/opt/hdo/bin stage/opt/hdo/include "$(libdir_of stage)/pkgconfig"
    [ "$status" -ne 0 ]
    make_ uninstall > out 2>&1 || { cat out; false; }
    [ ! -e stage/opt ]
}
