#!/usr/bin/env bash
# Tests docker-compose.yml with Docker or podman: up, records through every broker from inside and from this machine, a
# killed and restarted broker, its health, down. `--can` only checks whether this machine can run it.
set -eu -o pipefail
cd "$(dirname "$0")/../.."

project=ottla-compose-test
file=docker-compose.yml
services=(zookeeper broker-1 broker-2 broker-3 client console)
# shellcheck source=tests/compose/common.sh
. tests/compose/common.sh

if [[ ${1:-} == --can ]]; then
    # Don't fetch images for this check.
    $engine image inspect python:3.11-slim zookeeper:3.9 >/dev/null 2>&1 || exit 2
    exit 0
fi

# All three brokers there, and all replicas in sync.
whole() {
    $ottla cluster -b "localhost:$1" --timeout 10 --json |
        python3 -c 'import json, sys; c = json.load(sys.stdin); sys.exit(c["under_replicated"] or len(c["brokers"]) != 3)'
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

trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

build ottla
build ottla-console --build-arg EXTRAS=console,web
user=$($engine run --rm --entrypoint id ottla -u)
[[ $user != 0 ]] || { echo "compose-test: the image runs as root" >&2; exit 1; }

say "up"
up
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
