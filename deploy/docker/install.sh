#!/usr/bin/env bash
# install.sh cpu|gpu|tpu [yes|no]: installs the packages of workers with a processor, an NVIDIA GPU
# or a TPU; no leaves TensorFlow out, which only processors can do without.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
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
locked() { # FLAGS…: the packages of extras or a group, with their hashes
  /tmp/uv/bin/uv export --frozen --quiet --project "$here/../.." --no-emit-project --no-annotate --no-header "$@"
}
locked --extra gcp --extra tensorflow >/tmp/lock.txt
entries() { # of|but NAME|NAME…: the lock's entries of these packages, or of all others
  awk -v kind="$1" -v names="^($2)==" '/^[A-Za-z0-9]/ { wanted = ($0 ~ names) == (kind == "of") } wanted' /tmp/lock.txt
}
exactly() { # of|but NAME|NAME…: installs these entries, whose files must have the lock's hashes
  entries "$@" >/tmp/entries.txt
  packages --no-deps --no-build-isolation --require-hashes -r /tmp/entries.txt
}

# What builds the one package that has no wheel.
exactly of 'setuptools|wheel'
case $device-$tensorflow in
  cpu-yes) exactly but setuptools ;;
  cpu-no)
    exactly but 'setuptools|tensorflow|tensorflow-text|tensorflow-hub|tf-keras|keras|libclang|h5py|astunparse|gast|google-pasta|namex|opt-einsum|optree|termcolor'
    ;;
  gpu-yes)
    exactly but setuptools
    locked --only-group gpu >/tmp/lock.txt
    exactly of 'nvidia-.*'
    ;;
  tpu-yes)
    exactly but 'setuptools|tensorflow|tensorflow-text|tensorflow-hub|tf-keras'
    packages -r "$here/requirements-tpu.txt"
    packages --no-deps -r "$here/requirements-tpu-text.txt"
    ;;
esac
[[ $device == tpu ]] || python -m pip check # it would miss the package named tensorflow
# Only who compiles against them needs these: TensorFlow's headers, and libclang.
site=$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
rm -rf /tmp/uv /tmp/lock.txt /tmp/entries.txt "$site/tensorflow/include" "$site/clang"
