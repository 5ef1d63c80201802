package systemd_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"policyd.dev/policyd/internal/testkernel"
	"policyd.dev/policyd/internal/units"
)

const attachFunctions = `
mkdir -p /srv/out && chmod 1777 /srv/out
rm /srv/root/usr/x; for d in bin lib lib64; do ln -s usr/$d /srv/root/$d; done
out() { step out.$1 cat /srv/out/${2:-$1}; rm -f /srv/out/${2:-$1}; }
shown() { systemctl show -p ExecStart $1 | sed 's/ ; start_time.*//'; }
`

// TestAttach puts services of many kinds under policies in one boot: each goes on working, and is confined.
func TestAttach(t *testing.T) {
	s := newMachine(t)
	for at, text := range attachFiles {
		s.Files[at] = text
	}
	// What is left of an attached unit when its profile is gone.
	lost, _, err := units.Text(units.Attachment{Unit: "lost.service", Policy: "svc"},
		&units.Service{Unit: &units.Unit{}, Name: "lost.service", Commands: map[string][]units.Command{"ExecStart": {{Program: "/opt/probe", Argv0: "/opt/probe", Rest: "lost"}}}},
		units.Files{Launcher: "/usr/bin/env", Profile: "/var/lib/policyd-units/lost.service.profile"}, false, false)
	if err != nil {
		t.Fatal(err)
	}
	s.Files["/etc/systemd/system/lost.service.d/"+units.DropIn] = strings.ReplaceAll(lost, "/usr/bin/env", "/usr/bin/policyd-launch")
	// A reload runs all generators, which takes most of its time.
	generators, err := filepath.Glob("/usr/lib/systemd/system-generators/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range generators {
		s.Links["/etc/systemd/system-generators/"+filepath.Base(g)] = "/dev/null"
	}
	s.Start = []string{"policyd.socket", "sock.socket", "lost.service", "other.service"}
	b := boot(t, s, nil, testkernel.Script{After: []string{"policyd.socket", "lost.service"}, Text: attachFunctions + attachScript})
	b.attached()
	b.updated()
	b.refusals()
	b.lost()
}

