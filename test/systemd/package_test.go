package systemd_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"policyd.dev/policyd/internal/testkernel"
)

// buildPackages makes packages of programs, of kinds of build.sh, and returns their folder.
func buildPackages(t *testing.T, programs, version, compression string, kinds ...string) string {
	t.Helper()
	out := t.TempDir()
	cmd := exec.Command("bash", append([]string{filepath.Join(root, "deploy/package/build.sh")}, kinds...)...)
	cmd.Env = append(os.Environ(), "VERSION="+version, "OUT="+out, "PROGRAMS="+programs, "TOOLS="+binDir, "COMPRESSION="+compression, "SOURCE_DATE_EPOCH=1700000000")
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

# Installed once more, and what an administrator disabled stays so.
systemctl disable -q policyd-smack.service 2>/dev/null
step again dpkg --force-unsafe-io -i /opt/packages/new.deb
step disabled.smack systemctl is-enabled policyd-smack.service

mkdir -p /etc/systemd/system/web.service.d
printf '[Service]\nExecStart=\nExecStart=/usr/bin/policyd-launch unit --unit web.service -- /bin/true\n' >/etc/systemd/system/web.service.d/zz-policyd.conf
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
mkdir -p /var/lib/policyd-units /run/policyd-units/history
step purge dpkg -P policyd
step purge.left sh -c 'ls -d /var/lib/policyd* /run/policyd* /usr/bin/policy* /usr/lib/systemd/system/policyd* /usr/share/policyd /etc/systemd/system/*/policyd* /etc/systemd/system/policyd* 2>/dev/null; ls /etc/policyd'
step purge.group getent group policyd
step failed systemctl --failed --no-legend
`

// TestPackage is the life of the Debian package on one machine: installed, upgraded under a sandbox, removed, back, purged.
func TestPackage(t *testing.T) {
	inFull(t)
	testkernel.RequireTool(t, "dpkg-deb", "apt-get install dpkg")
	testkernel.RequireTool(t, "deb-systemd-helper", "apt-get install init-system-helpers")
	testkernel.RequireSystemd(t, testkernel.UML73)
	testkernel.RequireRoot(t)
	packages, programs := t.TempDir(), somePrograms(t, "policyd", "policyctl")
	for name, version := range map[string]string{"old": "v1.0.0-rc.1", "new": "v1.0.0"} {
		made := glob(t, buildPackages(t, programs, version, "none", "deb"), "policyd_*.deb")
		if err := os.Rename(made, filepath.Join(packages, name+".deb")); err != nil {
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
	b.step("disabled.smack", 1, "disabled")

	b.step("remove", 0, "will not start while policyd is not installed", "/etc/systemd/system/web.service.d/zz-policyd.conf")
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
var allowedComplaint = regexp.MustCompile(`directory '/[a-z0-9/._-]*' not empty|^Created symlink /etc/systemd/system/|^Creating (group|user) 'policyd' |^policyd: `)

// TestPackageFiles holds what the packages consist of: the same bytes for the same commit, nothing that lintian calls an
// error, and a file for whoever looks for one.
func TestPackageFiles(t *testing.T) {
	inFull(t)
	small := somePrograms(t)
	made := buildPackages(t, small, "v1.2.3", "gzip", "deb", "rpm", "tarball")
	sums, err := os.ReadFile(filepath.Join(made, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	check := exec.Command("sha256sum", "--check", "--quiet", "SHA256SUMS")
	check.Dir = made
	if out, err := check.CombinedOutput(); err != nil || bytes.Count(sums, []byte("\n")) != 3 {
		t.Errorf("%v\n%s%s", err, out, sums)
	}
	t.Run("reproducible", func(t *testing.T) {
		again, err := os.ReadFile(filepath.Join(buildPackages(t, small, "v1.2.3", "gzip", "deb", "rpm", "tarball"), "SHA256SUMS"))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(sums, again) {
			t.Errorf("sums\n%s\nand of the same again\n%s", sums, again)
		}
	})
	deb, rpm, archive := filepath.Join(made, "policyd_1.2.3-1_"+debArch(t)+".deb"), glob(t, made, "*.rpm"), glob(t, made, "*.tar.gz")
	for _, c := range []struct {
		name   string
		prefix string // of what the command prints
		list   []string
	}{
		{"deb", "./", []string{"sh", "-c", "dpkg-deb --fsys-tarfile " + deb + " | tar t"}},
		{"rpm", "/", []string{testkernel.RequireTool(t, "rpm", "apt-get install rpm"), "-qpl", rpm}},
		{"tarball", "policyd-1.2.3-linux-" + runtime.GOARCH + "/", []string{"tar", "tzf", archive}},
	} {
		out, err := exec.Command(c.list[0], c.list[1:]...).Output()
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		has := map[string]bool{}
		for line := range strings.Lines(string(out)) {
			has[strings.TrimPrefix(strings.TrimSuffix(strings.TrimSpace(line), "/"), c.prefix)] = true
		}
		for _, want := range strings.Fields(`usr/bin/policyd usr/bin/policyctl usr/bin/policyd-launch usr/bin/policyd-runc usr/bin/policyd-nri
			usr/lib/systemd/system/policyd.socket usr/lib/systemd/system/policyd.service usr/lib/systemd/system/policyd-smack.service
			usr/lib/systemd/user/policyd.socket usr/lib/systemd/user/policyd.service usr/lib/systemd/catalog/policyd.catalog
			usr/lib/sysusers.d/policyd.conf usr/lib/tmpfiles.d/policyd.conf etc/policyd/policyd.yaml etc/policyd/runc.yaml
			usr/share/bash-completion/completions/policyctl usr/share/fish/vendor_completions.d/policyctl.fish
			usr/share/man/man1/policyctl.1.gz usr/share/man/man1/policyctl-apply.1.gz usr/share/man/man5/policyd.yaml.5.gz
			usr/share/man/man8/policyd.8.gz usr/share/man/man8/policyd-launch.8.gz usr/share/man/man8/policyd-runc.8.gz usr/share/man/man8/policyd-nri.8.gz
			usr/share/policyd/prometheus/policyd.rules.yml usr/share/policyd/grafana/policyd.json
			usr/share/doc/policyd/README.md usr/share/doc/policyd/docs/runbook.md usr/share/doc/policyd/third-party-licenses`) {
			if !has[want] {
				t.Errorf("%s lacks %s", c.name, want)
			}
		}
	}
	t.Run("archive", func(t *testing.T) { installArchive(t, archive) })
	conffiles, err := exec.Command("dpkg-deb", "-I", deb, "conffiles").Output()
	if err != nil || !strings.Contains(string(conffiles), "/etc/policyd/policyd.yaml\n") || !strings.Contains(string(conffiles), "/etc/policyd/runc.yaml\n") {
		t.Errorf("conffiles: %s (%v)", conffiles, err)
	}
	if out, err := exec.Command("rpm", "-K", "--nosignature", rpm).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	// Run as root it only says that it would rather not be.
	lint, err := exec.Command(testkernel.RequireTool(t, "lintian", "apt-get install lintian"), "--allow-root", "--fail-on", "error,warning", deb).CombinedOutput()
	if err != nil {
		t.Errorf("lintian: %v\n%s", err, lint)
	}
}

// installArchive installs an archive into a folder twice: what was configured in between stays.
func installArchive(t *testing.T, archive string) {
	dir, image := t.TempDir(), t.TempDir()
	install := func() {
		t.Helper()
		script := "umask 077 && tar xzf '" + archive + "' -C '" + dir + "' && '" + dir + "'/*/install.sh '" + image + "'"
		if out, err := exec.Command("sh", "-c", script).CombinedOutput(); err != nil || len(out) > 0 {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	install()
	config := filepath.Join(image, "etc/policyd/policyd.yaml")
	if err := os.WriteFile(config, []byte("# mine\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	install()
	if b, err := os.ReadFile(config); err != nil || string(b) != "# mine\n" {
		t.Errorf("the configuration was changed: %q, %v", b, err)
	}
	for path, mode := range map[string]os.FileMode{"usr/bin/policyd": 0o755, "usr/lib/systemd/system/policyd.service": 0o644, "etc/policyd/runc.yaml": 0o644} {
		if info, err := os.Stat(filepath.Join(image, path)); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
}

// somePrograms is a folder like [binDir] in which the smallest program stands for all but these: that saves compressing and
// unpacking them.
func somePrograms(t *testing.T, real ...string) string {
	t.Helper()
	dir := t.TempDir()
	programs, err := os.ReadDir(binDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range programs {
		from := p.Name()
		if !slices.Contains(real, from) {
			from = "policyd-launch"
		}
		if err := os.Link(filepath.Join(binDir, from), filepath.Join(dir, p.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// glob gives the one file of a pattern.
func glob(t *testing.T, dir, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %v, %v", pattern, found, err)
	}
	return found[0]
}

func debArch(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("dpkg", "--print-architecture").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}
