#!/usr/bin/env bash
# Tests docker-compose.yml with Docker or podman: up, records through every broker from inside and from this machine, a
# killed and restarted broker, its health, down. `--can` only checks whether this machine can run it.
set -eu -o pipefail
cd "$(dirname "$0")/../.."

project=ottla-compose-test
ottla=${OTTLA:-.venv/bin/ottla}
ports=(19092 19093 19094)

if docker compose version >/dev/null 2>&1 && docker info >/dev/null 2>&1; then
    engine=docker
    compose=(docker compose -p $project)
elif command -v podman >/dev/null && command -v podman-compose >/dev/null; then
    engine=podman
    compose=(podman-compose -p $project)
else
    echo "compose-test: needs docker with its compose plugin, or podman with podman-compose" >&2
    exit 2
fi
if [[ ${1:-} == --can ]]; then
    # Don't fetch images for this check.
    $engine image inspect python:3.11-slim zookeeper:3.9 >/dev/null 2>&1 || exit 2
    exit 0
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

# All three brokers there, and all replicas in sync.
whole() {
    $ottla cluster -b "localhost:$1" --timeout 10 --json |
        python3 -c 'import json, sys; c = json.load(sys.stdin); sys.exit(c["under_replicated"] or len(c["brokers"]) != 3)'
}

# through LINE COMMAND…: one record by this command line, and read back by the same.
through() {
    local line=$1
    shift
    echo "$line" | "$@" produce greetings >/dev/null || { echo "compose-test: not written: $line" >&2; exit 1; }
    "$@" consume greetings --exit | grep -xF "$line" >/dev/null || { echo "compose-test: not read: $line" >&2; exit 1; }
}

inside() {
    local broker=$1
    shift
    ${bounded[@]+"${bounded[@]}"} $engine exec -i -e OTTLA_BOOTSTRAP_SERVER="$broker:9092" "$(container "$broker")" ottla "$@"
}

outside() {
    local port=$1
    shift
    OTTLA_BOOTSTRAP_SERVER=localhost:$port ${bounded[@]+"${bounded[@]}"} $ottla "$@"
}

finish() {
    local code=$?
    if ((code)); then
        for service in zookeeper broker-1 broker-2 broker-3 client; do
            say "the last of $service" >&2
            $engine logs --tail 20 "$(container $service)" >&2 || true
        done
    fi
    # With the volumes that have no name, which `down` leaves.
    $engine ps -aq --filter "label=com.docker.compose.project=$project" | xargs -r $engine rm -fv >/dev/null 2>&1 || true
    "${compose[@]}" down -v >/dev/null 2>&1 || code=1
    ((code == 0)) && say "the compose file works with $engine"
    exit $code
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

say "building the image"
# The host's network, as a builder's own may have no names.
$engine build --network host -q -t ottla . >/dev/null
$engine build --network host -q -t ottla-console --build-arg EXTRAS=console,web . >/dev/null
user=$($engine run --rm --entrypoint id ottla -u)
[[ $user != 0 ]] || { echo "compose-test: the image runs as root" >&2; exit 1; }

say "up"
"${compose[@]}" up -d >/dev/null 2>&1
for service in zookeeper broker-1 broker-2 broker-3 console; do
    within 120 healthy $service
done
within 120 finished client
[[ $($engine logs "$(container client)" 2>/dev/null | tail -1) == "the cluster serves" ]]

say "the console"
brokers() {
    python3 -c 'import sys, urllib.request as r; sys.exit(">broker-3:9092<" not in r.urlopen("http://127.0.0.1:8080/brokers", timeout=30).read().decode())'
}
within 60 brokers

say "records from inside and from this machine"
for number in 1 2 3; do
    through "inside $number" inside broker-$number
    through "outside $number" outside "${ports[number - 1]}"
done

say "a broker killed"
$engine kill -s KILL "$(container broker-2)" >/dev/null
for port in "${ports[0]}" "${ports[2]}"; do
    through "without broker-2 $port" outside "$port"
done

say "and started again"
$engine start "$(container broker-2)" >/dev/null
within 60 healthy broker-2
within 60 whole "${ports[0]}"
through "with broker-2 again" outside "${ports[1]}"
lines=$(outside "${ports[1]}" consume greetings --exit | wc -l)
((lines == 12)) || { echo "compose-test: $lines records of 12" >&2; exit 1; }

say "all of it stopped and started: what was written is there"
"${compose[@]}" stop >/dev/null 2>&1
for service in zookeeper broker-1 broker-2 broker-3; do
    $engine start "$(container $service)" >/dev/null
done
within 120 whole "${ports[2]}"
lines=$(outside "${ports[2]}" consume greetings --exit | wc -l)
((lines == 12)) || { echo "compose-test: $lines records of 12 after the restart" >&2; exit 1; }
