package systemd_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"policyd.dev/policyd/internal/testkernel"
)

// buildPackages makes packages of the built programs, of kinds of build.sh, and returns their folder.
func buildPackages(t *testing.T, version string, kinds ...string) string {
	t.Helper()
	out := t.TempDir()
	cmd := exec.Command("bash", append([]string{filepath.Join(root, "deploy/package/build.sh")}, kinds...)...)
	cmd.Env = append(os.Environ(), "VERSION="+version, "OUT="+out, "PROGRAMS="+binDir, "SOURCE_DATE_EPOCH=1700000000")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return out
}

// dpkgStatus is that of a machine on which dpkg knows systemd to be installed, and what the scripts of a package call.
func dpkgStatus() map[string]string {
	files := map[string]string{"/var/lib/dpkg/available": "", "/var/lib/dpkg/info/format": "1\n"}
	var status strings.Builder
	for _, p := range []string{"systemd", "init-system-helpers"} {
		status.WriteString("Package: " + p + "\nStatus: install ok installed\nMaintainer: nobody\nArchitecture: all\nVersion: 252\nDescription: as on the host\n\n")
		files["/var/lib/dpkg/info/"+p+".list"] = "/.\n"
	}
	files["/var/lib/dpkg/status"] = status.String()
	return files
}

const packageScript = `
rm -f /usr/sbin/policy-rc.d # of hosts that are containers
state() { systemctl show -p ActiveState -p UnitFileState --value "$1" | tr '\n' ' '; }
sleeper() { pgrep -f '^sleep 4242' | tr '\n' ' '; }
main_pid() { systemctl show -P MainPID policyd.service; }

step install dpkg --force-unsafe-io -i /opt/packages/old.deb
step socket state policyd.socket
step smack systemctl is-enabled policyd-smack.service
step service.before state policyd.service
step group getent group policyd
step folders stat -c '%n %a %U:%G' /var/lib/policyd /run/policyd /run/policyd/policyd.sock /etc/policyd/policyd.yaml /usr/bin/policyd-launch
step catalog journalctl --no-pager --list-catalog
step call policyctl status
step service.after state policyd.service
step apply policyctl apply -f /opt/sleep.yaml
step run policyctl run sleep --detach -- sleep 4242
wait_for pgrep -f '^sleep 4242'
step sleeper.before sleeper
echo '# changed by hand' >>/etc/policyd/policyd.yaml
main_pid >/run/pid.before

step upgrade dpkg --force-unsafe-io -i /opt/packages/new.deb
step upgrade.version dpkg-query -W -f '${Version}' policyd
wait_for systemctl is-active policyd.service
step upgrade.service state policyd.service
step upgrade.socket state policyd.socket
step upgrade.pid test "$(main_pid)" != "$(cat /run/pid.before)"
step upgrade.sleeper sleeper
step upgrade.ps policyctl ps
step upgrade.policies policyctl get policies -o name
step upgrade.config tail -n 1 /etc/policyd/policyd.yaml
step again dpkg --force-unsafe-io -i /opt/packages/new.deb

# What an administrator disabled stays so.
systemctl disable -q policyd-smack.service 2>/dev/null
step disabled dpkg --force-unsafe-io -i /opt/packages/new.deb
step disabled.smack systemctl is-enabled policyd-smack.service

mkdir -p /etc/systemd/system/web.service.d
printf '[Service]\nExecStart=\nExecStart=/usr/bin/policyd-launch unit --unit web.service -- /bin/true\n' >/etc/systemd/system/web.service.d/50-policyd.conf
step remove dpkg -r policyd
step remove.units systemctl is-active policyd.socket policyd.service
step remove.program test -e /usr/bin/policyd
step remove.store stat -c %s /var/lib/policyd/policyd.db
step remove.config tail -n 1 /etc/policyd/policyd.yaml
step remove.sleeper sleeper

step back dpkg --force-unsafe-io -i /opt/packages/new.deb
step back.socket state policyd.socket
step back.ps policyctl ps
step back.policies policyctl get policies -o name
step back.kill policyctl kill "$(policyctl ps -o name | head -n 1 | sed 's,.*/,,')"

echo mine >/etc/policyd/mine
step purge dpkg -P policyd
step purge.left sh -c 'ls -d /var/lib/policyd /run/policyd /usr/bin/policy* /usr/lib/systemd/system/policyd* /usr/share/policyd /etc/systemd/system/*/policyd* /etc/systemd/system/policyd* 2>/dev/null; ls /etc/policyd'
step purge.group getent group policyd
step failed systemctl --failed --no-legend
`