const attachScript = `
step lost.state systemctl show -P Result -P ExecMainStatus lost.service
step lost.file ls /srv/out/lost
told() { wait_for sh -c "journalctl -u $1 --no-pager -o cat | grep -q '$2'"; }
told lost.service 'has no profile'
step lost.journal journalctl -u lost.service --no-pager -o cat

rm -r /etc/systemd/system/lost.service.d
step apply policyctl apply -f /opt/svc.yaml -f /opt/inside.yaml -f /opt/tight.yaml -f /opt/labelled.yaml
shown lines.service >/run/lines.before
systemctl cat lines.service >/run/lines.cat
systemctl start lines.service
for n in first second third fourth fifth sixth seventh; do mv /srv/out/$n /run/before.$n; done
systemctl stop lines.service
for u in forking notify sock dynamic private inst@ lines; do
	step attach.$u policyctl attach $u.service svc
done
step attach.root policyctl attach root.service inside
shown lines.service >/run/lines.after
step lines.before cat /run/lines.before
step lines.after cat /run/lines.after
for u in forking notify dynamic private root inst@a-b lines; do
	step start.$u systemctl start $u.service
	step active.$u systemctl is-active $u.service
done
step client /opt/client
step status.notify systemctl show -P StatusText -P MainPID notify.service
step comm.notify sh -c 'cat /proc/$(systemctl show -P MainPID notify.service)/comm; systemctl show -P MainPID notify.service'
step comm.forking sh -c 'cat /proc/$(systemctl show -P MainPID forking.service)/comm'
wait_for test -s /var/lib/dynamic/it
step dynamic cat /var/lib/dynamic/it
step private ls /tmp/private
step inside cat /srv/root/out/it
step inside.plus cat /srv/root/out/plus
wait_for test -s /srv/out/private
wait_for test -s /srv/out/dynamic
told private.service 'said by private'
step said journalctl -t private -t notified --no-pager -o short
for n in forking notify dynamic private first third fourth; do out $n; done
for n in second fifth sixth seventh; do step same.$n cmp /run/before.$n /srv/out/$n; done
step print.fifth cat /srv/out/fifth
step inst cat /srv/out/inst-a-b
step reload systemctl reload notify.service
out reload
step units policyctl get units
step units.json policyctl get units -o json

# A newer version: exactly what runs an older one is restarted.
sed -i 's/abi: 3/abi: 4/' /opt/svc.yaml
step update policyctl apply -f /opt/svc.yaml
step update.units policyctl get units -o json
step update.dry policyctl attach --restart-changed --dry-run
systemctl show -P InvocationID root.service other.service >/run/others.before
systemctl stop policyd.service policyd.socket
step update.down policyctl attach --restart-changed
step update.offline systemctl restart private.service
told private.service 'as last time'
step update.offline.journal journalctl -u private.service --no-pager -o cat
step update.offline.fields journalctl UNIT=private.service POLICY=svc VERSION=1 --no-pager -o cat
systemctl start policyd.socket
step update.restart policyctl attach --restart-changed
systemctl show -P InvocationID root.service other.service >/run/others.after
step update.others cmp /run/others.before /run/others.after
step update.after policyctl get units -o json
step update.again policyctl attach --restart-changed

# Bad input.
mkdir /etc/systemd/system/inst@late.service.d
printf '[Service]\nExecStart=/opt/probe late\n' >/etc/systemd/system/inst@late.service.d/zzz.conf
step instance policyctl attach inst@.service svc
step instance.all policyctl attach inst@.service svc --all-commands
rm -r /etc/systemd/system/inst@late.service.d
# systemd has not been told of an edit.
printf '[Service]\nExecStart=\nExecStart=/opt/forking new\n' >/etc/systemd/system/forking.service.d/50.conf
step stale policyctl attach forking.service svc
step stale.holds shown forking.service
rm /etc/systemd/system/forking.service.d/50.conf
step stale.back policyctl attach forking.service svc
for p in svc tight; do { policyctl attach other.service $p >/run/at-once.$p 2>&1; echo $? >/run/at-once.$p.exit; } & done; wait
step atonce sh -c 'sort /run/at-once.*.exit; policyctl detach -q other.service'
# The template's drop-in, in /etc, comes before the instance's in /run.
step shadowed policyctl attach inst@run.service tight --runtime
step shadowed.left ls /run/systemd/system/inst@run.service.d
mkdir -p /run/systemd/system/inst@run.service.d; cp /etc/systemd/system/inst@.service.d/zz-policyd.conf /run/systemd/system/inst@run.service.d
step shadowing policyctl attach inst@.service svc
rm -r /run/systemd/system/inst@run.service.d
# A policy that is deleted: the last profile holds.
sed 's/name: svc/name: deleted/' /opt/svc.yaml >/opt/deleted.yaml; policyctl -q apply -f /opt/deleted.yaml >/dev/null
policyctl -q attach inst@deleted.service deleted >/dev/null 2>&1; step deleted.refused policyctl delete deleted --expect 1
policyctl -q delete deleted --expect 1 --force >/dev/null
step deleted systemctl start inst@deleted.service
step deleted.units policyctl get units
policyctl -q detach inst@deleted.service --restart >/dev/null; rm -f /srv/out/inst-deleted
step again policyctl attach notify.service svc
step another policyctl attach notify.service tight
echo '# mine' >>/etc/systemd/system/notify.service.d/zz-policyd.conf
step hand policyctl attach notify.service svc
step hand.detach policyctl detach notify.service
step hand.units policyctl get units
step hand.force policyctl attach notify.service svc --force
printf '[Service]\nExecStart=\nExecStart=/bin/sleep 5\n' >/etc/systemd/system/other.service.d.conf
mkdir -p /etc/systemd/system/other.service.d
mv /etc/systemd/system/other.service.d.conf /etc/systemd/system/other.service.d/zzz.conf
systemctl daemon-reload
step later policyctl attach other.service svc
step later.left find /etc/systemd/system/other.service.d /var/lib/policyd-units -name 'zz-policyd*' -o -name 'other.service.*' -type f
rm -r /etc/systemd/system/other.service.d
ln -sf /dev/null /etc/systemd/system/masked.service; systemctl daemon-reload
step absent policyctl attach absent.service svc
step masked policyctl attach masked.service svc
step bare policyctl attach bare.service svc
step broken policyctl attach broken.service svc
step generated policyctl attach generated.service svc
systemd-run --unit=transient sleep 1000 2>/dev/null
step transient policyctl attach transient.service svc
step nopolicy policyctl attach other.service nosuch
step dry policyctl attach other.service svc --dry-run
step dry.left ls /etc/systemd/system/other.service.d
mount -t tmpfs -o size=4k,mode=755 tmpfs /var/lib/policyd-units
step full policyctl attach other.service svc
step full.left sh -c 'find /etc/systemd/system /var/lib/policyd-units -name "*other*" -type f -o -path "*other.service.d*"'
umount /var/lib/policyd-units
step runtime policyctl attach other.service svc --runtime --restart
step runtime.files ls /run/systemd/system/other.service.d/zz-policyd.conf /run/policyd-units/other.service.profile
step runtime.twice policyctl attach other.service svc
step runtime.detach policyctl detach other --restart
step verify policyctl verify-unit notify.service svc
step verify.tight policyctl verify-unit dynamic.service tight
step nobody setpriv --reuid 65534 --clear-groups policyctl attach other.service svc

# The profile goes, and policyd too: it does not start.
systemctl stop policyd.service policyd.socket
rm /var/lib/policyd-units/notify.service.profile /srv/out/notify
step gone systemctl restart notify.service
step gone.state systemctl show -P Result -P ExecMainStatus notify.service
told notify.service 'has no profile'
step gone.journal journalctl -u notify.service --no-pager -o cat
step gone.out ls /srv/out/notify
step gone.units policyctl get units
systemctl start policyd.socket
step healed systemctl restart notify.service
out notify.healed notify
step all policyctl attach notify.service svc --all-commands --restart
step all.reload systemctl reload notify.service
out all.reload reload

# A Smack label is systemd's to give, and the launcher holds that it has.
step labelled policyctl attach labelled.service labelled
step labelled.start systemctl start labelled.service
out labelled
sed -i '/SmackProcessLabel/d' /etc/systemd/system/labelled.service.d/zz-policyd.conf; systemctl daemon-reload
step labelled.lost systemctl start labelled.service
step labelled.state systemctl show -P ExecMainStatus labelled.service
step labelled.detach policyctl detach labelled.service --force
step labelled.plus policyctl attach lines.service labelled --force

# A user's own systemd and policyd.
alice() { setpriv --reuid 1000 --regid 1000 --clear-groups env HOME=/home/alice XDG_RUNTIME_DIR=/run/user/1000 "$@"; }
step alice systemctl start alice.service
step alice.socket alice systemctl --user start policyd.socket
step alice.apply alice policyctl apply -f /opt/svc.yaml
step alice.attach alice policyctl attach --user mine.service svc
step alice.start alice systemctl --user start mine.service
out mine
step alice.units alice policyctl get units --user
step alice.detach alice policyctl detach --user mine.service
step alice.left find /home/alice -name '*policyd*' -name '*.conf'
step detach policyctl detach lines.service
systemctl cat lines.service >/run/lines.cat2
step detach.same cmp /run/lines.cat /run/lines.cat2
step detach.left ls /var/lib/policyd-units/lines.service.profile
for u in forking notify sock dynamic private root inst@; do step detach.$u policyctl detach $u.service --restart; done
step detach.all sh -c 'ls /var/lib/policyd-units; find /etc/systemd/system -name zz-policyd.conf'
step detach.again policyctl detach notify.service
`

