package systemd_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"policyd.dev/policyd/internal/testkernel"
)

// sleepPolicy lets programs of the host run and write nowhere.
const sleepPolicy = `apiVersion: policyd/v1
kind: LandlockPolicy
metadata: {name: sleep}
spec:
  abi: 7
  layers:
    - paths:
        - {allow: [read, execute], at: [/usr, /proc]}
        - {allow: [read, execute], at: [/lib, /lib64, /bin], missing: skip}
`

// daemonFunctions are of the scripts about the daemon.
const daemonFunctions = `
main_pid() { systemctl show -P MainPID policyd.service; }
status_text() { systemctl show -P StatusText policyd.service; }
says() { status_text | grep -qF "$1"; }
restarted() { [ "$(main_pid)" != "$1" ] && [ "$(main_pid)" != 0 ] && systemctl is-active -q policyd.service; }
# load N FILE asks policyd time and again until /run/load is gone, and notes what was refused.
load() {
	while [ -e /run/load ]; do
		policyctl get policies -o name >/dev/null 2>>"$2" || echo "$1 refused" >>"$2"
		echo >>"$2.calls"
	done
}
`

// TestDaemon: one boot on which policyd is started by its first call, reloaded and restarted under load, gets stuck, loses its
// disk, its credentials and its privileges.
func TestDaemon(t *testing.T) {
	s := newMachine(t)
	s.Start = []string{"policyd.socket"}
	for path, text := range map[string]string{
		"/opt/sleep.yaml": sleepPolicy,
		// As the disk of the state folder: 4 MB.
		"/etc/systemd/system/var-lib-policyd.mount":                      "[Mount]\nWhat=tmpfs\nWhere=/var/lib/policyd\nType=tmpfs\nOptions=size=4m,mode=0700\n",
		"/etc/systemd/system/policyd.service.d/test.conf":                "[Unit]\nRequiresMountsFor=/var/lib/policyd\n[Service]\nWatchdogSec=3s\nTimeoutAbortSec=5s\n",
		"/etc/policyd/policyd.yaml":                                      "stopDeadline: 1s\nroles:\n  - {role: user, everyone: true}\n",
		"/etc/pam.d/other":                                               "auth required pam_deny.so\naccount required pam_deny.so\npassword required pam_deny.so\nsession required pam_deny.so\n",
		"/etc/systemd/system/user@.service.d/no-logind.conf":             "[Service]\nEnvironment=XDG_RUNTIME_DIR=/run/user/%i\n",
		"/opt/tls.yaml":                                                  "tcp: {listen: \"127.0.0.1:7443\", certificate: \"credential:cert\", key: \"credential:key\", clientCA: \"credential:ca\"}\n",
		"/opt/tls.conf":                                                  "[Service]\nLoadCredential=cert:/opt/cert.pem\nLoadCredential=key:/opt/key.pem\nLoadCredential=ca:/opt/cert.pem\n",
		"/etc/systemd/system/user-runtime-dir@.service.d/no-logind.conf": "[Service]\nExecStart=\nExecStart=/bin/sh -c 'mkdir -p -m 700 /run/user/%i && chown %i:%i /run/user/%i'\n",
		"/etc/pam.d/systemd-user":                                        "account required pam_permit.so\nsession required pam_permit.so\n",
	} {
		s.Files[path] = text
	}
	for path, text := range certificate(t) {
		s.Files[path] = text
	}
	start := time.Now()
	b := boot(t, s, nil, testkernel.Script{After: []string{"policyd.socket"}, Text: daemonFunctions + daemonScript})
	t.Logf("%v", time.Since(start))

	b.step("activation.before", 3, "inactive")
	b.step("activation.socket", 0, "660 root policyd")
	b.step("activation.first", 0, "landlock     available, ABI 11")
	b.prints("activation.after", "active\n")
	b.step("activation.text", 0, "0 sandboxes; Landlock ABI 11")
	b.step("activation.group", 0, "1 sandbox")

	b.step("load.calls", 0)
	b.prints("load.refused", "")
	b.step("reload.same", 0)
	b.step("reload.restart", 0)
	b.step("reload.restart.text", 0, "waits for a restart: smack.poolSize")
	b.step("reload.restart.status", 0, "waits for a restart of policyd: smack.poolSize")
	b.step("reload.broken", 1)
	b.step("reload.broken.text", 0, "CONFIGURATION NOT READ AGAIN", "policyd.yaml:1:1")
	b.step("reload.broken.status", 0, "NOT READ AGAIN", "policyd.yaml:1:1")
	b.step("reload.broken.works", 0, "sleep")
	b.step("reload.mended.text", 0, "!CONFIGURATION", "!restart")

	b.step("restart.detached", 0, "running")
	b.prints("restart.detached.alive", "alive\n")
	b.prints("restart.cgroup", b.Steps["restart.cgroup.before"].Stdout)
	b.step("restart.attached", 7) // its own status
	b.prints("restart.attached.out", "begin\none two\n")
	b.step("restart.attached.says", 0, "policyd restarts, sandbox", "goes on")
	b.step("restart.much", 0)
	b.step("restart.much.same", 0)
	b.step("restart.unseen", 0, "last words")
	b.prints("restart.store", "0\n") // nothing is left with systemd
	b.step("stop.attached", 125)     // a stop is one
	b.step("stop.stays", 3, "inactive")
	b.step("stop.journal", 0, "!hung up, it")

	b.step("watchdog", 0)
	b.prints("watchdog.result", "1\n")
	b.step("watchdog.journal", 0, "Watchdog timeout")
	b.prints("watchdog.alive", "alive\n")
	b.step("watchdog.ps", 0, "running")

	b.step("full.apply", 1, "no space left")
	b.step("full.run", 0) // a store of some size has room for a record; the journal of sandboxes is in memory
	b.step("full.text", 0)
	b.prints("full.restarts", "1\n")
	b.step("full.kept", 0, "sleep")
	b.step("freed.apply", 0)
	b.step("freed.kept", 0, "sleep@1", "more@1")
	b.step("freed.check", 0)
	b.step("freed.ps", 0, "ended (7)")

	b.step("credential.missing", 1)
	b.step("credential.missing.journal", 0, "tcp.certificate: credential:cert: the service manager gave no credentials", "LoadCredential=cert:/PATH")
	b.prints("credential.missing.restarts", "0\n")
	b.step("credential.given", 0)
	b.step("credential.listens", 0, "127.0.0.1:7443")
	b.step("credential.child", 0, "!CREDENTIALS_DIRECTORY", "!NOTIFY_SOCKET", "!WATCHDOG", "!LISTEN_", "!JOURNAL_STREAM")

	b.step("fields", 0, `"POLICY":"sleep"`, `"VERSION":"1"`, `"REQUEST_ID"`, `"METHOD":"SandboxService/Start"`)
	b.step("catalog", 0, "The new configuration of policyd has a mistake", "Mend the file and reload policyd again")
	for _, unit := range []string{"policyd.service", "policyd-smack.service"} {
		b.prints("exposure."+unit, "Overall exposure level for "+unit+": "+exposure[unit]+"\n")
	}
	// Of systemd 252; a later one says nothing.
	if s := b.Steps["verify"]; strings.Count(s.Stderr, "\n") > 1 || s.Stderr != "" && !strings.Contains(s.Stderr, "ignoring: notify-reload") {
		t.Errorf("the units: %v", s)
	}

	b.step("confined.own", 0, "NoNewPrivs:\t0")
	b.step("confined.caller", 0, "roles: viewer", "!admin")
	b.step("user.start", 0)
	b.step("user.status", 0, "/home/alice/.local/state/policyd/policyd.db", "uid:1000, roles: admin", "cgroup")
	b.step("user.run", 0, "Uid:\t1000")
	b.step("user.text", 0, "1 sandbox; Landlock ABI 11")
	b.step("user.restart", 0)
	b.step("user.attached", 9)
	b.step("user.alive", 0, "running")
	b.step("user.system", 0, "uid:1000, roles: user")

	b.step("own.status", 0, "uid:0, roles: viewer", "cgroup")
	b.prints("own.user", "policyd\n")
	b.step("own.caps", 0, "CapAmb:\t0000000000000000", "NoNewPrivs:\t0")
	b.step("own.child", 0, "CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "CapAmb:\t0000000000000000", "Uid:\t990")
	b.step("own.attached", 9)
	b.step("own.other", 125, "cannot start sandboxes as uid")
	b.step("own.smack", 0)
	b.prints("own.exposure", "Overall exposure level for policyd.service: "+exposure["own user"]+"\n")
}

// exposure is what systemd-analyze security says of the units; docs/systemd.md tells the same.
var exposure = map[string]string{"policyd.service": "9.2 UNSAFE", "policyd-smack.service": "1.3 OK", "own user": "6.8 MEDIUM"}

// TestExposureIsDocumented holds the table of docs/systemd.md.
func TestExposureIsDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/systemd.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]string{
		"policyd.service": "`policyd.service`", "own user": "with `own-user.conf`", "policyd-smack.service": "`policyd-smack.service`",
	} {
		if line := "| " + row + " | " + exposure[name] + " |"; !strings.Contains(string(doc), line) {
			t.Errorf("docs/systemd.md lacks %q", line)
		}
	}
}

