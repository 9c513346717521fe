#!/usr/bin/env bash
# bake.sh cpu|gpu|tpu [MODEL]: checks the installed package in the image that is being built, and puts the
# default model into its cache, so that nothing is fetched where there is no internet; imports MODEL to
# /opt/bert-embed/model.
set -euo pipefail
device=${1:?} model=${2:-}
cd / # the package must come from site-packages
bert-embed --version
python -c 'import apache_beam, ai_edge_litert.interpreter, bert_embed.pipeline.run.graph'
python -m bert_embed.bundle.find
# libtpu would look for a TPU.
[[ $device == tpu ]] || bert-embed model verify minilm
chmod -R a+rwX "$BERT_EMBED_CACHE" # of whoever runs it
[[ -n $model ]] || exit 0
mkdir -p /opt/bert-embed
code='import sys; from bert_embed.bundle.find import resolve_model; print(resolve_model(sys.argv[1]).path)'
bundle=$(BERT_EMBED_CACHE=/models python -c "$code" "$model")
cp -r "$bundle" /opt/bert-embed/model
bert-embed model inspect /opt/bert-embed/model
