# shellcheck shell=bash
# Sourced by the tests of compose files, which set `project`, `file` and `services` first: the engine, waiting, and the
# end, at which everything is removed.

ottla=${OTTLA:-.venv/bin/ottla}
ports=(19092 19093 19094)

if docker compose version >/dev/null 2>&1 && docker info >/dev/null 2>&1; then
    engine=docker
    compose=(docker compose -p "$project" -f "$file")
elif command -v podman >/dev/null && command -v podman-compose >/dev/null; then
    engine=podman
    compose=(podman-compose -p "$project" -f "$file")
else
    echo "compose-test: needs docker with its compose plugin, or podman with podman-compose" >&2
    exit 2
fi

# With GNU timeout, no client command waits forever.
bounded=()
if command -v timeout >/dev/null; then bounded=(timeout 120); fi

say() { echo "== $*"; }

# The container of a service: docker and podman name them differently.
container() {
    $engine ps -aq --filter "label=com.docker.compose.project=$project" --filter "label=com.docker.compose.service=$1"
}

# within SECONDS COMMAND…: run it until it succeeds.
within() {
    local deadline=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        if ((SECONDS > deadline)); then
            echo "compose-test: still not so: $*" >&2
            "$@" >&2 || true
            return 1
        fi
        sleep 1
    done
}

healthy() {
    if [[ $engine == docker ]]; then
        [[ $(docker inspect --format '{{.State.Health.Status}}' "$(container "$1")") == healthy ]]
    else
        podman healthcheck run "$(container "$1")"
    fi
}

finished() { [[ $($engine inspect --format '{{.State.Status}}' "$(container "$1")") == exited ]]; }

# through LINE COMMAND…: one record by this command line, and read back by the same.
through() {
    local line=$1
    shift
    echo "$line" | "$@" produce greetings >/dev/null || { echo "compose-test: not written: $line" >&2; exit 1; }
    "$@" consume greetings --exit | grep -xF "$line" >/dev/null || { echo "compose-test: not read: $line" >&2; exit 1; }
}

# What the engine says of the start, a port that is taken for example, is shown if the test fails.
started=
up() {
    started=$(mktemp)
    "${compose[@]}" up -d >"$started" 2>&1
}

finish() {
    local code=${1:-$?}
    if ((code)); then
        [[ -z $started ]] || cat "$started" >&2
        for service in "${services[@]}"; do
            say "the last of $service" >&2
            $engine logs --tail 20 "$(container "$service")" >&2 || true
        done
    fi
    # With the volumes that have no name, which `down` leaves.
    $engine ps -aq --filter "label=com.docker.compose.project=$project" | xargs -r $engine rm -fv >/dev/null 2>&1 || true
    "${compose[@]}" down -v >/dev/null 2>&1 || code=1
    [[ -z $started ]] || rm -f "$started"
    ((code == 0)) && say "$file works with $engine"
    exit $code
}

# build IMAGE OPTION…
build() {
    local image=$1
    shift
    say "building the image $image"
    # The host's network, as a builder's own may have no names.
    $engine build --network host -q -t "$image" ${PYTHON_IMAGE:+--build-arg "PYTHON_IMAGE=$PYTHON_IMAGE"} "$@" . >/dev/null
}
