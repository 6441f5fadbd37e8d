#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# A header needs no other one before it.
load helper

@test "every header compiles by itself" {
    n=0
    for h in $(cd "$HDO_SOURCE/include" && find hdo -name '*.h'); do
        printf '#include <%s>\nint main(void) { return 0; }\n' "$h" > one.c
        cc -std=c11 -Wall -Wextra -Wpedantic -Wconversion -Werror -I "$HDO_SOURCE/include" -fsyntax-only one.c
        n=$((n + 1))
    done
    [ "$n" -ge 20 ]
    config=$(dirname "$HDO")/hdo_build.h
    [ -f "$config" ]
    # The plug-in's needs mpi.h; simd_avx512.h, simd_avx2.h, simd_x86.h and simd_plain.h are pieces of simd_mm.h.
    for h in $(cd "$HDO_SOURCE/src" && find . -name '*.h' ! -path '*/mpi/*' ! -name 'simd_avx*.h' ! -name simd_plain.h ! -name simd_x86.h); do
        printf '#include "%s"\nint main(void) { return 0; }\n' "$h" > one.c
        cc -std=c11 -D_POSIX_C_SOURCE=200809L -DHDO_ISA=portable -include "$config" -Wall -Wextra -Wno-psabi -Werror \
            -I "$HDO_SOURCE/include" -I "$HDO_SOURCE/src" -fsyntax-only one.c
        n=$((n + 1))
    done
    [ "$n" -ge 40 ]
}

@test "public headers compile alone and all together, in C11 and C++17" {
    n=0
    : > together.c
    for h in $(cd "$HDO_SOURCE/include" && find hdo -name '*.h' | sort); do
        printf '#include <%s>\n' "$h" > one.c
        cat one.c >> together.c
        c++ -std=c++17 -x c++ -Wall -Wextra -Wpedantic -Werror -I "$HDO_SOURCE/include" -fsyntax-only one.c
        # What is declared has C linkage, and says so itself.
        if grep -q HDO_API "$HDO_SOURCE/include/$h"; then
            grep -q 'extern "C"' "$HDO_SOURCE/include/$h"
        fi
        n=$((n + 1))
    done
    [ "$n" -ge 30 ]
    cc -std=c11 -Wall -Wextra -Wpedantic -Wconversion -Werror -I "$HDO_SOURCE/include" -fsyntax-only together.c
    c++ -std=c++17 -x c++ -Wall -Wextra -Wpedantic -Werror -I "$HDO_SOURCE/include" -fsyntax-only together.c
}

@test "the stable headers include nothing experimental" {
    for h in hdo objective dataset estimator mixing sink plugin status version; do
        run grep -l 'experimental/\|hdo/lab/' <(grep '#include' "$HDO_SOURCE/include/hdo/$h.h")
        [ "$status" -ne 0 ]
    done
}
