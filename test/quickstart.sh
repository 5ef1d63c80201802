#!/usr/bin/env bash
# The main job in one go: start a policyd in a folder of its own, store a
# policy, start a program under it, see what the kernel refuses it and why, look
# at the history, roll back. Needs no root, leaves nothing running.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d "${TMPDIR:-/tmp}/policyd-quickstart.XXXXXX")
export POLICYD_SOCKET="unix://$work/state/run/policyd.sock"
PATH="$PWD/bin:$PATH"
cp docs/examples/quickstart.yaml "$work/notebook.yaml"
mkdir "$work/notes"
# A folder of temporary files may lie anywhere; the policy says where notes may lie.
case $work in
  /tmp/* | /home/* | /root/* | /var/tmp/*) ;;
  *) sed -i "s#within: \[#&${work%/*}, #" "$work/notebook.yaml" ;;
esac
cd "$work/notes"
daemon=

finish() {
  status=$?
  trap - EXIT INT TERM
  if [ -n "$daemon" ]; then
    kill "$daemon" 2>/dev/null || true
    wait "$daemon" 2>/dev/null || true
  fi
  [ $status = 0 ] || { echo "quickstart failed; the daemon said:" >&2; cat "$work/policyd.log" >&2 || true; }
  rm -rf "$work"
  exit $status
}
trap finish EXIT INT TERM

say() { printf '\n# %s\n' "$*"; }
# show prints a command as a person would type it, and runs it.
show() {
  local word
  printf '$'
  for word in "$@"; do
    case $word in
      *[!a-zA-Z0-9_./:=@-]*) printf " '%s'" "$word" ;;
      *) printf ' %s' "$word" ;;
    esac
  done
  printf '\n'
  "$@"
}
# expect STATUS COMMAND...: the exit status is part of what is shown here.
expect() {
  local want=$1 got=0
  shift
  show "$@" || got=$?
  printf '  (exit status %s)\n' "$got"
  [ "$got" = "$want" ] || { echo "expected exit status $want" >&2; exit 1; }
}

say "A policyd of our own: store, socket and logs lie in $work/state"
policyd --state-dir "$work/state" >"$work/policyd.log" 2>&1 &
daemon=$!
show policyctl status --wait

say "Store a policy. It becomes version 1 and never changes again."
show policyctl apply -f ../notebook.yaml --message "first try"

say "Start a shell under it. It may write its notes ..."
show policyctl run notebook --set notes="$work/notes" -- sh -c 'echo "buy milk" > list && cat list'

say "... and the kernel refuses it everything else."
expect 2 policyctl run notebook --set notes="$work/notes" -- ls /root /var/log
expect 1 policyctl run notebook --set notes="$work/notes" -- cat /etc/passwd

say "Why? Ask before, or after: the layer that refused, or the rule that granted, with its line."
expect 1 policyctl check notebook --set notes="$work/notes" -- open /etc/passwd r
expect 0 policyctl check notebook --set notes="$work/notes" -- open "$work/notes/list" rw

say "Allow /etc/passwd. Version 2."
sed -i 's#readable: .*#readable: [/etc/hostname, /etc/passwd]#' ../notebook.yaml
show policyctl apply -f ../notebook.yaml --message "let it see user names"
expect 1 policyctl diff notebook@1 notebook@2
show policyctl run notebook --set notes="$work/notes" -- sh -c 'wc -l < /etc/passwd'

say "That was one file too many. Version 3 has the content of version 1."
show policyctl rollback notebook --to 1 --message "no, it need not"
show policyctl history notebook
expect 1 policyctl run notebook --set notes="$work/notes" -- cat /etc/passwd

say "Everything that was changed or started is in a log whose entries are chained by hash."
show policyctl events
show policyctl db check

say "Done. Nothing is left running, $work is removed."
