# Shared by the scripts beside it: sourced, not run. Installs what is missing and says nothing about what is there.
# shellcheck shell=bash

set -euo pipefail

REPOSITORY="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
VENV="$REPOSITORY/.venv"
TOOLS="$REPOSITORY/var/tools"
LOGS="$REPOSITORY/var/log"
INFLUXD_V2_VERSION=1.8.10

# nfacctd lives in /usr/sbin, which is not on an ordinary user's PATH in Debian.
export PATH="$PATH:/usr/sbin:/sbin"
cd "$REPOSITORY"
# Compiled once, also where the environment forbids to: hundreds of processes would each spend a second on it.
unset PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX="$REPOSITORY/var/pycache"

say() {
    printf '%s\n' "$*"
}

fail() {
    printf '%s\n' "$*" >&2
    exit 1
}

# quietly NAME COMMAND...: run it into var/log/NAME.log; show the end of that only if it fails.
quietly() {
    local log="$LOGS/$1.log"
    shift
    mkdir -p "$LOGS"
    if ! "$@" >"$log" 2>&1 </dev/null; then
        tail -n 40 "$log" >&2
        say "failed: $* (all of it: ${log#"$REPOSITORY/"})" >&2
        return 1
    fi
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then
        "$@"
    elif ! command -v sudo >/dev/null; then
        say "this needs root: $*" >&2
        return 1
    else
        # Ask for a password only where somebody can type one.
        if [ -t 2 ]; then sudo -v; fi
        sudo -n "$@"
    fi
}

