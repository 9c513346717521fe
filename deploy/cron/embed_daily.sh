#!/usr/bin/env bash
# Embeds days of a corpus, one run at a time: settings and dates in, a log and an exit code out.
# deploy/cron/README.md explains it.
set -euo pipefail

readonly USAGE_LINE="embed_daily.sh [--stdout] SETTINGS [DAY [LAST_DAY]] [-- FLAGS OF EMBED]"
readonly USAGE=2 TOO_MANY_REJECTED=3 NO_INPUT=66 BUSY=75 INTERRUPTED=130
child=""
interrupted=""
ended="" # days and their exit codes, but for 0

refuse() {
  echo "embed_daily: $1" >&2
  exit "$USAGE"
}

say() {
  echo "$(date -u +%FT%TZ) $*"
}

# shellcheck disable=SC2329 # by the trap
interrupt() {
  interrupted=yes
  if [[ -n "$child" ]]; then
    kill -INT "$child" 2>/dev/null || true
  fi
}

read_settings() {
  [[ -f "$1" && -r "$1" ]] || refuse "there is no file of settings $1"
  APP="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
  INPUT="" OUTPUT="" STATE="" READY="" PYTHON=""
  FLAGS=()
  EARLIER=all CATCH_UP_DAYS=7 KEEP_LOGS_DAYS=30 TIME_ZONE=UTC
  # shellcheck source=deploy/cron/settings.example.sh
  source <(tr -d '\r' <"$1") || refuse "$1 ended with an error"
  PYTHON="${PYTHON:-$APP/.venv/bin/python}"
  local name
  for name in INPUT OUTPUT STATE; do
    [[ "${!name}" == /* || "${!name}" == *://* ]] ||
      refuse "$1 must set $name to an absolute path, it is \"${!name}\""
  done
  for name in CATCH_UP_DAYS KEEP_LOGS_DAYS; do
    [[ "${!name}" =~ ^[1-9][0-9]*$ ]] ||
      refuse "$1 must set $name to a number from 1 on, it is \"${!name}\""
  done
  # `date` takes a name that it does not know for UTC.
  [[ "$TIME_ZONE" == UTC || "$TIME_ZONE" =~ ^[A-Za-z]{3,}[-+]?[0-9] ||
    (-n "$TIME_ZONE" && -f "${TZDIR:-/usr/share/zoneinfo}/$TIME_ZONE") ]] ||
    refuse "$1 must set TIME_ZONE to a zone that this machine knows, it is \"$TIME_ZONE\""
  [[ -x "$PYTHON" ]] || refuse "there is no Python at $PYTHON; run make install in $APP"
}

days_later() {
  date -u -d "$1 $2 day" +%F
}

check_day() {
  [[ "$1" =~ ^[0-9]{4}-[0-9]{2}-[0-9]{2}$ && "$(date -u -d "$1" +%F 2>/dev/null)" == "$1" ]] ||
    refuse "a day is given as 2026-01-02, not $1"
}

choose_days() {
  local today
  today="$(TZ="$TIME_ZONE" date +%F)"
  last="${2:-${1:-$(days_later "$today" -1)}}"
  check_day "$last"
  first="${1:-$(days_later "$last" "-$((CATCH_UP_DAYS - 1))")}"
  check_day "$first"
  [[ ! "$first" > "$last" ]] || refuse "$first comes after $last"
  [[ "$last" < "$today" ]] || refuse "$last is not over yet in $TIME_ZONE"
}

# Whether a place of this machine that no pattern names is not there: to start Python takes seconds.
is_missing() {
  local place="${1//\{day\}/$2}"
  [[ "$1" == /*"{day}"* && "$place" != *[*?[]* && ! -e "$place" ]]
}

run_day() {
  local code=0 place
  for place in "$READY" "$INPUT"; do
    # The last day starts Python all the same, which tells of wrong settings.
    if [[ "$1" != "$last" ]] && is_missing "$place" "$1"; then
      echo "not yet: $1 has no ${place//\{day\}/$1}; a day without documents needs an empty file"
      return "$NO_INPUT"
    fi
  done
  "$PYTHON" -u -m deploy.cron.embed_day --input "$INPUT" --output "$OUTPUT" --day "$1" \
    --ready "$READY" --earlier "$EARLIER" --begun "$STATE/begun" \
    -- "${FLAGS[@]}" "${more_flags[@]}" 3>&- &
  child=$!
  wait "$child" || code=$?
  while kill -0 "$child" 2>/dev/null; do # a signal ended the wait, not the run
    code=0
    wait "$child" || code=$?
  done
  child=""
  return "$code"
}

# The days in their order. A day that fails ends them, for the next one compares with it.
run_days() {
  local day="$first" code result=0
  while [[ ! "$day" > "$last" ]]; do
    [[ -z "$interrupted" ]] || return "$INTERRUPTED"
    say "$day begins"
    code=0
    run_day "$day" || code=$?
    say "$day ended with exit code $code"
    ((code == 0)) || ended+="${ended:+, }$day: $code"
    case "$code" in
      0) ;;
      "$TOO_MANY_REJECTED") result="$code" ;;
      "$NO_INPUT") [[ "$day" != "$last" || "$result" != 0 ]] || result="$code" ;;
      *) return "$code" ;;
    esac
    day="$(days_later "$day" +1)"
  done
  [[ -z "$interrupted" ]] || result="$INTERRUPTED"
  return "$result"
}

main() {
  local to_stdout="" log="the output" words=() code=0
  more_flags=()
  while (($#)); do
    case "$1" in
      --stdout) to_stdout=yes ;;
      -h | --help)
        echo "usage: $USAGE_LINE"
        exit
        ;;
      --)
        more_flags=("${@:2}")
        break
        ;;
      -*) refuse "$1 is no flag of embed_daily.sh; those of embed stand behind --" ;;
      *) words+=("$1") ;;
    esac
    shift
  done
  ((${#words[@]} >= 1 && ${#words[@]} <= 3)) ||
    refuse "usage: $USAGE_LINE"
  read_settings "${words[0]}"
  choose_days "${words[@]:1}"

  mkdir -p "$STATE/logs" "$STATE/begun"
  exec 3>&2 || exec 3>/dev/null # it is closed
  if [[ -z "$to_stdout" ]]; then
    log="$STATE/logs/$(TZ="$TIME_ZONE" date +%F).log"
    exec >>"$log" 2>&1
    find "$STATE/logs" -maxdepth 1 -name '????-??-??.log' -mtime "+$KEEP_LOGS_DAYS" -delete
  fi
  # The run inherits the lock: it is held until the run is gone, even if this script is killed.
  exec 9>>"$STATE/lock"
  if ! flock --nonblock 9; then
    say "busy: another start holds $STATE/lock"
    echo "embed_daily: busy: another start holds $STATE/lock" >&3
    exit "$BUSY"
  fi
  cd "$APP"
  set -m # runs get process groups of their own, so that a signal comes once, from here
  run_days || code=$?
  if ((code)); then
    echo "embed_daily: exit code $code for $first to $last${ended:+ ($ended)}, see $log" >&3
  fi
  exit "$code"
}

trap interrupt INT TERM
main "$@"
