#!/usr/bin/env bash
# Tests docker-compose.secure.yml with Docker or podman: up, the client's last line, records from this machine with the
# files that the cluster has made, strangers kept out, everything stopped and started, down.
set -eu -o pipefail
cd "$(dirname "$0")/../.."

project=ottla-secure-compose-test
file=docker-compose.secure.yml
services=(zookeeper certificates broker-1 broker-2 broker-3 client)
# shellcheck source=tests/compose/common.sh
. tests/compose/common.sh

secure=$(mktemp -d)
# shellcheck disable=SC2329 # the trap calls it
end() {
    local code=$?
    rm -rf "$secure"
    finish $code
}
trap end EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# as USER COMMAND…: on this machine, by the published ports.
as() {
    local user=$1
    shift
    ${bounded[@]+"${bounded[@]}"} "$ottla" "$@" --command-config "$secure/$user.properties" -X "ssl.ca.location=$secure/ca.pem"
}

# refused WORDS COMMAND…: it fails, and says so with these words.
refused() {
    local words=$1 said
    shift
    if said=$("$@" 2>&1); then
        echo "compose-test: not refused: $*" >&2
        return 1
    fi
    [[ $said == *"$words"* ]] || { echo "compose-test: refused otherwise: $said" >&2; return 1; }
}

build ottla

say "up"
up
for broker in broker-1 broker-2 broker-3; do
    within 180 healthy $broker
done
within 120 finished client
[[ $($engine logs "$(container client)" 2>/dev/null | tail -1) == "the cluster serves those who may" ]]
$engine cp "$(container broker-1):/etc/ottla/." "$secure"

say "records from this machine"
through "outside" as alice
refused TOPIC_AUTHORIZATION_FAILED as alice topics delete greetings --yes
sed 's/^sasl.password=.*/sasl.password=guessed/' "$secure/alice.properties" >"$secure/guess.properties"
refused "the login of alice" as guess topics list
for port in "${ports[@]}"; do
    refused "" "$ottla" topics list -b "localhost:$port" --timeout 10
done
as admin security check --json >"$secure/findings.json" || true
python3 - "$secure/findings.json" <<'PYTHON'
import json, sys
bad = [each for each in json.load(open(sys.argv[1]))["findings"] if each["severity"] == "critical"]
sys.exit(f"compose-test: ottla security check finds {bad}" if bad else 0)
PYTHON

say "all of it stopped and started: what was written is there"
"${compose[@]}" stop >/dev/null 2>&1
for service in zookeeper broker-1 broker-2 broker-3; do
    $engine start "$(container $service)" >/dev/null
done
for broker in broker-1 broker-2 broker-3; do
    within 180 healthy $broker
done
read_again() { as alice consume greetings --exit | grep -xF outside; }
within 60 read_again
