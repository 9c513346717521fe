#!/usr/bin/env bash
# Runs one Flink process in the foreground, from Flink's jars alone:
#   FLINK_HOME=DIR node.sh jobmanager|taskmanager [-D name=value]…
# FLINK_HOME holds lib/ and bin/bash-java-utils.jar; FLINK_CONF_DIR is conf/ beside this script
# unless set; JOB_SERVER_JARS, if set, is the folder of the job server's jars: with Beam among a
# TaskManager's own classes, SDK workers outlive a stage. An installed Flink brings scripts of its
# own, which do the same; there Beam's jars go to lib/.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
: "${FLINK_HOME:?must name the folder that holds lib/ and bin/bash-java-utils.jar of Flink}"
export FLINK_CONF_DIR=${FLINK_CONF_DIR:-$here/conf}
kind=${1:-}
shift || true
case $kind in
  jobmanager)
    main=org.apache.flink.runtime.entrypoint.StandaloneSessionClusterEntrypoint
    sizes=GET_JM_RESOURCE_PARAMS
    ;;
  taskmanager)
    main=org.apache.flink.runtime.taskexecutor.TaskManagerRunner
    sizes=GET_TM_RESOURCE_PARAMS
    ;;
  *)
    echo "usage: node.sh jobmanager|taskmanager [-D name=value]…" >&2
    exit 2
    ;;
esac

# Flink works out its own heap and memory parts: one line of flags for Java, one of -D values.
jars="$FLINK_HOME/bin/bash-java-utils.jar:$FLINK_HOME/lib/*"
said=$(java -cp "$jars" org.apache.flink.runtime.util.bash.BashJavaUtils "$sizes" \
  --configDir "$FLINK_CONF_DIR" "$@" | sed -n 's/^BASH_JAVA_UTILS_EXEC_RESULT://p')
read -r -a java_flags <<<"$(sed -n 1p <<<"$said")"
read -r -a values <<<"$(sed -n 2p <<<"$said")"

classes="$FLINK_HOME/lib/*"
if [ -n "${JOB_SERVER_JARS:-}" ]; then
  for jar in "$JOB_SERVER_JARS"/*.jar; do
    case ${jar##*/} in
      flink-* | slf4j-*) ;; # Flink has its own
      *) classes+=":$jar" ;;
    esac
  done
fi

exec java "@$here/java.options" "${java_flags[@]}" \
  "-Dlog4j.configurationFile=file:$FLINK_CONF_DIR/log4j.properties" \
  -cp "$classes" "$main" --configDir "$FLINK_CONF_DIR" "${values[@]}" "$@"