apt_has() {
    [ "$(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

apt_get() {
    # Package scripts must not ask questions: CI has nobody to answer them.
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=120 "$@"
}

# need COMMAND PACKAGE: note the Debian package of a command that is not there.
MISSING_PACKAGES=()
need() {
    command -v "$1" >/dev/null || MISSING_PACKAGES+=("$2")
}

# need_pmacct: note the packages of its daemons, and of what they print with (ingest/collect/quick_printf.py).
need_pmacct() {
    need nfacctd pmacct
    need cc gcc
    [ -e /usr/include/stdio.h ] || MISSING_PACKAGES+=(libc6-dev)
}

# install_missing: install every noted package, with at most one look at the package lists.
install_missing() {
    local package wanted=()
    for package in "${MISSING_PACKAGES[@]}"; do
        apt_has "$package" || wanted+=("$package")
    done
    MISSING_PACKAGES=()
    [ "${#wanted[@]}" -gt 0 ] || return 0
    command -v apt-get >/dev/null || fail "not installed: ${wanted[*]} (install them your system's way, then run this again)"
    say "installing ${wanted[*]}"
    # A machine with package lists of its own needs no update; a fresh one does, and so does one whose lists are stale.
    if ! apt_get install --no-install-recommends "${wanted[@]}" >/dev/null 2>&1 </dev/null; then
        quietly apt-update apt_get update || return 1
        quietly apt-install apt_get install --no-install-recommends "${wanted[@]}" || return 1
    fi
}

is_python_311() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

has_venv() {
    "$1" -c 'import ensurepip, venv' 2>/dev/null
}

# find_python: print a Python of 3.11 or newer, one that makes virtual environments if there is one.
#
# The system's own first: distributions build theirs with the profile of its use, while one that pyenv built here as a rule
# takes a quarter more processor time for the same.
find_python() {
    local candidate found=
    for candidate in /usr/bin/python3 python3.11 python3 python3.12 python3.13; do
        if ! command -v "$candidate" >/dev/null || ! is_python_311 "$candidate"; then continue; fi
        if has_venv "$candidate"; then
            command -v "$candidate"
            return
        fi
        found=${found:-$candidate}
    done
    command -v "$found"
}

# need_python: note the packages for Python and its virtual environments.
need_python() {
    local python
    if [ -x "$VENV/bin/python" ] && is_python_311 "$VENV/bin/python"; then
        return
    fi
    if ! python=$(find_python); then
        MISSING_PACKAGES+=(python3 python3-venv)
    elif ! has_venv "$python"; then
        MISSING_PACKAGES+=(python3-venv)
    fi
}

# ensure_venv LOCK: .venv with exactly the locked packages and our own command. Done once for each state of the lock.
ensure_venv() {
    local lock=$1 stamp="$VENV/.installed" state python
    if [ ! -x "$VENV/bin/pip" ] || ! is_python_311 "$VENV/bin/python"; then
        python=$(find_python) || fail "no Python of 3.11 or newer (Debian 12 and newer have it: apt-get install python3)"
        say "making a virtual environment in .venv"
        quietly venv "$python" -m venv --clear "$VENV" || return 1
    fi
    # A change of either lock makes both stale: what one installed, the other may have replaced.
    state="$(cat requirements.lock requirements-dev.lock pyproject.toml | sha256sum | cut -d' ' -f1) $REPOSITORY"
    if [ ! -x "$VENV/bin/clusterflow" ] || ! grep -qxF "$lock $state" "$stamp" 2>/dev/null; then
        install_packages "$lock" "$state" "$stamp" || return 1
    fi
    # What records are read with; without it they are read more slowly.
    if command -v cc >/dev/null; then quietly compile "$VENV/bin/python" -m ingest.compile || true; fi
}

# install_packages LOCK STATE STAMP: into .venv; the state goes into the stamp.
install_packages() {
    local lock=$1 state=$2 stamp=$3
    say "installing the Python packages of $lock"
    # What is imported is compiled then: most modules never are.
    quietly pip "$VENV/bin/pip" install --no-compile --require-hashes --requirement "$lock" || return 1
    # The lock holds setuptools too: with --no-build-isolation nothing comes from outside it.
    quietly pip-clusterflow "$VENV/bin/pip" install --no-deps --no-build-isolation --editable . || return 1
    { grep -F " $state" "$stamp" 2>/dev/null || true; printf '%s\n' "$lock $state"; } >"$stamp.new"
    mv "$stamp.new" "$stamp"
}

# has_kafka: whether there are Kafka's jars and a Java for them; bench/load/local_kafka.py finds them there.
has_kafka() {
    command -v java >/dev/null && compgen -G "${CLUSTERFLOW_KAFKA:-$TOOLS/kafka}/kafka_*.jar" >/dev/null
}

# need_kafka: note the packages that ensure_kafka needs.
need_kafka() {
    has_kafka && return
    need java default-jre-headless
    need mvn maven
}

# ensure_kafka: the jars that tests/kafka/pom.xml names, for the tests of the way through Kafka. Debian has no package.
ensure_kafka() {
    has_kafka && return
    # Moved into place when all are there: half of them would look like a broker.
    rm -rf "$TOOLS/kafka.new"
    quietly kafka mvn --quiet --batch-mode --file "$REPOSITORY/tests/kafka/pom.xml" \
        org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
        "-DoutputDirectory=$TOOLS/kafka.new" || return 1
    rm -rf "$TOOLS/kafka"
    mv "$TOOLS/kafka.new" "$TOOLS/kafka"
}

speaks_v2() {
    [ -x "$1" ] && ! "$1" version 2>/dev/null | grep -qE '\bv?1\.[0-7]\.'
}

# has_influxd_v2: whether InfluxDB 1.8 is there; the tests find it by CLUSTERFLOW_INFLUXD_V2.
has_influxd_v2() {
    local candidate
    for candidate in "${CLUSTERFLOW_INFLUXD_V2:-}" "$TOOLS/bin/influxd" "$HOME/go/bin/influxd"; do
        if [ -n "$candidate" ] && speaks_v2 "$candidate"; then
            export CLUSTERFLOW_INFLUXD_V2="$candidate"
            return
        fi
    done
    return 1
}

# need_influxd_v2: note the packages that build_influxd_v2 needs.
need_influxd_v2() {
    has_influxd_v2 && return
    need go golang-go
    # Go trusts the certificates of the system only; a minimal Debian has none.
    [ -d /etc/ssl/certs ] || MISSING_PACKAGES+=(ca-certificates)
}

# build_influxd_v2: about two minutes, once; for the tests of the v2 write API. Debian has no package of it.
build_influxd_v2() {
    mkdir -p "$TOOLS/bin"
    # Without cgo: a machine without a C compiler builds it too. Nobody debugs it, and a compiler that need not look for
    # garbage up to a gigabyte works a third less.
    GOBIN="$TOOLS/bin" GOFLAGS='' CGO_ENABLED=0 GOGC=off GOMEMLIMIT=1GiB quietly influxd-v2 go install -gcflags=all=-dwarf=false \
        -ldflags "-s -w -X main.version=$INFLUXD_V2_VERSION" \
        "github.com/influxdata/influxdb/cmd/influxd@v$INFLUXD_V2_VERSION"
}

COMPOSE_VERSION=2.40.3
BASE_IMAGE="$(sed -n 's/^FROM \(python:[^ ]*\) AS build$/\1/p' docker/Dockerfile)"

# ensure_engine: a Docker engine that answers: the one there is, or, as root, one of the tests' own until the script ends.
# Its images stay in var/containers. Where it can pull none, its base image is made of Debian's packages.
ensure_engine() {
    command -v docker >/dev/null || return 1
    docker version >/dev/null 2>&1 && return
    [ "$(id -u)" -eq 0 ] && command -v dockerd >/dev/null && command -v debootstrap >/dev/null || return 1
    local folder="$REPOSITORY/var/containers"
    mkdir -p "$folder" "$LOGS"
    export DOCKER_HOST="unix://$folder/docker.sock"
    dockerd --data-root "$folder/docker" --exec-root "$folder/exec" --host "$DOCKER_HOST" --pidfile "$folder/dockerd.pid" \
        >"$LOGS/dockerd.log" 2>&1 </dev/null &
    # Expanded now: the engine that was started here, and no other.
    # shellcheck disable=SC2064
    trap "kill $! && wait $! 2>/dev/null || true" EXIT
    local tries
    for tries in {1..30}; do
        docker version >/dev/null 2>&1 && break
        if [ "$tries" -eq 30 ]; then
            say "no Docker engine: see ${LOGS#"$REPOSITORY/"}/dockerd.log"
            return 1
        fi
        sleep 1
    done
    docker image inspect "$BASE_IMAGE" >/dev/null 2>&1 || docker pull "$BASE_IMAGE" >/dev/null 2>&1 && return
    say "making a base image of Debian's packages (once)"
    tests/containers/base-image "$BASE_IMAGE"
}

has_compose() {
    docker compose version >/dev/null 2>&1 || [ -x "$TOOLS/bin/docker-compose" ]
}

# build_compose: some minutes, once; Debian's package is of another generation. Its exclusions forbid `go install`.
build_compose() {
    command -v go >/dev/null || return 1
    local folder
    folder=$(mktemp -d)
    say "building Docker Compose $COMPOSE_VERSION (minutes, once)"
    mkdir -p "$TOOLS/bin"
    # The inner shell expands it.
    # shellcheck disable=SC2016
    quietly compose env GOFLAGS= CGO_ENABLED=0 sh -euc '
        cd "$1"
        go mod init tests/compose
        go mod edit -exclude github.com/davecgh/go-spew@v1.1.2-0.20180830191138-d8f796af33cc \
            -exclude github.com/pmezard/go-difflib@v1.0.1-0.20181226105442-5d4384ee4fb2
        go get "github.com/docker/compose/v2/cmd@v$2"
        go build -trimpath -ldflags "-s -w -X github.com/docker/compose/v2/internal.Version=v$2" -o "$3" \
            github.com/docker/compose/v2/cmd' sh "$folder" "$COMPOSE_VERSION" "$TOOLS/bin/docker-compose" || return 1
    rm -rf "$folder"
}
