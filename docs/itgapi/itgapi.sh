#!/usr/bin/env bash
# Asks a sender that waits as a daemon (ITGSend -Q) for a flow: D-ITG's ITGapi, in the shell.
#
#     itgapi.sh HOST OPTIONS OF ITGSend...
#
# prints what the daemon answers (1 started, 2 ended, 3 refused) and ends with the flow; exit code 1
# when the request was refused. LIMIT: seconds a flow may take at most (3600).
set -euo pipefail
(($# >= 2)) || { sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 1; }
host=$1
shift
reply=$(mktemp)
trap 'rm -f "$reply"' EXIT

exec 3<>"/dev/udp/$host/8998"
printf '%s' "$*" >&3
limit=5
# Each read takes one answer: its kind is the first byte, its text begins at byte 8.
while timeout "$limit" dd bs=2048 count=1 of="$reply" <&3 2>/dev/null; do
  kind=$(od -An -tu1 -N1 "$reply" | tr -d ' ')
  printf '%s %s %s\n' "$kind" "$host" "$(tail -c +9 "$reply" | tr -d '\0')"
  case $kind in
    1) limit=${LIMIT:-3600} ;;
    2) exit 0 ;;
    *) exit 1 ;;
  esac
done
echo "no answer from $host: is ITGSend -Q running there?" >&2
exit 1