const refusedProbe = "cat: /srv/secret: Permission denied\nNoNewPrivs:\t1\n"

func (b *booted) attached() {
	b.Helper()
	b.step("apply", 0)
	for _, u := range []string{"forking", "notify", "sock", "dynamic", "private", "inst@", "lines"} {
		b.step("attach."+u, 0, u+".service is attached to svc (now svc@1)")
	}
	b.step("attach.root", 0, "root.service is attached to inside (now inside@1)")
	for _, u := range []string{"forking", "notify", "dynamic", "private", "root", "inst@a-b", "lines"} {
		b.step("start."+u, 0)
		b.prints("active."+u, "active\n")
	}
	for _, n := range []string{"forking", "notify", "dynamic", "private", "first", "third", "fourth"} {
		b.prints("out."+n, refusedProbe)
	}
	b.prints("client", "1 mine Permission denied\n")
	b.prints("comm.forking", "sleep\n")
	comm, pid, _ := strings.Cut(b.Steps["comm.notify"].Stdout, "\n")
	if comm != "sleep" || !strings.Contains(b.Steps["status.notify"].Stdout, "pid "+strings.TrimSpace(pid)+"\n") {
		b.Errorf("MainPID of notify.service: %v, %v", b.Steps["comm.notify"], b.Steps["status.notify"])
	}
	b.step("dynamic", 0, " opens")
	b.step("private", 2)
	b.step("said", 0, " private[", "]: said by private\n", " notified[", "]: said by notify\n")
	b.step("inside", 0, "cat: /secret: Permission denied", "seen: /bin")
	b.step("inside.plus", 0, "cat: /secret: Permission denied", "seen: /bin")
	for _, n := range []string{"second", "fifth", "sixth", "seventh"} {
		b.step("same."+n, 0)
	}
	b.step("print.fifth", 0, "<a b>\n<c\"d>\n<two>\n<words>\n<two words>\n<$x>\n<%>\n<lines.service>\n<A b>\n<;>\n<e>\n")
	b.prints("inst", "</opt/args>\n<a/b>\n")
	b.prints("out.reload", "told\nNoNewPrivs:\t0\n") // not confined, unless --all-commands
	b.sameArguments()
	b.step("units", 0, "UNIT", "notify.service", "svc@1", "inst@a-b.service")
	for name, u := range b.units("units.json") {
		want := "svc@1"
		if name == "root.service" {
			want = "inside@1"
		}
		running := want
		if name == "sock.service" {
			running = ""
		}
		if u.Running != running || u.Newest != want || u.NeedsRestart || u.Problem != "" {
			b.Errorf("%s: %+v", name, u)
		}
	}
}

