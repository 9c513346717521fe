#!/usr/bin/env bash
# bases.sh DIR [IMAGE…]: has Docker hold the three bases that the Dockerfile names, and the images.
# What cannot be pulled gets stand-ins of the same names, which are made in DIR (root, debootstrap and
# Go needed): Debian with the Python that $PYTHON names, Beam's boot program, and a launcher that
# only fails. That of flink:… is what `make flink` fetched, with this machine's Java.
set -euo pipefail
dir=${1:?must name a folder for the stand-ins}
shift
here=$(cd "$(dirname "$0")" && pwd)
dockerfile=$here/Dockerfile
value() { sed -n "s/^ARG $1=//p" "$dockerfile" | head -1; }
minor=${PYTHON_MINOR:-$(value PYTHON_MINOR)} beam=$(value BEAM)
python=3.$minor
# What stands behind FROM, with the values of its arguments.
mapfile -t bases < <(sed -nE 's/^FROM ([^ ]+[/:][^ ]*) AS .*/\1/p' "$dockerfile" \
  | sed -E "s/\\$\{PYTHON_MINOR\}/$minor/; s/\\$\{BEAM\}/$beam/; s/\\$\{[A-Z]+_DIGEST\}//")
bases+=("$@")

missing=()
for base in "${bases[@]}"; do
  docker image inspect "$base" >/dev/null 2>&1 || timeout 60 docker pull "$base" || missing+=("$base")
done
((${#missing[@]})) || exit 0
echo "no registry has ${missing[*]}: making stand-ins, which are for tests only" >&2
for tool in debootstrap go "${PYTHON:=python$python}"; do
  command -v "$tool" >/dev/null || { echo "bases.sh: $tool is needed for a stand-in" >&2; exit 2; }
done
mkdir -p "$dir"
dir=$(cd "$dir" && pwd) # as Go wants it

python_root() {
  local home certificates=/etc/ssl/certs/ca-certificates.crt
  home=$("$PYTHON" -c 'import sys; print(sys.base_prefix)')
  [[ $("$PYTHON" -c 'import sys; print("%d.%d" % sys.version_info[:2])') == "$python" ]] \
    || { echo "bases.sh: $PYTHON is not Python $python: give PYTHON=/path/to/python$python" >&2; exit 2; }
  if [[ ! -e $dir/debian ]]; then
    rm -rf "$dir/root"
    debootstrap --variant=minbase \
      --include=ca-certificates,libffi8,libreadline8,libsqlite3-0,libssl3 bookworm "$dir/root" >&2
    rm -rf "$dir"/root/var/{cache/apt,lib/apt/lists}/*
    touch "$dir/debian"
  fi
  if [[ ! -e $dir/python ]]; then
    (cd "$home" && tar -c --exclude=site-packages --exclude=test --exclude=__pycache__ \
      "bin/python$python" "lib/libpython$python.so"* "lib/python$python" include 2>/dev/null || true) \
      | tar -x -C "$dir/root/usr/local"
    ln -sf "python$python" "$dir/root/usr/local/bin/python"
    ln -sf "python$python" "$dir/root/usr/local/bin/python3"
    mkdir -p "$dir/root/usr/local/lib/python$python/site-packages"
    cp "$certificates" "$dir/root$certificates"
    chroot "$dir/root" ldconfig
    chroot "$dir/root" python -m ensurepip >&2
    touch "$dir/python"
  fi
}

for base in "${missing[@]}"; do
  case $base in
    python:*)
      python_root
      certificates=/etc/ssl/certs/ca-certificates.crt
      tar -C "$dir/root" --exclude=./proc/* --exclude=./sys/* -c . | docker import \
        -c "ENV SSL_CERT_FILE=$certificates PIP_CERT=$certificates PATH=/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin" - "$base"
      ;;
    */beam_python*)
      boot=$dir/beam/opt/apache/beam/boot
      mkdir -p "${boot%/*}"
      GOBIN=$dir/go GOFLAGS=-modcacherw go install "github.com/apache/beam/sdks/v2/python/container@v$beam"
      cp "$dir/go/container" "$boot"
      tar -C "$dir/beam" -c . | docker import - "$base"
      ;;
    flink:*)
      flink=$here/../../build/flink/libraries/pyflink java=$(readlink -f "$(command -v java)")
      [[ -e $flink/bin/bash-java-utils.jar ]] || { echo "bases.sh: make flink fetches Flink" >&2; exit 2; }
      java=${java%/bin/java}
      rm -rf "$dir/flink"
      mkdir -p "$dir/flink/opt/flink/bin" "$dir/flink/opt/java/openjdk"
      cp -r "$flink/lib" "$dir/flink/opt/flink/"
      cp "$flink/bin/bash-java-utils.jar" "$dir/flink/opt/flink/bin/"
      # Debian's links lead to other folders, some to files of packages that are not there.
      tar -C "$java" -h --exclude-from <(cd "$java" && find . -xtype l) -c . \
        | tar -C "$dir/flink/opt/java/openjdk" -x
      tar -C "$dir/flink" -c . | docker import - "$base"
      ;;
    *)
      launcher=$dir/launcher/opt/google/dataflow/python_template_launcher
      mkdir -p "${launcher%/*}"
      printf '#!/bin/sh\necho "this launcher is a stand-in" >&2\nexit 1\n' >"$launcher"
      chmod +x "$launcher"
      tar -C "$dir/launcher" -c . | docker import - "$base"
      ;;
  esac
done
