# Sourced by the scripts beside it, from the root of the clone: makes .venv once and installs the project into it.
#
# Takes Python 3.11 or later with pip, and nothing else. pip installs into the environment from outside, so that the
# environment itself needs neither pip nor ensurepip, which some systems package apart.

find_python() {
    local candidate
    for candidate in "${PYTHON:-}" python3 python3.14 python3.13 python3.12 python3.11 python; do
        if [ -n "$candidate" ] && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return 0
        fi
    done
    echo "error: no Python 3.11 or later was found; install one, or name it: PYTHON=/path/to/python $0" >&2
    return 1
}

# install_into_venv NAME REQUIREMENT: does nothing when that was done and pyproject.toml has not changed since.
install_into_venv() {
    local stamp=".venv/installed-$1" base pip
    if [ "$stamp" -nt pyproject.toml ] && .venv/bin/python -c '' 2>/dev/null; then
        return 0
    fi
    base=$(find_python) || return 1
    if "$base" -m pip --version >/dev/null 2>&1; then
        .venv/bin/python -c '' 2>/dev/null || "$base" -m venv --clear --without-pip .venv
        pip=("$base" -m pip --python .venv/bin/python)
    else
        .venv/bin/python -m pip --version >/dev/null 2>&1 || "$base" -m venv --clear .venv
        pip=(.venv/bin/python -m pip)
    fi
    echo "installing into .venv, for $1 ..." >&2
    "${pip[@]}" --disable-pip-version-check --quiet install --editable "$2"
    touch "$stamp"
}
