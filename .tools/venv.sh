# shellcheck shell=bash
# Sourced by ./coterie and ./check: sets $root and $venv, and keeps .venv in step with the project.
#
# Each part of .venv (base, and the extras that came later) has a stamp that holds exactly what the
# part was made from. A stamp is written last, so a run that breaks off leaves none and the next
# run does the work again; and a change of any source makes the part stale.

program=${0##*/}
root=${BASH_SOURCE[0]%/.tools/venv.sh}
venv=$root/.venv
stamps=$venv/stamps

fail() {
    printf '%s: %s\n' "$program" "$1" >&2
    exit 1
}

# identify PYTHON: print what makes one interpreter different from another for an environment.
identify() {
    "$1" -I -S -c 'import sys; print(*sys.version_info[:3], sys.base_prefix)' 2>/dev/null
}

# The interpreter inside .venv runs, is the one .venv was made for, and is the one asked for.
# An environment cannot be moved, so its place belongs to the stamp.
venv_is_usable() {
    identity=$(identify "$venv/bin/python") || return 1
    [[ -f $stamps/venv && $(<"$stamps/venv") == "$identity $venv" ]] || return 1
    [[ -z ${COTERIE_PYTHON:-} || $(identify "$COTERIE_PYTHON") == "$identity" ]]
}

recipe() {
    printf '%s\n' "$identity" "$(<"$root/pyproject.toml")" "$(<"$root/constraints.txt")"
}

is_current() {
    venv_is_usable || return 1
    local part wanted
    wanted=$(recipe)
    for part in "$@"; do
        [[ -f $stamps/$part && $(<"$stamps/$part") == "$wanted" ]] || return 1
    done
}

# Set $python to the newest version we test that runs here, or else to any newer one. A command
# that exists proves nothing (pyenv's shims often only print an error), so each one is tried.
choose_python() {
    local candidate problem tried="" candidates=(python3.13 python3.12 python3.11 python3)
    [[ -z ${COTERIE_PYTHON:-} ]] || candidates=("$COTERIE_PYTHON")
    for candidate in "${candidates[@]}"; do
        if problem=$("$candidate" -I -c '
import sys
if sys.version_info < (3, 11):
    sys.exit("is version %d.%d" % sys.version_info[:2])
try:
    import ensurepip, venv
except ImportError:
    sys.exit("has no venv module; on Debian and Ubuntu: apt-get install python3-venv")
' 2>&1); then
            python=$candidate
            return
        fi
        # The first line says enough, without the name of whoever says it.
        problem=${problem%%$'\n'*}
        problem=${problem##*"$candidate: "}
        tried+=$'\n'"  $candidate: ${problem:-does not run}"
    done
    fail "needs Python 3.11 or newer with its venv module. Install one, or set COTERIE_PYTHON to \
the path of one. Tried:$tried"
}

# Hold descriptor 9 locked as long as this shell has it open. Python does it because it is here
# anyway, and not every system has a flock command.
lock() {
    "$python" -I -c '
import fcntl, sys
try:
    fcntl.flock(9, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    print(sys.argv[1] + ": another run is preparing .venv, waiting for it", file=sys.stderr)
    fcntl.flock(9, fcntl.LOCK_EX)
' "$program"
}

# quietly COMMAND...: show what a command says only if it fails.
quietly() {
    local output
    output=$("$@" 2>&1) && return
    printf '%s\n' "$output" >&2
    fail "could not prepare .venv; the command that failed was: $*"
}

pip_install() {
    quietly "$venv/bin/python" -m pip --disable-pip-version-check --no-input install \
        --constraint "$root/constraints.txt" "$@"
}

make_venv() {
    rm -rf "$venv"
    quietly "$python" -m venv "$venv"
    mkdir "$stamps"
    identity=$(identify "$venv/bin/python")
    printf '%s\n' "$identity $venv" >"$stamps/venv"
}

install_part() {
    rm -f "$stamps/$1"
    if [[ $1 == base ]]; then
        # Build isolation would fetch an unpinned backend with some versions of pip.
        pip_install flit_core
        cd "$root" || exit
        pip_install --no-build-isolation --editable '.[fast]'
    else
        # By name: the base is there already, and stays untouched under those who are running it.
        pip_install "coterie[$1]"
    fi
    recipe >"$stamps/$1"
}

# ensure [EXTRA...]: when this returns, .venv holds the project and these extras, as pinned.
ensure() {
    is_current base "$@" && return
    choose_python
    (
        lock
        is_current base "$@" && exit
        printf '%s: preparing .venv, which may take a minute\n' "$program" >&2
        venv_is_usable || make_venv
        for part in base "$@"; do
            is_current "$part" || install_part "$part"
        done
    ) 9>"$root/.venv.lock"
}
