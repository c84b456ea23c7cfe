#!/usr/bin/env bash
# Run by InfluxDB's image once, when its database is made: the other buckets, and a token for each who asks it, with no more
# rights than it needs. The administrator's token stays in this container.
set -euo pipefail

org="$DOCKER_INFLUXDB_INIT_ORG"
declare -A ids
for retention in raw 1m 1h meta; do
    # How long each keeps its points, the bridge sets from cluster.yaml: it may write to the bucket, so it may change that.
    influx bucket list --org "$org" --name "clusterflow/$retention" --hide-headers | grep -q . ||
        influx bucket create --org "$org" --name "clusterflow/$retention" --retention 0 >/dev/null
    ids[$retention]=$(influx bucket list --org "$org" --name "clusterflow/$retention" --hide-headers | cut -f 1)
    [ -n "${ids[$retention]}" ]
done

# make_token NAME RETENTION...: a token that reads all buckets and writes to these, for who finds it in /run/tokens/NAME.
make_token() {
    local name=$1 retention rights=()
    shift
    for retention in raw 1m 1h meta; do rights+=(--read-bucket "${ids[$retention]}"); done
    for retention in "$@"; do rights+=(--write-bucket "${ids[$retention]}"); done
    # One of a database before this one cannot be written to: it was closed below, to its own user as well.
    rm -f "/run/tokens/$name/influxdb_token"
    influx auth create --org "$org" --description "clusterflow $name" "${rights[@]}" --json |
        sed -n 's/^.*"token": *"\([^"]*\)".*$/\1/p' | tr -d '\n' >"/run/tokens/$name/influxdb_token"
    # Others read it under users of their own; the folder on the host is closed.
    chmod 444 "/run/tokens/$name/influxdb_token"
    [ -s "/run/tokens/$name/influxdb_token" ]
}
make_token bridge raw 1m 1h meta
# Its verdicts; sums of minutes are the bridge's alone.
make_token analysis raw 1h meta
# How it is, and the history of alerts.
make_token deliver raw 1h
make_token grafana