// sameArguments holds that what stands behind the launcher's -- is what systemd started before.
func (b *booted) sameArguments() {
	b.Helper()
	before := strings.Split(strings.TrimSpace(b.Steps["lines.before"].Stdout), "\n")
	after := strings.Split(strings.TrimSpace(b.Steps["lines.after"].Stdout), "\n")
	if len(before) != 8 || len(after) != len(before) {
		b.Fatalf("commands of lines.service: %q; before: %q", after, before)
	}
	for i := range before {
		_, was, _ := strings.Cut(before[i], " argv[]=")
		_, is, _ := strings.Cut(after[i], " argv[]=")
		wasArgs, wasFlags, _ := strings.Cut(was, " ; ignore_errors=")
		isArgs, isFlags, _ := strings.Cut(is, " ; ignore_errors=")
		if _, args, ok := strings.Cut(isArgs, " -- "); !ok || args != wasArgs || isFlags != wasFlags {
			b.Errorf("command %d: %q; before: %q", i, after[i], before[i])
		}
	}
}

type unitRow struct {
	Unit, Policy, Running, Next, Newest, State, Problem string
	NeedsRestart                                        bool
}

func (b *booted) units(step string) map[string]unitRow {
	b.Helper()
	var v struct{ Units []unitRow }
	if err := json.Unmarshal([]byte(b.Steps[step].Stdout), &v); err != nil || len(v.Units) == 0 {
		b.Fatalf("step %s: %v: %v", step, err, b.Steps[step])
	}
	m := map[string]unitRow{}
	for _, u := range v.Units {
		m[u.Unit] = u
	}
	return m
}

var restarted = []string{"dynamic.service", "forking.service", "inst@a-b.service", "lines.service", "notify.service", "private.service"}

func (b *booted) updated() {
	b.Helper()
	b.step("update", 0)
	rows := b.units("update.units")
	for _, name := range restarted {
		if u := rows[name]; u.Running != "svc@1" || u.Newest != "svc@2" || !u.NeedsRestart {
			b.Errorf("%+v needs a restart", u)
		}
		b.step("update.dry", 0, name+" would be restarted: svc@1 becomes svc@2")
		b.step("update.restart", 0, name+" restarted: svc@1 became svc@2")
	}
	for _, name := range []string{"root.service", "sock.service"} {
		if u := rows[name]; u.NeedsRestart {
			b.Errorf("%+v needs no restart", u)
		}
		b.step("update.restart", 0, "!"+name)
	}
	b.step("update.down", 1, "policyd does not answer")
	b.step("update.offline", 0)
	b.step("update.offline.journal", 0, "private.service is started under svc@1, as last time")
	b.step("update.offline.fields", 0, "the unit is started under the policy", "as last time")
	b.step("update.others", 0)
	for name, u := range b.units("update.after") {
		if u.NeedsRestart || u.State == "active" && u.Running != u.Newest {
			b.Errorf("%s after the restart: %+v", name, u)
		}
	}
	b.step("update.again", 0, "no unit has to be restarted")
}

