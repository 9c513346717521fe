# Settings of embed_daily.sh in a container, for Cloud Run and Kubernetes; settings.example.sh explains each.
# shellcheck shell=bash disable=SC2034
INPUT='gs://my-bucket/texts/{day}'
OUTPUT=gs://my-bucket/vectors
STATE=/tmp/bert-embed # gone with the container: the lock, and marks of begun days
PYTHON=/usr/local/bin/python
FLAGS=(--model minilm --max_rejected 1% --max_deleted 0)
READY='gs://my-bucket/texts/{day}/.ready'
CATCH_UP_DAYS=7
