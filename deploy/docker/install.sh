#!/usr/bin/env bash
# install.sh cpu|gpu|tpu [yes|no]: installs the packages of workers with a processor, an NVIDIA GPU
# or a TPU; no leaves TensorFlow out: JAX computes on GPUs then, as it always does on TPUs.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
device=${1:?} tensorflow=${2:-yes}
case $device-$tensorflow in
  cpu-yes | cpu-no | gpu-yes | gpu-no | tpu-yes | tpu-no) ;;
  *) echo "install.sh: cpu, gpu or tpu, and yes or no, not $device and $tensorflow" >&2; exit 2 ;;
esac
python -m venv /tmp/uv
/tmp/uv/bin/python -m pip install --disable-pip-version-check --require-hashes -r "$here/../../locks/build.txt"
# As in the Makefile: uv is faster, and pip knows indexes and proxies that uv does not.
packages() {
  /tmp/uv/bin/uv pip install --python "$(command -v python)" --link-mode copy --compile-bytecode "$@" \
    || python -m pip install --disable-pip-version-check "$@"
}
locked() { # FLAGS…: the packages of extras or a group, with their hashes
  /tmp/uv/bin/uv export --frozen --quiet --project "$here/../.." --no-emit-project --no-annotate --no-header "$@"
}
extras=(--extra gcp)
[[ $tensorflow == no ]] || extras+=(--extra tensorflow)
case $device-$tensorflow in gpu-no | tpu-*) extras+=(--extra "$device") ;; esac
locked "${extras[@]}" >/tmp/lock.txt
entries() { # of|but NAME|NAME…: the lock's entries of these packages, or of all others
  awk -v kind="$1" -v names="^($2)==" '/^[A-Za-z0-9]/ { wanted = ($0 ~ names) == (kind == "of") } wanted' /tmp/lock.txt
}
exactly() { # of|but NAME|NAME…: installs these entries, whose files must have the lock's hashes
  entries "$@" >/tmp/entries.txt
  packages --no-deps --no-build-isolation --require-hashes -r /tmp/entries.txt
}

# What builds the one package that has no wheel.
exactly of 'setuptools|wheel'
exactly but setuptools
if [[ $device-$tensorflow == gpu-yes ]]; then # TensorFlow's own, of another release than JAX's
  locked --only-group gpu >/tmp/lock.txt
  exactly of 'nvidia-.*'
fi
python -m pip check
# Only who compiles against them needs these: TensorFlow's headers, and libclang.
site=$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
rm -rf /tmp/uv /tmp/lock.txt /tmp/entries.txt "$site/tensorflow/include" "$site/clang"
