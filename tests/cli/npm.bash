# Shared by the tests of hdo data: $T is their folder.
fake_npm() { # the script npm: $1 is its body; it stands in the folder in which a package shall appear
    mkdir -p "$T/bin"
    printf '#!/bin/sh\n%s\n' "$1" >"$T/bin/npm"
    chmod +x "$T/bin/npm"
    PATH="$T/bin:$PATH"
}

nothing_left() { # only lock files may remain
    [ -z "$(find "$HDO_DATA_DIR" -mindepth 1 ! -name '.*.lock' 2>/dev/null)" ]
}
