package containers

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// containerd is driven by its own ctr, without the CRI.
type containerd struct {
	*machine
	runtime string
	execs   int
}

func TestContainerd(t *testing.T) {
	testEngine(t, map[string]string{"containerd": "containerd", "ctr": "containerd"}, func(m *machine, runc string) engine {
		c := &containerd{machine: m, runtime: m.wrapper(runc, "policyd", "")}
		config := m.put("containerd.toml", fmt.Sprintf(`version = 2
root = "%[1]s/containerd/root"
state = "%[1]s/containerd/state"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
  address = "%[1]s/containerd/socket"
[ttrpc]
  address = "%[1]s/containerd/ttrpc"
`, m.dir), 0o600)
		m.daemon(func() error {
			if code, _, errOut := c.ctr("version"); code != 0 {
				return fmt.Errorf("ctr: %s", errOut)
			}
			return nil
		}, "containerd", "--config", config)
		return c
	})
}

func (c *containerd) ctr(args ...string) (code int, out, errOut string) {
	c.t.Helper()
	return c.machine.run(append([]string{"ctr", "--address", c.dir + "/containerd/socket"}, args...)...)
}

func (c *containerd) do(args ...string) {
	c.t.Helper()
	if code, _, errOut := c.ctr(args...); code != 0 {
		c.t.Fatalf("ctr %q: exit %d, %s", args, code, errOut)
	}
}

// overlay mounts a root for a container over the machine's: ctr takes one as it is.
func (c *containerd) overlay(name string) (dir string) {
	c.t.Helper()
	at := c.dir + "/overlays/" + name
	for _, d := range []string{"upper", "work", "root"} {
		c.put(at[len(c.dir)+1:]+"/"+d+"/.keep", "", 0o644)
	}
	if err := unix.Mount("overlay", at+"/root", "overlay", 0, fmt.Sprintf("lowerdir=%s/rootfs,upperdir=%s/upper,workdir=%s/work", c.dir, at, at)); err != nil {
		c.t.Fatal(err)
	}
	return at + "/root"
}

func (c *containerd) create(b box, more ...string) []string {
	args := append([]string{"run"}, more...)
	args = append(args, "--runc-binary", c.runtime)
	for _, dir := range []string{"volume", "private"} {
		args = append(args, "--mount", "type=bind,src="+c.dir+"/"+dir+",dst=/"+dir+",options=rbind:rw")
	}
	if b.policy != "" {
		args = append(args, "--annotation", "policyd.dev/profile="+b.policy)
	}
	return append(append(args, "--rootfs", c.overlay(b.name), b.name), b.argv...)
}

func (c *containerd) run(b box) (code int, out, errOut string) {
	c.t.Helper()
	return c.ctr(c.create(b, "--rm")...)
}

func (c *containerd) start(b box) { c.t.Helper(); c.do(c.create(b, "--detach")...) }

func (c *containerd) exec(name string, argv ...string) (code int, out, errOut string) {
	c.t.Helper()
	c.execs++
	return c.ctr(append([]string{"task", "exec", "--exec-id", fmt.Sprint("exec-", c.execs), name}, argv...)...)
}

// stop ends a container's task and takes it away.
func (c *containerd) stop(name string) {
	c.t.Helper()
	c.do("task", "kill", "--signal", "KILL", name)
	var errOut string
	for range 500 {
		var code int
		if code, _, errOut = c.ctr("task", "delete", name); code == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	c.t.Fatalf("ctr task delete: %s", errOut)
}

func (c *containerd) restart(name string) {
	c.t.Helper()
	c.stop(name)
	c.do("task", "start", "--detach", name)
}

func (c *containerd) remove(name string) {
	c.t.Helper()
	c.stop(name)
	c.do("container", "delete", name)
}
