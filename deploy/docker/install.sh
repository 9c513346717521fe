#!/usr/bin/env bash
# install.sh cpu|gpu|tpu: installs the packages of workers with a processor, an NVIDIA GPU or a TPU.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
pip_install() { python -m pip install --no-cache-dir --disable-pip-version-check "$@"; }

case ${1:?} in
  cpu) pip_install -r "$here/../../requirements.txt" ;;
  gpu) pip_install -r "$here/requirements-gpu.txt" ;;
  tpu)
    rest=$(mktemp)
    grep -vE '^(tensorflow|tensorflow-text|tensorflow-hub|tf_keras)==' "$here/../../requirements.txt" > "$rest"
    pip_install -r "$rest" -r "$here/requirements-tpu.txt"
    pip_install --no-deps -r "$here/requirements-tpu-text.txt"
    exit # pip check would miss the package named tensorflow
    ;;
  *) echo "install.sh: cpu, gpu or tpu, not $1" >&2; exit 2 ;;
esac
python -m pip check
