# Settings of embed_daily.sh, read by bash. Only its owner may be able to write this file.
# shellcheck shell=bash disable=SC2034
INPUT='/data/texts/{day}'             # a file, folder or glob, local or gs://; {day} is 2026-01-02
OUTPUT=/data/vectors                  # holds a folder for each day
STATE=/var/lib/bert-embed             # lock, logs and marks of begun days, on this machine
# Of embed; {day} is the date here, too. Where each day's folder holds the whole corpus, leave --max_deleted out.
FLAGS=(--model minilm --max_rejected 1% --max_deleted 0)
READY='/data/texts/{day}/.ready'      # no input before this file is there; '' goes by the input
EARLIER=all                           # days before that are compared with: all, or how many
CATCH_UP_DAYS=7                       # without a date, so many days up to yesterday
KEEP_LOGS_DAYS=30
TIME_ZONE=UTC                         # whose yesterday
