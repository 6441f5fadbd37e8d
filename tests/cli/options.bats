#!/usr/bin/env bats
# SPDX-License-Identifier: Apache-2.0
# Command lines: options that all commands share, mistakes, completion and man pages. The tables: test_options.c.
bats_require_minimum_version 1.5.0
load helper

commands() {
    "$HDO" --help | sed -n '/^Commands:/,/^$/p' | awk '/^  [a-z]/ {print $1}'
}

@test "every option that --help shows is known to the command" {
    n=0
    for c in $(commands); do
        for o in $("$HDO" "$c" --help | sed -n '/^Options:/,/^$/s/^  \(-[a-z], \)\{0,1\}--\([A-Za-z0-9-]*\).*/\2/p'); do
            run "$HDO" "$c" "--$o" 1 --nosuch # refused for its end, or for the value, and not for its beginning
            [ "$o" = help ] || [ "$status" -eq 2 ]
            [[ "$output" != *"has no option --$o"* ]] || { echo "hdo $c --$o: $output"; false; }
            n=$((n + 1))
        done
    done
    [ "$n" -gt 100 ]
}

@test "an unknown option is refused with a sentence, and the one that was meant" {
    for c in $(commands); do
        run --separate-stderr "$HDO" "$c" --nosuchoption
        [ "$status" -eq 2 ]
        [[ "$stderr" == "hdo: error: hdo $c has no option --nosuchoption"* ]]
        run --separate-stderr "$HDO" "$c" -Z
        [ "$status" -eq 2 ]
        [[ "$stderr" == "hdo: error: hdo $c has no option -Z"* ]]
        run --separate-stderr "$HDO" "$c" --hlep
        [ "$status" -eq 2 ]
        [[ "$stderr" == *"did you mean --help?"* ]]
    done
    run --separate-stderr "$HDO" run demo --popluation 1fo
    [[ "$stderr" == *"did you mean --population?"* ]]
    run --separate-stderr "$HDO" run demo --se 1
    [[ "$stderr" == *"beginning of several"* ]]
}

@test "a value that is missing, too many, or wrong" {
    run --separate-stderr "$HDO" run demo --np
    [ "$status" -eq 2 ]
    [[ "$stderr" == *"--np needs a value: N"* ]]
    run --separate-stderr "$HDO" run demo --json=yes
    [ "$status" -eq 2 ]
    [[ "$stderr" == *"--json takes no value; got 'yes'"* ]]
    run --separate-stderr "$HDO" bench --seconds 4000
    [ "$status" -eq 2 ]
    [[ "$stderr" == *"--seconds must be more than 0, at most 3600 seconds"*"got '4000'"* ]]
    run --separate-stderr "$HDO" run demo --color purple
    [ "$status" -eq 2 ]
    [[ "$stderr" == *"--color takes one of auto|always|never; got 'purple'"* ]]
    run --separate-stderr "$HDO" run demo --max-time 3x
    [ "$status" -eq 2 ]
    [[ "$stderr" == *"--max-time takes a number of seconds"* ]]
}

@test "did you mean: commands, verbs, presets" {
    run --separate-stderr "$HDO" rnu
    [ "$status" -eq 2 ]
    [[ "$stderr" == *"no command 'rnu'; did you mean 'run'?"* ]]
    run --separate-stderr "$HDO" help therory
    [ "$status" -eq 2 ]
    [[ "$stderr" == *"did you mean 'theory'?"* ]]
    run --separate-stderr "$HDO" data improt x
    [ "$status" -eq 2 ]
    [[ "$stderr" == *"did you mean 'import'?"* ]]
    run --separate-stderr "$HDO" run theory-flet
    [ "$status" -eq 2 ]
    [[ "$stderr" == *"did you mean the preset 'theory-fleet'?"* ]]
    run --separate-stderr "$HDO" data list --rows 3
    [ "$status" -eq 2 ]
    [[ "$stderr" == *"--rows does not go with hdo data list"* ]]
}

@test "--threads works wherever it can matter, and is refused elsewhere" {
    "$HDO" run demo $small --threads 1 -o r
    [ "$("$HDO" run demo --threads 3 --dry-run --json | jq .threads)" = 3 ]
    "$HDO" config show demo --threads 3 --origin | grep -q '^threads: 3 .*--set'
    "$HDO" eval r --threads 1 --json | jq -e '.loss > 0' > /dev/null
    "$HDO" verify r --threads 2 -q
    "$HDO" check demo --threads 1 --try 0 --time 0.05 --json -q | jq -e . > /dev/null
    "$HDO" theory theory-pair --threads 1 -q > /dev/null
    "$HDO" plan theory-fleet --fo 4 --zo 4 --seeds 0 --threads 1 -q > /dev/null
    "$HDO" sweep demo $small population.fo.lr=0.01,0.02 --threads 1 -o s > /dev/null
    run "$HDO" paper e2 --quick --dry-run -q --threads 1 -o p
    [ "$status" -eq 0 ]
    run "$HDO" bench --threads 1 --list
    [ "$status" -eq 0 ]
    for c in "plot r" "report r" "compare r r" "explain r" "data list" "weights info x" doctor version help; do
        # shellcheck disable=SC2086
        run "$HDO" $c --threads 1
        [ "$status" -eq 2 ]
        [[ "$output" == *"has no option --threads"* ]]
    done
}

@test "help COMMAND is COMMAND --help" {
    for c in $(commands); do
        diff <("$HDO" help "$c") <("$HDO" "$c" --help)
    done
}

@test "completion: the scripts are right for their shells, as far as those are here" {
    for s in bash zsh fish; do
        "$HDO" completion "$s" > "hdo.$s"
        for c in $(commands); do grep -q -- "$c" "hdo.$s"; done
        if command -v "$s" > /dev/null; then "$s" -n "hdo.$s"; fi
    done
    run "$HDO" completion tcsh
    [ "$status" -eq 2 ]
    run "$HDO" completion
    [ "$status" -eq 2 ]
}

@test "completion: bash proposes commands, options, presets, verbs and choices" {
    "$HDO" completion bash > hdo.bash
    source ./hdo.bash
    offers() { # offers EXPECTED WORD...: the last word is being typed
        local expected=$1
        shift
        COMP_WORDS=("$@")
        COMP_CWORD=$(($# - 1))
        _hdo
        [[ " ${COMPREPLY[*]} " == *" $expected "* ]] || { echo "$*: ${COMPREPLY[*]}"; return 1; }
    }
    offers theory hdo th
    offers --population hdo run demo --pop
    offers demo hdo run de
    offers verify hdo data ""
    offers mpi hdo run demo --engine ""
    offers never hdo check demo --color n
    offers -o hdo plot -
    offers theory hdo help th
}

@test "man pages: a page for every command, with every option" {
    "$HDO_SOURCE/tools/make-man" "$HDO" 1.2.3 man
    [ -s man/man1/hdo.1 ]
    grep -q '^\.TH HDO.YAML 5 "" "hdo 1.2.3"' man/man5/hdo.yaml.5
    for c in $(commands); do
        grep -q '^\.SH SYNOPSIS' "man/man1/hdo-$c.1"
        grep -q '^\.SH EXIT STATUS' "man/man1/hdo-$c.1"
        if command -v groff > /dev/null; then
            run groff -man -Tutf8 -ww -z "man/man1/hdo-$c.1"
            [ "$status" -eq 0 ]
            [ -z "$output" ]
        fi
    done
    grep -q '\\-\\-max\\-time S' man/man1/hdo-run.1
}
