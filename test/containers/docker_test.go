package containers

import (
	"fmt"
	"strings"
	"testing"
)

// docker is a dockerd of its own. Docker has annotations from version 24 on; here a runtime names the policy.
type docker struct{ *machine }

func TestDocker(t *testing.T) {
	testEngine(t, map[string]string{"dockerd": "docker.io", "docker": "docker.io", "containerd": "containerd", "tar": "tar"}, func(m *machine, runc string) engine {
		d := docker{m}
		at := m.dir + "/docker"
		m.put("docker/.keep", "", 0o600)
		argv := []string{
			"dockerd", "--host", "unix://" + d.host(), "--data-root", at + "/data", "--exec-root", at + "/exec", "--pidfile", at + "/pid",
			"--iptables=false", "--bridge=none", "--storage-driver", "overlay2", "--log-level", "warn",
		}
		for _, policy := range []string{"", "web", "nosuch"} {
			more := ""
			if policy != "" {
				more = "profile: " + policy + "\n"
			}
			argv = append(argv, "--add-runtime", d.runtime(policy)+"="+m.wrapper(runc, d.runtime(policy), more))
		}
		m.daemon(func() error {
			if code, _, errOut := d.docker("version"); code != 0 {
				return fmt.Errorf("docker: %s", errOut)
			}
			return nil
		}, argv...)
		m.must("tar", "-C", m.dir+"/rootfs", "-cf", m.dir+"/image.tar", ".")
		d.do("import", m.dir+"/image.tar", "busybox")
		return d
	})
}

func (d docker) runtime(policy string) string { return strings.TrimRight("policyd-"+policy, "-") }

func (d docker) host() string { return d.dir + "/docker/socket" }

func (d docker) docker(args ...string) (code int, out, errOut string) {
	d.t.Helper()
	return d.machine.run(append([]string{"docker", "--host", "unix://" + d.host()}, args...)...)
}

func (d docker) do(args ...string) {
	d.t.Helper()
	if code, _, errOut := d.docker(args...); code != 0 {
		d.t.Fatalf("docker %q: exit %d, %s", args, code, errOut)
	}
}

func (d docker) create(b box, more ...string) []string {
	args := append([]string{"run"}, more...)
	args = append(args, "--name", b.name, "--network", "none", "--runtime", d.runtime(b.policy), "-v", d.dir+"/volume:/volume", "-v", d.dir+"/private:/private", "busybox")
	return append(args, b.argv...)
}

func (d docker) run(b box) (code int, out, errOut string) {
	d.t.Helper()
	return d.docker(d.create(b, "--rm")...)
}

func (d docker) start(b box) { d.t.Helper(); d.do(d.create(b, "--detach")...) }

func (d docker) exec(name string, argv ...string) (code int, out, errOut string) {
	d.t.Helper()
	return d.docker(append([]string{"exec", name}, argv...)...)
}

func (d docker) restart(name string) { d.t.Helper(); d.do("restart", "--time", "0", name) }

func (d docker) remove(name string) { d.t.Helper(); d.do("rm", "--force", name) }
