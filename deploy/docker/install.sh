#!/usr/bin/env bash
# install.sh cpu|gpu|tpu [yes|no|cuda] [12|13]: installs the packages of workers with a processor, NVIDIA
# GPUs or TPUs. OpenVINO computes in bfloat16 on the first, JAX on the others, and TensorFlow reads its models
# and examples on the processor; no leaves TensorFlow out. cuda, for gpu alone, has TensorFlow compute there,
# and leaves JAX out. JAX's CUDA 12 takes drivers from 525 on, which Dataflow and Cloud Run have; CUDA 13 from
# 580 on.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
device=${1:?} tensorflow=${2:-yes} cuda=${3:-12}
case $device-$tensorflow-$cuda in
  cpu-yes-12 | cpu-no-12 | gpu-yes-1[23] | gpu-no-1[23] | gpu-cuda-12 | tpu-yes-12 | tpu-no-12) ;;
  *) echo "install.sh: cpu, gpu or tpu, and yes or no, or gpu and cuda, and for gpu 12 or 13, not $*" >&2; exit 2 ;;
esac
work=$(mktemp -d)
python -m venv "$work"
"$work/bin/python" -m pip install --disable-pip-version-check --require-hashes -r "$here/../../locks/build.txt"
# As in the Makefile: uv is faster, and pip knows indexes and proxies that uv does not.
packages() {
  "$work/bin/uv" pip install --python "$(command -v python)" --link-mode copy --compile-bytecode "$@" \
    || python -m pip install --disable-pip-version-check "$@"
}
locked() { # FLAGS…: the packages of extras or a group, with their hashes
  "$work/bin/uv" export --frozen --quiet --project "$here/../.." --no-emit-project --no-annotate --no-header "$@"
}
extras=(--extra gcp)
[[ $tensorflow == no ]] || extras+=(--extra tensorflow)
[[ $device != cpu ]] || extras+=(--extra openvino)
[[ $device == cpu || $tensorflow == cuda ]] || extras+=(--extra "$device${cuda#12}")
locked "${extras[@]}" >"$work/lock.txt"
entries() { # of|but NAME|NAME…: the lock's entries of these packages, or of all others
  awk -v kind="$1" -v names="^($2)==" '/^[A-Za-z0-9]/ { wanted = ($0 ~ names) == (kind == "of") } wanted' "$work/lock.txt"
}
exactly() { # of|but NAME|NAME…: installs these entries, whose files must have the lock's hashes
  entries "$@" >"$work/entries.txt"
  packages --no-deps --no-build-isolation --require-hashes -r "$work/entries.txt"
}

# What builds the one package that has no wheel.
exactly of 'setuptools|wheel'
exactly but setuptools
if [[ $tensorflow == cuda ]]; then # TensorFlow's own
  locked --only-group gpu >"$work/lock.txt"
  exactly of 'nvidia-.*'
fi
python -m pip check
# Only who compiles against them needs these: TensorFlow's headers, and libclang.
site=$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
rm -rf "$work" "$site/tensorflow/include" "$site/clang"
