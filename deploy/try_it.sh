#!/usr/bin/env bash
# try_it.sh PROJECT REGION [--print]: embeds 100 documents on Dataflow in a project of your own, checks what each
# command prints, and removes all that it made. docs/cloud.md says what it costs; --print only shows the commands.
set -euo pipefail
cd "$(dirname "$0")/.."

[[ $# == 2 || ($# == 3 && $3 == --print) ]] || { echo "usage: deploy/try_it.sh PROJECT REGION [--print]" >&2; exit 2; }
project=$1 region=$2 print=${3:-} step=0
python=${PYTHON:-.venv/bin/python} corpus=build/language_reference.jsonl
bucket=gs://$project-bert-embed-try output=gs://$project-bert-embed-try/vectors
services=(artifactregistry bigquery bigquerystorage cloudbuild cloudresourcemanager cloudscheduler compute dataflow iam logging
  monitoring run secretmanager serviceusage storage)
work=$(mktemp -d)

try() { # what it must print, the command
  local wanted=$1
  shift
  step=$((step + 1))
  printf '%d/10' "$step"
  printf ' %q' "$@"
  printf '\n%s' "${wanted:+must print: $wanted$'\n'}"
  [[ -z $print ]] || return 0
  "$@" 2>&1 | tee "$work/said" || { echo "try_it.sh: command $step failed" >&2; exit 1; }
  [[ -z $wanted ]] || grep -qE "$wanted" "$work/said" || { echo "try_it.sh: command $step did not print $wanted" >&2; exit 1; }
}

# shellcheck disable=SC2329 # by the trap
clean_up() {
  local code=$?
  rm -rf "$work"
  if [[ -z $print ]] && ((step > 1)); then
    gcloud storage rm --recursive "$bucket" --project "$project" --quiet || code=1
    gcloud artifacts repositories delete bert-embed-try --project "$project" --location "$region" --quiet || code=1
    ((code)) || echo "all that was made is removed"
  fi
  exit "$code"
}
trap clean_up EXIT

sed -e "s/=my-project$/=$project/" -e "s#-docker.pkg.dev/my-project/images#-docker.pkg.dev/$project/bert-embed-try#" \
  -e "s/us-central1/$region/" -e "s#gs://my-bucket/texts/\*.jsonl#$bucket/texts.jsonl#" -e "s#gs://my-bucket#$bucket#" \
  -e 's/^MAX_WORKERS=.*/MAX_WORKERS=2/' -e 's/^FLAGS=$/FLAGS=--limit 100/' \
  deploy/dataflow/variables.env.example > "$work/variables.env"
mkdir -p build
"$python" examples/write_language_reference.py "$corpus"

try '' gcloud services enable "${services[@]/%/.googleapis.com}" --project "$project"
try '' gcloud storage buckets create "$bucket" --project "$project" --location "$region" --uniform-bucket-level-access
try '' gcloud artifacts repositories create bert-embed-try --project "$project" --location "$region" --repository-format docker
try '' gcloud storage cp "$corpus" "$bucket/texts.jsonl"
try 'tokens' "$python" -m bert_embed estimate --input "$bucket/texts.jsonl"
try '100 embedded' deploy/dataflow/dataflow.sh submit "$work/variables.env"
try 'all as written' "$python" -m bert_embed verify "$output"
try 'nothing to do' deploy/dataflow/dataflow.sh submit "$work/variables.env"
try '' deploy/dataflow/dataflow.sh template "$work/variables.env"
try '' deploy/dataflow/dataflow.sh launch "$work/variables.env"
[[ -z $print ]] || exit 0
# A launch that has nothing to do must end as a done job.
for ((minutes = 0; minutes < 20; minutes++)); do
  state=$(gcloud dataflow jobs list --project "$project" --region "$region" --limit 1 --format 'value(state)')
  [[ $state != Done ]] || exit 0
  [[ $state != Failed && $state != Cancelled ]] || break
  sleep "${TRY_SLEEP:-60}"
done
echo "try_it.sh: the job of the template is ${state:-unknown} after $minutes minutes" >&2
exit 1
