#!/usr/bin/env bash
# slim.sh: removes from the installed packages what workers never use: some 550 MB.
# It runs in the layer that installs them: a later layer would only hide the files.
set -euo pipefail
site=$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
# Beam requires both, for nothing but its transforms on Vertex AI.
python -m pip uninstall --quiet --yes --root-user-action ignore google-cloud-aiplatform google-genai

# Names of functions, which only debuggers read. Not of *.libs: patchelf changed those, and strip can break them.
apt-get -qq update
apt-get -qq install --yes --no-install-recommends binutils >/dev/null
for package in pyarrow tensorflow tensorflow_text; do
  [[ ! -d $site/$package ]] || find "$site/$package" -name '*.so*' -type f -size +1M -exec strip --strip-unneeded {} +
done
apt-get -qq purge --yes --auto-remove binutils >/dev/null
apt-get clean
rm -rf /var/lib/apt/lists/*
