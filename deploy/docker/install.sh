#!/usr/bin/env bash
# install.sh cpu|gpu|tpu [yes|no]: installs the packages of workers with a processor, an NVIDIA GPU
# or a TPU; no leaves TensorFlow out, which only processors can do without.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
requirements=$here/../../requirements.txt
device=${1:?} tensorflow=${2:-yes}
case $device-$tensorflow in
  cpu-yes | cpu-no | gpu-yes | tpu-yes) ;;
  gpu-no | tpu-no) echo "install.sh: TENSORFLOW=no is for DEVICE=cpu, a $device needs TensorFlow" >&2; exit 2 ;;
  *) echo "install.sh: cpu, gpu or tpu, and yes or no, not $device and $tensorflow" >&2; exit 2 ;;
esac
python -m venv /tmp/uv
/tmp/uv/bin/python -m pip install --disable-pip-version-check --require-hashes -r "$here/../../locks/build.txt"
# As in the Makefile: uv is faster, and pip knows indexes and proxies that uv does not.
packages() {
  /tmp/uv/bin/uv pip install --python "$(command -v python)" --link-mode copy --compile-bytecode "$@" \
    || python -m pip install --disable-pip-version-check "$@"
}
without() { # NAME|NAME… FILE: the pins of all other packages
  grep -vE "^($1)==" "$2"
}

case $device-$tensorflow in
  cpu-yes) packages -r "$requirements" ;;
  cpu-no)
    without 'tensorflow|tensorflow-text|tensorflow-hub|tf-keras|keras|libclang|h5py|astunparse|gast|google-pasta|namex|opt-einsum|optree|termcolor' \
      "$requirements" > /tmp/rest.txt
    packages -r /tmp/rest.txt
    ;;
  gpu-yes) packages -r "$here/requirements-gpu.txt" ;;
  tpu-yes)
    without 'tensorflow|tensorflow-text|tensorflow-hub|tf-keras' "$requirements" > /tmp/rest.txt
    packages -r /tmp/rest.txt -r "$here/requirements-tpu.txt"
    packages --no-deps -r "$here/requirements-tpu-text.txt"
    ;;
esac
[[ $device == tpu ]] || python -m pip check # it would miss the package named tensorflow
# Only who compiles against them needs these: TensorFlow's headers, and libclang.
site=$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
rm -rf /tmp/uv /tmp/rest.txt "$site/tensorflow/include" "$site/clang"
