package e2e_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"policyd.dev/policyd/internal/testkernel"
)

// machineFiles are of the machine of TestSystemd: what systemd loads at boot, policyd, and units that look.
var machineFiles = map[string]string{
	"/etc/smack/accesses.d/base":   "System User rx\nSystem Log rwa\nUser Log a\n",
	"/etc/smack/accesses.d/camera": "# a comment of systemd's\nCamera Data r\n",
	"/etc/smack/cipso.d/cipso":     "Camera 7   2   1   2   \n",
	"/etc/smack/netlabel.d/net":    "10.1.0.0/16 Net\n",
	"/etc/smack/onlycap":           "_\n",
	"/etc/policyd/policyd.yaml":    "",
	"/etc/systemd/system/policyd.service": `[Unit]
Description=Policies for Landlock and Smack
[Service]
Type=notify
ExecStart=/opt/policyd/policyd
StateDirectory=policyd
StateDirectoryMode=0700
RuntimeDirectory=policyd
RuntimeDirectoryPreserve=yes
Delegate=yes
KillMode=process
`,
	// What the kernel holds when policyd is started, and when systemd takes it for started.
	"/etc/systemd/system/before.service": `[Unit]
Before=policyd.service
[Service]
Type=oneshot
RemainAfterExit=yes
StandardOutput=truncate:/run/before
ExecStart=cat /sys/fs/smackfs/load2
`,
	"/etc/systemd/system/after.service": `[Unit]
Requires=policyd.service
After=policyd.service
[Service]
Type=oneshot
RemainAfterExit=yes
StandardOutput=truncate:/run/after
ExecStart=cat /sys/fs/smackfs/load2
`,
	// A program that systemd labels tries what the rules give it. Its label is not in onlycap, so that being root
	// does not help it.
	"/etc/systemd/system/camera.service": `[Service]
Type=oneshot
SmackProcessLabel=Camera
StandardOutput=truncate:/run/camera
StandardError=null
ExecStart=/opt/camera
`,
	"/opt/camera": `#!/bin/sh
cat /proc/self/attr/current && echo
cat /run/data
(echo more >/run/data) && echo written
exit 0
`,
	"/opt/platform.yaml": `apiVersion: policyd/v1
kind: SmackPolicy
metadata: {name: platform}
spec:
  layers:
    - rules: |
        Camera Data rw
        Camera Log a
        User Log a
`,
	"/opt/cat.yaml": `apiVersion: policyd/v1
kind: LandlockPolicy
metadata: {name: cat}
spec:
  abi: 3
  layers:
    - paths:
        - {allow: [read, execute], at: [/usr, /proc]}
        - {allow: [read, execute], at: [/lib, /lib64, /bin], missing: skip}
`,
}

// machineFunctions are of the scripts: camera STEP starts camera.service and keeps what it said; labelled STEP starts a
// program with a label in a sandbox; kernel STEP keeps the rules; answers waits until policyd serves, ready or not.
const machineFunctions = `
PATH=$PATH:/opt/policyd
camera() {
	echo data >/run/data
	policyctl -q smack labels --set SMACK64=Data /run/data >/dev/null || exit
	systemctl start camera.service || exit
	step "$1" cat /run/camera
}
labelled() { step "$1" policyctl run cat --smack-label Job -- /bin/cat /proc/self/attr/current; }
kernel() { step "$1" cat /sys/fs/smackfs/load2; }
answers() { until [ -S /run/policyd/policyd.sock ]; do sleep 0.1; done; }
`

// The rules that systemd loads, and those of the kernel with the policy in force besides.
var (
	bySystemd = []string{"Camera Data r", "System Log rwa", "System User rx", "User Log a"}
	inForce   = []string{"Camera Data rw", "Camera Log a", "System Log rwa", "System User rx", "User Log a"}
)

