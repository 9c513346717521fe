#!/usr/bin/env bash
# Mails ALERT that a unit of systemd failed, with the end of its log, which holds no text of the corpus.
# Usage: ALERT=ADDRESS mail_failure.sh UNIT; bert-embed-failed@.service calls it.
set -euo pipefail
unit=${1:?give the name of a unit}
: "${ALERT:?must be the address that the mail goes to}"
{
  systemctl show --property=Result,ExecMainStatus,InactiveEnterTimestamp "$unit"
  echo
  journalctl --unit "$unit" --lines 40 --no-pager --output cat
} | mail -s "$unit failed on $(uname -n)" "$ALERT"
