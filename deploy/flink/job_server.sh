#!/usr/bin/env bash
# Runs Beam's job server for Flink in the foreground:
#   JOB_SERVER_JARS=DIR ARTIFACTS=DIR job_server.sh [--flink-master=HOST:8081] [--job-port=8099]…
# ARTIFACTS must be a folder that every TaskManager sees by the same path, or gs://…
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
: "${JOB_SERVER_JARS:?must name the folder of the job server\'s jars}"
: "${ARTIFACTS:?must name a folder that every TaskManager sees, or gs://…}"
exec java "@$here/java.options" -Xmx"${JOB_SERVER_HEAP:-512m}" \
  -Dorg.slf4j.simpleLogger.showDateTime=true -Dorg.slf4j.simpleLogger.dateTimeFormat="yyyy-MM-dd HH:mm:ss,SSS" \
  -Dorg.slf4j.simpleLogger.log.org.apache.beam.runners.flink.FlinkPipelineRunner=warn -cp "$JOB_SERVER_JARS/*" \
  org.apache.beam.runners.flink.FlinkJobServerDriver \
  --flink-master=localhost:8081 --job-port=8099 --artifact-port=8098 --expansion-port=0 \
  --artifacts-dir="$ARTIFACTS" "$@"