// TestSystemd is policyd on a machine that systemd runs, which has loaded Smack rules itself, over several boots: they live
// together, and the policy is in force before anything that comes after policyd, or nothing of this is started.
func TestSystemd(t *testing.T) {
	for _, kernel := range []string{testkernel.UML61, testkernel.UML73} {
		t.Run(kernel, func(t *testing.T) {
			testkernel.RequireSystemd(t, kernel)
			testkernel.RequireRoot(t) // the state folder must belong to the guest's root
			state := t.TempDir()
			if err := os.Chmod(state, 0o700); err != nil {
				t.Fatal(err)
			}
			m := &machine{
				System: testkernel.System{
					Kernel: kernel, Files: machineFiles,
					Folders: map[string]string{"/opt/policyd": binDir, "/var/lib/policyd": state},
					Start:   []string{"before.service", "policyd.service", "after.service"},
				},
				landlock: kernel == testkernel.UML73,
			}
			for _, boot := range []struct {
				name     string
				run      func(t *testing.T)
				landlock bool // what it shows takes programs that policyd starts
			}{
				{"beside", m.beside, false},
				{"next boot", m.nextBoot, false},
				{"smackfs not mounted", m.notMounted, true},
				{"foreign rule", m.foreignRule, true},
				{"onlycap", m.onlycap, true},
			} {
				if boot.landlock && !m.landlock {
					continue
				}
				if !t.Run(boot.name, boot.run) {
					return // the next ones build on it
				}
			}
		})
	}
}

type machine struct {
	testkernel.System
	landlock bool // without it no program is started
}

// boot boots the machine with some files changed, and shows all of it when the test has failed.
func (m *machine) boot(t *testing.T, files map[string]string, script testkernel.Script) *boot {
	t.Helper()
	var console bytes.Buffer
	s := m.System
	s.Output = &console
	s.Files = maps.Clone(m.Files)
	maps.Copy(s.Files, files)
	script.Text = machineFunctions + script.Text
	b, err := s.Boot(t.Context(), script)
	if err != nil {
		t.Fatalf("%v\n%s", err, console.Bytes())
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("steps: %v\noutput: %s\nconsole:\n%s", b.Steps, b.Output, console.Bytes())
		}
	})
	if b.Exit != 0 || b.Output != "" {
		t.Fatalf("script: exit status %d\n%s", b.Exit, b.Output)
	}
	return &boot{t, b}
}

// boot is what a boot of the machine gave.
type boot struct {
	*testing.T
	*testkernel.Booted
}

// step holds a step's exit status and what it printed somewhere.
func (b *boot) step(name string, exit int, want ...string) {
	b.Helper()
	s, ok := b.Steps[name]
	if !ok || s.Exit != exit {
		b.Errorf("step %s: %v\nwant exit status %d", name, s, exit)
	}
	for _, w := range want {
		if !strings.Contains(s.Stdout+s.Stderr, w) {
			b.Errorf("step %s lacks %q: %v", name, w, s)
		}
	}
}

// prints holds all that a step printed.
func (b *boot) prints(name, want string) {
	b.Helper()
	if s, ok := b.Steps[name]; !ok || s != (testkernel.Step{Stdout: want}) {
		b.Errorf("step %s: %v\nwant %q", name, s, want)
	}
}

// rules holds the rules that a step read from the kernel.
func (b *boot) rules(name string, want []string) {
	b.Helper()
	got := strings.Split(strings.TrimSpace(b.Steps[name].Stdout), "\n")
	slices.Sort(got)
	if !slices.Equal(got, want) {
		b.Errorf("step %s: %q\nwant %q", name, got, want)
	}
}

// smackStatus is a part of what policyctl smack status -o json prints.
type smackStatus struct {
	State, Policy, AssignedPolicy, Failed string
	Own, Foreign, DriftTotal              int
	ForeignRules                          []struct{ Subject, Object, Kernel string }
}

func (b *boot) status(name string) (s smackStatus) {
	b.Helper()
	if err := json.Unmarshal([]byte(b.Steps[name].Stdout), &s); err != nil {
		b.Fatalf("step %s: %v: %v", name, err, b.Steps[name])
	}
	return s
}

