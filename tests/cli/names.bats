#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Names that would be commands, tags or options somewhere: they stay names. A trap that springs makes the file "pwned".
bats_require_minimum_version 1.5.0
load helper

names=($'a\nsystem "touch pwned"\n' "x'; system 'touch pwned'; '" '"; !touch pwned; "' '`touch pwned`' '$(touch pwned)'
       'back\slash' ';touch pwned' '<script>alert(1)</script>' $'bell\a\e[31m' $'\xff\xfe' '-rf' '|touch pwned' '#c' 'a,b' '%s%n')

no_trap() {
    [ -z "$(find . -name pwned)" ]
}

valid_utf8() {
    iconv -f utf-8 -t utf-8 "$1" > /dev/null
}

@test "a run folder may have any name: run, plot, report, compare, eval" {
    "$HDO" run demo $small -o seen
    for n in "${names[@]}"; do
        run "$HDO" run demo $small -o "./$n"
        [ "$status" -eq 0 ]
        [ -f "./$n/summary.json" ] || [[ "$n" == */* ]]
    done
    no_trap
    dirs=()
    for d in ./*/; do dirs+=("$d"); done
    [ "${#dirs[@]}" -ge "${#names[@]}" ]
    run "$HDO" plot "${dirs[@]}" --text
    [ "$status" -eq 0 ]
    [ -s figure.svg ]
    [ -s figure.png ]
    valid_utf8 figure.svg
    valid_utf8 figure.csv
    [[ "$output" != *$'\e'* ]]
    run "$HDO" report "${dirs[@]}" -o page.html --title "<script>t</script>"
    [ "$status" -eq 0 ]
    valid_utf8 page.html
    run grep -c '<script' page.html
    [ "$output" -eq 0 ]
    grep -q '&lt;script&gt;t&lt;/script&gt;' page.html
    no_trap
    for d in "${dirs[@]}"; do
        "$HDO" compare "$d" seen --json | jq -e '.n_a == 1' > /dev/null
        "$HDO" eval "$d" --json --no-confusion -q | jq -e '.loss > 0' > /dev/null
    done
    no_trap
}

@test "an output may have any name: plot, report, run --json, the command line in the manifest" {
    "$HDO" run demo $small -o seen
    for n in "${names[@]}"; do
        [[ "$n" == */* ]] && continue
        run "$HDO" plot seen -o "$n"
        [ "$status" -eq 0 ]
        [ -s "./$n.svg" ]
        [ -s "./$n.pdf" ]
        run "$HDO" report seen -o "./$n.html"
        [ "$status" -eq 0 ]
        "$HDO" run demo $small --seeds 1-2 --json -o "./dir $n" | jq -e '.seeds == 2' > /dev/null
        jq -r .command "./dir $n/seed-1/manifest.json" > command
        rm -rf -- "./dir $n"
        sed "s|^hdo |'$HDO' |" command > again.sh
        bash again.sh > /dev/null # the stored command can be pasted
        [ -d "./dir $n" ]
        rm -rf -- "./dir $n"
        no_trap
    done
}

@test "data paths, labels and settings may have any name" {
    for n in "${names[@]}"; do
        [[ "$n" == */* ]] && continue
        printf 'a,b,label\n' > "./$n.csv"
        for i in 1 2 3 4 5 6 7 8 9 10; do printf '%d,%d,"%s"\n' $i $((i * i)) "k$((i % 2))${n//[$'\n\"']/}" >> "./$n.csv"; done
        run "$HDO" run demo --set data.name=csv --set "data.path=./$n.csv" --set data.train=0 --set data.val=0 --set steps=1 \
            --population 1fo+1zo -q -o out --force
        if [ "$status" -eq 0 ]; then
            jq -e . out/summary.json out/manifest.json > /dev/null
            "$HDO" config check out/config.yaml
        else
            [[ "$output" == "hdo: error: "* ]]
            [[ "$output" != *$'\e'* ]]
        fi
        run "$HDO" run "$n"
        [ "$status" -eq 2 ]
        [[ "$output" != *$'\e'* ]]
        run "$HDO" run demo --set "$n=1"
        [ "$status" -eq 2 ]
        run "$HDO" run demo --population "1$n"
        [ "$status" -eq 2 ]
        [[ "$output" != *$'\e'* ]]
        no_trap
    done
}

@test "tables of diverged runs have no nan, one seed has no +-" {
    lost="--set population.fo.lr=1e6 --set population.zo.lr=1e6"
    run "$HDO" run demo $small $lost -o lost
    [ "$status" -eq 4 ]
    [[ "$output" != *nan* ]]
    run "$HDO" run demo $small $lost --seeds 1-2 -o two
    [ "$status" -eq 4 ]
    [[ "$output" == *"2 seeds, 2 diverged"* ]]
    [[ "$output" != *nan* ]]
    [[ "$output" != *"+-"* ]]
    "$HDO" run demo $small $lost --seeds 1-2 --json -o three > seeds.json || true
    jq -e '.seeds == 2 and .diverged == 2 and .val_loss_mean == null' seeds.json
    run "$HDO" run demo $small --seeds 1-1 -o one
    [ "$status" -eq 0 ]
    [[ "$output" != *"+-"* ]]
    "$HDO" plot lost one two
    grep -q 'lost (diverged)' figure.svg
    grep -q 'two (2 of 2 seeds diverged)' figure.svg
    "$HDO" report lost one two -o page.html
    run grep -ci 'nan' page.html
    [ "$output" -eq 0 ]
    grep -q '<td>diverged</td>' page.html
    "$HDO" sweep demo $small population.fo.lr=0.01,1e6 population.zo.lr=0.01,1e6 -o sweep
    [ -s sweep/heatmap.svg ]
    grep -q '>diverged<' sweep/heatmap.svg
    run grep -c nan sweep/sweep.csv
    [ "$output" -eq 0 ]
}