const daemonScript = `
step activation.before systemctl is-active policyd.service
step activation.socket stat -c '%a %U %G' /run/policyd/policyd.sock
step activation.first policyctl status
step activation.after systemctl is-active policyd.service
step activation.text status_text
policyctl -q apply -f /opt/sleep.yaml >/dev/null || echo apply
id=$(policyctl run --detach sleep -- /bin/sleep 1000)
wait_for says "1 sandbox"
step activation.group status_text
pid=$(policyctl ps -o json | sed -n 's/.*"pid": *\([0-9]*\).*/\1/p')

# Under load: reloads, a restart, a sandbox of each kind.
touch /run/load
for n in 1 2 3; do load $n /run/refused.$n & done
wait_for test -e /run/refused.1.calls
for n in 1 2 3 4; do systemctl reload policyd.service || echo reload; done
step reload.same systemctl is-active policyd.service
echo '{stopDeadline: 1s, smack: {poolSize: 5}}' >/etc/policyd/policyd.yaml
step reload.restart systemctl reload policyd.service
wait_for says "waits for a restart"
step reload.restart.text status_text
step reload.restart.status policyctl status
echo 'smak: {}' >/etc/policyd/policyd.yaml
step reload.broken systemctl reload policyd.service
kill -HUP $(main_pid)
wait_for says "NOT READ AGAIN"
step reload.broken.text status_text
step reload.broken.status policyctl status
step reload.broken.works policyctl get policies -o name
printf 'stopDeadline: 1s\nroles:\n  - {role: user, everyone: true}\n' >/etc/policyd/policyd.yaml
systemctl reload policyd.service || echo reload
step reload.mended.text status_text

step restart.cgroup.before cat /proc/$pid/cgroup
mkfifo /run/keys /run/more
exec 8<>/run/keys 9<>/run/more
policyctl run sleep -- /bin/sh -c 'echo begin; read a; read b; echo "$a $b"; exit 7' </run/keys >/run/attached 2>/run/attached.err 8<&- 9<&- &
attached=$!
dd if=/dev/urandom of=/run/much bs=64k count=400 2>/dev/null
(sleep 1; cat /run/much) | policyctl run sleep -- /bin/cat >/run/much.back 2>/dev/null &
much=$!
policyctl run --rm sleep -- /bin/sh -c 'read a; echo last words' </run/more >/run/unseen 2>/dev/null 8<&- 9<&- &
unseen=$!
wait_for says "4 sandboxes"
echo one >&8
sleep 1
systemctl restart policyd.service || echo restart
echo two >&8
systemctl restart policyd.service || echo restart
echo >&9
rm /run/load
step restart.attached wait $attached
step restart.attached.out cat /run/attached
step restart.attached.says cat /run/attached.err
step restart.much wait $much
step restart.much.same cmp /run/much /run/much.back
wait $unseen
step restart.unseen cat /run/unseen
step restart.store systemctl show -P NFileDescriptorStore policyd.service
exec 8<&- 9<&-
rm /run/much /run/much.back
wait
step load.calls sh -c '[ $(cat /run/refused.*.calls | wc -l) -gt 10 ]'
step load.refused sh -c 'cat /run/refused.? 2>/dev/null || :'
step restart.detached policyctl ps
step restart.detached.alive sh -c "kill -0 $pid && echo alive"
step restart.cgroup cat /proc/$pid/cgroup

# A stop ends what is attached, and no client starts policyd again.
policyctl run sleep -- /bin/sleep 1000 >/run/attached 2>&1 &
attached=$!
wait_for says "2 sandboxes"
systemctl stop policyd.service 2>/dev/null # that the socket is there
step stop.attached wait $attached
step stop.stays systemctl is-active policyd.service
step stop.journal log_of policyd.service
policyctl status >/dev/null

# Stuck.
was=$(main_pid)
kill -STOP $was
step watchdog wait_for restarted $was
step watchdog.result systemctl show -P NRestarts policyd.service
step watchdog.journal log_of policyd.service
step watchdog.alive sh -c "kill -0 $pid && echo alive"
step watchdog.ps policyctl ps

# Full.
dd if=/dev/zero of=/var/lib/policyd/fill bs=64k 2>/dev/null
sed 's/name: sleep/name: more/' /opt/sleep.yaml >/run/more.yaml
for n in 1 2 3 4 5 6 7 8; do
	{ sed "s/name: sleep/name: fill-$n/" /opt/sleep.yaml; dd if=/dev/zero bs=1k count=60 2>/dev/null | tr '\0' '#'; echo; } >/run/fill.yaml
	policyctl -q apply -f /run/fill.yaml >/dev/null 2>&1 || break
done
step full.apply policyctl apply -f /run/more.yaml
step full.run policyctl run --detach sleep -- /bin/sh -c 'exit 7'
sleep 4 # longer than the watchdog waits
step full.text status_text
step full.restarts systemctl show -P NRestarts policyd.service
step full.kept policyctl get policies -o name
rm /var/lib/policyd/fill
step freed.apply policyctl apply -f /run/more.yaml
step freed.kept policyctl get policies -o name
step freed.ps policyctl ps --all
step freed.check policyctl db check

# Credentials.
cp /opt/tls.yaml /etc/policyd/policyd.yaml
step credential.missing systemctl restart policyd.service
step credential.missing.journal log_of policyd.service
step credential.missing.restarts systemctl show -P NRestarts policyd.service
cp /opt/tls.conf /etc/systemd/system/policyd.service.d/tls.conf
systemctl daemon-reload
step credential.given systemctl restart policyd.service policyd.socket
journalctl --sync
step credential.listens sh -c 'journalctl -u policyd.service --no-pager -o cat | grep listening:'
step credential.child policyctl run sleep -- /usr/bin/env

journalctl --sync
step fields journalctl SANDBOX=$id -o json --no-pager
journalctl --update-catalog
step catalog journalctl -x -u policyd.service --no-pager
exposure() { systemd-analyze security --no-pager $1 | grep Overall | sed "s/.*Overall/Overall/; s/ :.*//"; }
for u in policyd.service policyd-smack.service; do step exposure.$u exposure $u; done
step verify systemd-analyze verify --man=no policyd.service policyd-smack.service policyd.socket

# policyd tells by no_new_privs who may be confined, so that it must not have it itself.
step confined.own cat /proc/$(main_pid)/status
step confined.caller setpriv --no-new-privs policyctl status

# A user's own.
mkdir -p /home/alice && chown 1000:1000 /home/alice
systemctl start user@1000.service || echo "no user manager"
alice() { setpriv --reuid 1000 --regid 1000 --clear-groups env HOME=/home/alice XDG_RUNTIME_DIR=/run/user/1000 "$@"; }
step user.start alice systemctl --user start policyd.socket
step user.status alice policyctl --user status
alice policyctl -q apply -f /opt/sleep.yaml >/dev/null || echo apply
step user.run alice policyctl run sleep -- /bin/cat /proc/self/status
alice policyctl run --detach sleep -- /bin/sleep 1000 >/dev/null || echo run
mkfifo /run/alice
exec 8<>/run/alice
alice policyctl run sleep -- /bin/sh -c 'echo begin; read a; exit 9' </run/alice >/run/alice.out 2>&1 8<&- &
attached=$!
wait_for grep -q begin /run/alice.out
step user.restart alice systemctl --user restart policyd.service
echo >&8
step user.attached wait $attached
exec 8<&-
one_left() { alice systemctl --user show -P StatusText policyd.service | grep -q '^[^;]*; 1 sandbox'; }
wait_for one_left
step user.alive alice policyctl ps
step user.text alice systemctl --user show -P StatusText policyd.service
chmod 666 /run/policyd/policyd.sock
step user.system alice policyctl --system status
chmod 660 /run/policyd/policyd.sock

# A user of its own. Its state is another one: the mount is root's alone.
rm /etc/systemd/system/policyd.service.d/tls.conf
printf 'roles:\n  - {role: viewer, everyone: true}\n' >/etc/policyd/policyd.yaml
policyctl kill --all $id
cp /usr/share/policyd/systemd/own-user.conf /etc/systemd/system/policyd.service.d/own-user.conf
systemctl daemon-reload
systemctl restart policyd.service || echo own
step own.status policyctl status
step own.user sh -c 'ps -o user= -p $(systemctl show -P MainPID policyd.service)'
step own.caps cat /proc/$(main_pid)/status
as_policyd() { setpriv --reuid 990 --regid 990 --clear-groups policyctl --system "$@"; }
step own.child as_policyd run sleep -- /bin/cat /proc/self/status
mkfifo /run/own
exec 8<>/run/own
as_policyd run sleep -- /bin/sh -c 'echo begin; read a; exit 9' </run/own >/run/own.out 2>&1 8<&- &
attached=$!
wait_for grep -q begin /run/own.out
systemctl restart policyd.service || echo restart
echo >&8
step own.attached wait $attached
exec 8<&-
step own.other as_policyd run -u alice sleep -- /bin/true
step own.smack sh -c 'setpriv --reuid 990 --regid 990 --clear-groups policyctl --system smack status'
step own.exposure exposure policyd.service
`