// notReady holds that policyd serves and systemd waits for it, that what comes after it is not started, and that
// nothing gets a label; why is said everywhere. It belongs to the steps of notReadySteps.
func (b *boot) notReady(m *machine, why string) {
	b.Helper()
	b.prints("unready.policyd", "ActiveState=activating\nSubState=start\n")
	b.prints("unready.after", "ActiveState=inactive\nSubState=dead\n")
	b.step("unready.text", 0, "not ready: policy platform@1 is assigned to this host", why)
	b.step("unready.smack", 1, why, "not in force: policy platform@1 is assigned to this host")
	if s := b.status("unready.json"); s.AssignedPolicy != "platform" || !strings.Contains(s.Failed, why) {
		b.Errorf("status of a policyd that is not ready: %+v", s)
	}
	b.step("unready.run", 125)
	if m.landlock {
		b.step("unready.run", 125, "smack label cannot be set: the assigned policy is not in force", why)
		b.step("unready.unlabelled", 0)
	}
}

const notReadySteps = `
answers
step unready.smack policyctl smack status
step unready.json policyctl smack status -o json
labelled unready.run
step unready.unlabelled policyctl run cat -- /bin/cat /proc/self/attr/current
step unready.policyd systemctl show -p ActiveState -p SubState policyd.service
step unready.after systemctl show -p ActiveState -p SubState after.service
step unready.text systemctl show -P StatusText policyd.service
`

// beside: systemd has loaded its rules and settings. They are foreign to policyd, which takes over those that a policy
// names when it is told to, and loses none.
func (m *machine) beside(t *testing.T) {
	b := m.boot(t, nil, testkernel.Script{After: []string{"after.service"}, Text: `
		step active systemctl is-active policyd.service
		step before cat /run/before
		step after cat /run/after
		for f in onlycap cipso2 netlabel; do step $f cat /sys/fs/smackfs/$f; done
		step foreign policyctl smack status --foreign -o json
		camera camera
		step apply policyctl apply -f /opt/platform.yaml -f /opt/cat.yaml
		step refused policyctl smack load platform
		kernel refused.kernel
		step adopt policyctl smack load platform --adopt --request-id once
		step adopt.again policyctl smack load platform --adopt --request-id once
		kernel adopt.kernel
		step adopt.status policyctl smack status --foreign -o json
		camera adopt.camera
		labelled run
		step unload policyctl smack unload
		kernel unload.kernel
		camera unload.camera
		step assign policyctl smack load platform --adopt
		kernel assign.kernel
		for f in onlycap cipso2 netlabel; do step assign.$f cat /sys/fs/smackfs/$f; done
		step failed systemctl --failed --no-legend`})
	b.prints("active", "active\n")
	b.rules("before", bySystemd)
	b.rules("after", bySystemd)
	for _, when := range []string{"", "assign."} {
		b.step(when+"onlycap", 0, "_")
		b.step(when+"cipso2", 0, "Camera   7/1,2\n")
		b.step(when+"netlabel", 0, "10.1.0.0/16 Net\n")
	}
	if s := b.status("foreign"); s.State != "STATE_AVAILABLE" || s.Own != 0 || s.Foreign != 4 || len(s.ForeignRules) != 4 {
		t.Errorf("what systemd has loaded: %+v", s)
	}
	b.prints("camera", "Camera\ndata\n")
	b.step("apply", 0)
	b.step("refused", 1, `"Camera Data r" is loaded, rw is wanted`)
	b.rules("refused.kernel", bySystemd)
	b.step("adopt", 0)
	b.prints("adopt.again", b.Steps["adopt"].Stdout)
	b.rules("adopt.kernel", inForce)
	if s := b.status("adopt.status"); s.Policy != "platform" || s.Own != 3 || s.Foreign != 2 || s.DriftTotal != 0 {
		t.Errorf("adopted: %+v", s)
	}
	b.prints("adopt.camera", "Camera\ndata\nwritten\n")
	if m.landlock {
		b.prints("run", "Job")
	}
	b.step("unload", 0)
	b.rules("unload.kernel", []string{"System Log rwa", "System User rx"})
	b.prints("unload.camera", "Camera\n")
	b.step("assign", 0)
	// Unloaded, the pairs of the policy were nobody's; loading brings them back.
	b.rules("assign.kernel", inForce)
	b.prints("failed", "")
}

