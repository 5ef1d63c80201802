package systemd_test

import (
	"os"
	"path/filepath"
	"testing"

	"policyd.dev/policyd/internal/testkernel"
)

// smackFiles are of a machine whose Smack policy is loaded early.
var smackFiles = map[string]string{
	"/etc/smack/accesses.d/base": "System User rx\nUser Log a\n",
	// Of a unit that comes with basic.target at the earliest: what the kernel holds by then.
	"/etc/systemd/system/early.service": `[Unit]
DefaultDependencies=no
After=sysinit.target
Before=basic.target
[Service]
Type=oneshot
RemainAfterExit=yes
StandardOutput=truncate:/run/early
ExecStart=cat /sys/fs/smackfs/load2
`,
	"/etc/systemd/system/needs.service": `[Unit]
Requires=policyd-smack.service
After=policyd-smack.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/true
`,
	"/opt/platform.yaml": `apiVersion: policyd/v1
kind: SmackPolicy
metadata: {name: platform}
spec:
  layers:
    - rules: |
        Camera Data rw
        User Log a
`,
}

const smackScript = `
step smack systemctl is-active policyd-smack.service
step daemon systemctl is-active policyd.service
step early cat /run/early
step needs systemctl is-active needs.service
step basic systemctl is-active basic.target
`

// TestSmackBoot: the assigned policy is in the kernel before basic.target, without the daemon, beside what systemd has loaded;
// the daemon then changes nothing. What stands in the way is told, the boot goes on, and what requires the policy is not started.
func TestSmackBoot(t *testing.T) {
	s := newMachine(t)
	state := t.TempDir()
	if err := os.Chmod(state, 0o700); err != nil {
		t.Fatal(err)
	}
	s.Folders["/var/lib/policyd"] = state
	for path, text := range smackFiles {
		s.Files[path] = text
	}
	s.Links["/etc/systemd/system/sysinit.target.wants/policyd-smack.service"] = "/usr/lib/systemd/system/policyd-smack.service"
	s.Links["/etc/systemd/system/basic.target.wants/early.service"] = "../early.service"
	s.Start = []string{"policyd.socket", "needs.service"}
	after := []string{"policyd.socket", "needs.service"}
	const bySystemd, inForce = "System User rx\nUser Log a\n", "Camera Data rw\nSystem User rx\nUser Log a\n"

	if !t.Run("assigned", func(t *testing.T) {
		b := boot(t, s, nil, testkernel.Script{After: after, Text: smackScript + `
			sort /run/early >/run/early.sorted
			step sorted cat /run/early.sorted
			step apply policyctl apply -f /opt/platform.yaml
			step load policyctl smack load platform
			# Beside a daemon that has the store, it asks whether all is well.
			step again systemctl restart policyd-smack.service`})
		b.prints("smack", "active\n") // with nothing to do
		b.step("daemon", 3, "inactive")
		b.prints("sorted", bySystemd)
		b.prints("needs", "active\n")
		b.step("load", 0)
		b.step("again", 0)
	}) {
		return
	}

	t.Run("in force", func(t *testing.T) {
		b := boot(t, s, nil, testkernel.Script{After: after, Text: smackScript + `
			sort /run/early >/run/early.sorted
			step sorted cat /run/early.sorted
			step unit log_of policyd-smack.service
			step status policyctl smack status
			step log log_of policyd.service
			step events policyctl events -o json
			step text systemctl show -P StatusText policyd.service
			step field journalctl POLICY=platform VERSION=1 --no-pager -o cat
			step unload policyctl smack unload
			step left sort /sys/fs/smackfs/load2
			step back policyctl smack load platform`})
		b.prints("smack", "active\n")
		b.step("daemon", 3, "inactive")
		b.prints("basic", "active\n")
		b.prints("needs", "active\n")
		b.prints("sorted", inForce)
		b.step("unit", 0, "smack policy is in force: policy=platform@1 rules=2 changed=1")
		b.step("status", 0, "platform@1")
		b.step("log", 0, "what was loaded at boot is taken over", "smack policy is in force: policy=platform@1 rules=2 changed=0")
		b.step("events", 0, `"type":"smack_load","actor":"policyd"`)
		b.step("text", 0, "Smack policy platform@1")
		b.step("field", 0, "smack policy is in force")
		b.step("unload", 0)
		b.prints("left", bySystemd) // what the policy only says again is not its own
		b.step("back", 0)
	})

	t.Run("in the way", func(t *testing.T) {
		b := boot(t, s, map[string]string{"/etc/smack/accesses.d/camera": "Camera Data r\n"},
			testkernel.Script{After: []string{"policyd.socket"}, Text: smackScript + smackBroken})
		b.notLoaded(`"Camera Data r" is loaded, rw is wanted`)
		b.step("policyd", 3, "activating", "not ready", `"Camera Data r" is loaded`)
	})

	t.Run("damaged store", func(t *testing.T) {
		path := filepath.Join(state, "policyd.db")
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for i := range text {
			text[i] ^= 0x5a
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		b := boot(t, s, nil, testkernel.Script{After: []string{"policyd.socket"}, Text: smackScript + smackBroken})
		b.notLoaded("store is damaged")
		b.step("policyd", 3, "failed", "Start request repeated too quickly")
	})
}

// smackBroken are steps of a boot whose policy is not loaded; notLoaded holds them.
const smackBroken = `
step unit log_of policyd-smack.service
step failed systemctl --failed --no-legend --plain
step catalog sh -c 'journalctl --update-catalog; journalctl -x -u policyd-smack.service --no-pager'
timeout 10 policyctl status >/dev/null 2>&1
sleep 2
step policyd systemctl status policyd.service --no-pager -l
`

func (b *booted) notLoaded(why string) {
	b.Helper()
	b.step("smack", 3, "failed")
	b.step("needs", 3, "inactive")
	b.prints("basic", "active\n")
	b.step("early", 0, "System User rx", "!Camera Data rw")
	b.step("unit", 0, "the smack policy of this host could not be loaded at boot", why)
	b.step("failed", 0, "policyd-smack.service")
	b.step("catalog", 0, "Units that require policyd-smack.service", "To do without: policyctl smack unload")
}