func (b *booted) refusals() {
	b.Helper()
	b.step("instance", 1, "its instance inst@late.service has another ExecStart=", "attach that one by itself")
	b.step("instance.all", 1, "inst@late.service")
	b.step("stale", 0)
	b.step("stale.holds", 0, "-- /opt/forking new")
	b.step("stale.back", 0)
	b.prints("atonce", "0\n1\n")
	b.step("shadowed", 1, "the drop-in does not hold", "--unit inst@.service")
	b.step("shadowed.left", 2)
	b.step("shadowing", 1, "its instance inst@run.service has a policy of its own until the next boot")
	b.step("deleted.refused", 1, "services are attached to it: inst@deleted.service (policyctl detach")
	b.step("deleted", 0)
	b.step("deleted.units", 0, "inst@deleted.service  deleted  deleted@1", "active, deleted: LandlockPolicy/deleted", "!rpc error")
	b.step("again", 0, "notify.service is attached to svc")
	b.step("another", 1, "attached to svc", "--force")
	b.step("hand", 1, "changed by hand", "+# mine")
	b.step("hand.detach", 1, "changed by hand", "+# mine")
	b.step("hand.units", 0, "changed by hand")
	b.step("hand.force", 0)
	b.step("later", 1, "a drop-in that is read later", "zzz.conf", "not attached")
	b.prints("later.left", "")
	b.step("absent", 1, "no such unit")
	b.step("masked", 1, "masked")
	b.step("bare", 1)
	b.step("broken", 1, "broken.service:2", "not closed")
	b.step("generated", 1, "generator")
	b.step("transient", 1, "transient")
	b.step("nopolicy", 1, "nosuch")
	b.step("dry", 0, "ExecStart=/usr/bin/policyd-launch unit --unit other.service")
	b.step("dry.left", 2)
	b.step("full", 1, "not attached", "no space left")
	b.prints("full.left", "/etc/systemd/system/other.service\n")
	b.step("runtime", 0, "other.service restarted")
	b.step("runtime.files", 0)
	b.step("runtime.twice", 1, "already exists", "policyctl detach")
	b.step("runtime.detach", 0, "other.service is detached", "other.service restarted")
	b.step("verify", 0, "nothing is missing")
	b.step("verify.tight", 1, "something is missing", "StateDirectory", "- /var/lib/dynamic", "layers:", "/srv/out")
	b.step("nobody", 4, "be root")
}

func (b *booted) lost() {
	b.Helper()
	// At boot, before policyd knew the policy.
	b.step("lost.state", 0, "exit-code", "125")
	b.step("lost.file", 2)
	b.step("lost.journal", 0, "lost.service has no profile", "policyctl attach lost.service")
	b.step("gone", 1)
	b.step("gone.state", 0, "125")
	b.step("gone.out", 2)
	b.step("gone.journal", 0, "notify.service has no profile", "policyctl attach notify.service")
	b.step("gone.units", 0, "cannot start")
	b.step("healed", 0)
	b.prints("out.notify.healed", refusedProbe)
	b.step("all", 0, "notify.service restarted")
	b.prints("out.all.reload", refusedProbe)
	b.step("labelled", 0)
	b.step("labelled.start", 0)
	b.step("out.labelled", 0, "Job", "Permission denied")
	b.step("labelled.lost", 1)
	b.prints("labelled.state", "125\n")
	b.step("labelled.detach", 0)
	b.step("labelled.plus", 1, "prefix +")
	for _, n := range []string{"", ".socket", ".apply", ".start"} {
		b.step("alice"+n, 0)
	}
	b.step("alice.attach", 0, "mine.service is attached to svc (now svc@1)")
	b.prints("out.mine", refusedProbe)
	b.step("alice.units", 0, "mine.service", "svc@1")
	b.step("alice.detach", 0)
	b.prints("alice.left", "")
	b.step("detach", 0)
	b.step("detach.same", 0)
	b.step("detach.left", 2)
	for _, u := range []string{"forking", "notify", "sock", "dynamic", "private", "root", "inst@"} {
		b.step("detach."+u, 0, "is detached")
	}
	b.step("detach.all", 0, "!notify", "!.profile")
	b.step("detach.again", 1, "not attached")
}