// TestPackage is the life of the Debian package on one machine: installed, upgraded under a sandbox, removed, back, purged.
func TestPackage(t *testing.T) {
	testkernel.RequireTool(t, "dpkg-deb", "apt-get install dpkg")
	testkernel.RequireTool(t, "deb-systemd-helper", "apt-get install init-system-helpers")
	testkernel.RequireSystemd(t, testkernel.UML73)
	testkernel.RequireRoot(t)
	packages := t.TempDir()
	for name, version := range map[string]string{"old": "v1.0.0-rc.1", "new": "v1.0.0"} {
		made, err := filepath.Glob(filepath.Join(buildPackages(t, version, "deb"), "policyd_*.deb"))
		if err != nil || len(made) != 1 {
			t.Fatalf("packages made: %v, %v", made, err)
		}
		if err := os.Rename(made[0], filepath.Join(packages, name+".deb")); err != nil {
			t.Fatal(err)
		}
	}
	s := bareMachine()
	s.MemoryMiB = 1024 // /usr has the layer of two packages in memory
	s.Folders = map[string]string{"/opt/packages": packages}
	s.Files["/opt/sleep.yaml"] = sleepPolicy
	for path, text := range dpkgStatus() {
		s.Files[path] = text
	}
	begun := time.Now()
	b := boot(t, s, nil, testkernel.Script{Text: packageScript})
	t.Logf("%v", time.Since(begun))

	b.step("install", 0)
	b.prints("socket", "active enabled ")
	b.prints("smack", "enabled\n")
	b.step("service.before", 0, "inactive")
	b.step("group", 0, "policyd:x:")
	b.prints("folders", "/var/lib/policyd 700 root:root\n/run/policyd 755 root:root\n/run/policyd/policyd.sock 660 root:policyd\n"+
		"/etc/policyd/policyd.yaml 644 root:root\n/usr/bin/policyd-launch 755 root:root\n")
	b.step("catalog", 0, "policyd")
	b.step("call", 0, "landlock     available")
	b.step("service.after", 0, "active")
	b.step("apply", 0)
	b.step("run", 0)
	sleeper := b.Steps["sleeper.before"].Stdout
	if strings.TrimSpace(sleeper) == "" {
		t.Error("the sandbox does not run")
	}

	b.step("upgrade", 0)
	b.prints("upgrade.version", "1.0.0-1")
	b.step("upgrade.service", 0, "active")
	b.prints("upgrade.socket", "active enabled ")
	b.step("upgrade.pid", 0)
	b.prints("upgrade.sleeper", sleeper)
	b.step("upgrade.ps", 0, "sleep", "running")
	b.step("upgrade.policies", 0, "sleep")
	b.prints("upgrade.config", "# changed by hand\n")
	b.step("again", 0)
	b.step("disabled", 0)
	b.step("disabled.smack", 1, "disabled")

	b.step("remove", 0, "will not start while policyd is not installed", "/etc/systemd/system/web.service.d/50-policyd.conf")
	b.step("remove.units", 3)
	b.step("remove.program", 1)
	b.step("remove.store", 0)
	b.prints("remove.config", "# changed by hand\n")
	b.prints("remove.sleeper", sleeper)
	b.step("back", 0)
	b.step("back.socket", 0, "active")
	b.step("back.ps", 0, "sleep", "running")
	b.step("back.policies", 0, "sleep")
	b.step("back.kill", 0)

	b.step("purge", 0)
	b.prints("purge.left", "mine\n")
	b.step("purge.group", 0, "policyd:x:")
	b.prints("failed", "")
	for _, name := range []string{"install", "upgrade", "again", "back", "purge"} {
		// What dpkg, systemctl and the scripts complain of goes to stderr.
		for line := range strings.Lines(b.Steps[name].Stderr) {
			if !allowedComplaint.MatchString(line) {
				t.Errorf("step %s complains: %s", name, line)
			}
		}
	}
}

// allowedComplaint is that folders with files of others stay, which user was made, and what the removal tells of attached units.
var allowedComplaint = regexp.MustCompile(`directory '/[a-z0-9/._-]*' not empty|^Creating (group|user) 'policyd' |^policyd: `)

// TestPackagesAreReproducible: the same commit gives the same bytes, in another folder and at another time.
func TestPackagesAreReproducible(t *testing.T) {
	if testing.Short() {
		t.Skip("makes each package twice")
	}
	first, second := buildPackages(t, "v1.2.3", "deb", "rpm", "tarball"), buildPackages(t, "v1.2.3", "deb", "rpm", "tarball")
	sums, err := os.ReadFile(filepath.Join(first, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	again, err := os.ReadFile(filepath.Join(second, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(sums, again) || bytes.Count(sums, []byte("\n")) != 3 {
		t.Errorf("sums\n%s\nand of the same again\n%s", sums, again)
	}
	check := exec.Command("sha256sum", "--check", "--quiet", "SHA256SUMS")
	check.Dir = first
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