// nextBoot: systemd has loaded its rules again, and the policy is in force before what comes after policyd.
func (m *machine) nextBoot(t *testing.T) {
	b := m.boot(t, nil, testkernel.Script{After: []string{"after.service"}, Text: `
		step before cat /run/before
		step after cat /run/after
		step status policyctl smack status --foreign -o json
		camera camera
		step failed systemctl --failed --no-legend`})
	b.rules("before", bySystemd)
	b.rules("after", inForce)
	if s := b.status("status"); s.Policy != "platform" || s.AssignedPolicy != "platform" || s.Own != 3 || s.Foreign != 2 || s.DriftTotal != 0 || s.Failed != "" {
		t.Errorf("after a reboot: %+v", s)
	}
	b.prints("camera", "Camera\ndata\nwritten\n")
	b.prints("failed", "")
}

// notMounted: there is no smackfs when policyd starts. It goes on by itself once there is.
func (m *machine) notMounted(t *testing.T) {
	b := m.boot(t, map[string]string{
		"/etc/systemd/system/before.service": "[Unit]\nBefore=policyd.service\n[Service]\nType=oneshot\nExecStart=umount /sys/fs/smackfs\n",
	}, testkernel.Script{Text: notReadySteps + `
		step mount mount -t smackfs smackfs /sys/fs/smackfs
		step started systemctl start policyd.service after.service
		step active systemctl is-active policyd.service after.service
		step after cat /run/after
		camera camera
		labelled run
		# From now on without --adopt.
		step assign policyctl smack load platform
		step status policyctl smack status -o json`})
	b.notReady(m, "smackfs is not mounted")
	b.step("mount", 0)
	b.step("started", 0)
	b.prints("active", "active\nactive\n")
	b.rules("after", inForce)
	b.prints("camera", "Camera\ndata\nwritten\n")
	if m.landlock {
		b.prints("run", "Job")
	}
	b.step("assign", 0)
	b.step("status", 0)
}

// foreignRule: the policy is assigned without taking over the rules of others, and systemd has loaded one for a pair of it.
func (m *machine) foreignRule(t *testing.T) {
	b := m.boot(t, nil, testkernel.Script{Text: notReadySteps + `
		kernel refused.kernel
		step adopt policyctl smack load platform --adopt
		step started systemctl start policyd.service after.service
		step after cat /run/after`})
	b.notReady(m, `"Camera Data r" is loaded, rw is wanted`)
	b.rules("refused.kernel", bySystemd)
	b.step("adopt", 0)
	b.step("started", 0)
	b.rules("after", inForce)
}

// onlycap: policyd has a label of its own, to which onlycap does not give CAP_MAC_ADMIN, so that the kernel refuses it the
// rules. It cannot be systemd's label that is left out: systemd would not mount /run.
func (m *machine) onlycap(t *testing.T) {
	b := m.boot(t, map[string]string{
		"/etc/systemd/system/policyd.service.d/label.conf": "[Service]\nSmackProcessLabel=Daemon\n",
		"/etc/smack/accesses.d/daemon":                     "Daemon _ rwxat\n_ Daemon rwxat\n",
	}, testkernel.Script{Text: notReadySteps + `
		kernel refused.kernel`})
	b.notReady(m, "onlycap")
	b.prints("unready.unlabelled", "Daemon")
	want := append([]string{"Daemon _ rwxat", "_ Daemon rwxat"}, bySystemd...)
	slices.Sort(want)
	b.rules("refused.kernel", want)
}
