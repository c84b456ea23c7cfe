#!/bin/bash
# Posts one word about a job to `clusterflow analyze`. Sourced by the hooks beside it.
#
#   CLUSTERFLOW_JOBS_URL          where it listens (job_sources, type: http); http://127.0.0.1:9106
#   CLUSTERFLOW_JOBS_TOKEN_FILE   file with the token; /etc/clusterflow/jobs-token
#   CLUSTERFLOW_JOBS_TIMEOUT      seconds for all tries together; 10
#
# Whatever happens, no job is held up or failed for the sake of monitoring: a failure is logged, and that is all.

# word TEXT: the text as the id of a job or class may be.
word() {
    local text=${1//[^A-Za-z0-9._:-]/_}
    text=${text#"${text%%[A-Za-z0-9]*}"}
    printf '%s' "${text:0:63}"
}

# post PATH JSON: false if it was not taken.
post() {
    local url=${CLUSTERFLOW_JOBS_URL:-http://127.0.0.1:9106} token answer
    local file=${CLUSTERFLOW_JOBS_TOKEN_FILE:-/etc/clusterflow/jobs-token}
    if ! token=$(cat -- "$file" 2>/dev/null); then
        say "cannot read $file"
        return 1
    fi
    # By standard input: what stands on a command line, everyone on the machine can read.
    if ! answer=$(printf 'header = "Authorization: Bearer %s"\n' "$token" | curl --config - --silent --show-error \
        --fail-with-body --retry 2 --max-time "${CLUSTERFLOW_JOBS_TIMEOUT:-10}" \
        --header 'Content-Type: application/json' --data-binary "$2" -- "$url$1" 2>&1); then
        say "$url$1: $answer"
        return 1
    fi
}

# say TEXT: to the system log, or to standard error where there is none.
say() {
    logger --tag clusterflow-hook -- "$1" 2>/dev/null || printf 'clusterflow-hook: %s\n' "$1" >&2
}
