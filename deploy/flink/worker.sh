#!/usr/bin/env bash
# Starts one SDK worker. A TaskManager calls it (--environment_type=PROCESS) with the worker's id
# and the addresses of its services; it must lie at the same path on every node.
#   BERT_EMBED_HOME  the clone (default: the one this script is in)
#   BERT_EMBED_VENV  its virtual environment (default: .venv there)
#   BEAM_BOOT        Beam's boot program (default: build/flink/bin/container there)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
home=${BERT_EMBED_HOME:-$(cd "$here/../.." && pwd)}
export PATH="${BERT_EMBED_VENV:-$home/.venv}/bin:$PATH"
export PYTHONPATH="$home/src${PYTHONPATH:+:$PYTHONPATH}"
export RUN_PYTHON_SDK_IN_DEFAULT_ENVIRONMENT=1 TF_CPP_MIN_LOG_LEVEL=${TF_CPP_MIN_LOG_LEVEL:-2}
# A folder of its own: two workers of one host would write their options and files over each other.
work=$(mktemp -d)
cd "$work"
exec "${BEAM_BOOT:-$home/build/flink/bin/container}" --semi_persist_dir="$work" "$@"
