package containers

import "testing"

// podman has a storage of its own, and no network. The ulimits are those a machine without CAP_SYS_RESOURCE may have.
type podman struct {
	*machine
	program []string
}

func TestPodman(t *testing.T) {
	testEngine(t, map[string]string{"podman": "podman", "conmon": "conmon"}, func(m *machine, runc string) engine {
		at := m.dir + "/podman"
		return &podman{m, []string{
			"podman", "--runtime", m.wrapper(runc, "policyd", ""), "--cgroup-manager=cgroupfs", "--storage-driver=vfs", "--events-backend=none",
			"--root", at + "/root", "--runroot", at + "/run", "--tmpdir", at + "/tmp",
		}}
	})
}

func (p *podman) args(more ...string) []string {
	return append(append([]string{}, p.program...), more...)
}

func (p *podman) create(b box, more ...string) []string {
	args := p.args("run", "--name", b.name, "--network=none", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024",
		"-v", p.dir+"/volume:/volume", "-v", p.dir+"/private:/private")
	if b.policy != "" {
		args = append(args, "--annotation", "policyd.dev/profile="+b.policy)
	}
	args = append(append(args, more...), "--rootfs", p.dir+"/rootfs:O")
	return append(args, b.argv...)
}

func (p *podman) run(b box) (code int, out, errOut string) {
	p.t.Helper()
	return p.machine.run(p.create(b, "--rm")...)
}

func (p *podman) start(b box) { p.t.Helper(); p.must(p.create(b, "-d")...) }

func (p *podman) exec(name string, argv ...string) (code int, out, errOut string) {
	p.t.Helper()
	return p.machine.run(append(p.args("exec", name), argv...)...)
}

func (p *podman) restart(name string) { p.t.Helper(); p.must(p.args("restart", "-t", "0", name)...) }

func (p *podman) remove(name string) { p.t.Helper(); p.must(p.args("rm", "-f", "-t", "0", name)...) }
