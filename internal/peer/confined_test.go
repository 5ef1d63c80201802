package peer

import (
	"net"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A process with no_new_privs may be in a Landlock domain: it and all it starts are told from others.
func TestConfinedPeer(t *testing.T) {
	if own, _ := noNewPrivs(os.Getpid()); own {
		t.Log("this process has no_new_privs itself: its children are told by their place")
	}
	for _, tc := range []struct {
		name     string
		env      []string
		confined bool
	}{
		{"no_new_privs", []string{"PEER_TEST_NO_NEW_PRIVS=1"}, true},
		{"grandchild", []string{"PEER_TEST_NO_NEW_PRIVS=1", "PEER_TEST_GRANDCHILD=1"}, true},
		{"free", nil, ownNoNewPrivs()}, // a child of this policyd then
	} {
		t.Run(tc.name, func(t *testing.T) {
			l, path := listen(t)
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), append(tc.env, "PEER_TEST_CONNECT="+path)...)
			cmd.Stderr = os.Stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			raw, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			c, id := handshake(t, raw)
			if got := id.Confined != ""; got != tc.confined {
				t.Errorf("confined: %q, want %v", id.Confined, tc.confined)
			}
			c.Close()
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A process that has gone cannot be told, and its connection may be anybody's by now.
func TestConfinedPeerGone(t *testing.T) {
	l, path := listen(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "PEER_TEST_CONNECT="+path, "PEER_TEST_LEAVE=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	raw, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c, id := handshake(t, raw)
	defer c.Close()
	if id.Confined != reasonUnknown {
		t.Errorf("confined: %q, want %q", id.Confined, reasonUnknown)
	}
}

func TestOwnProcessIsNotConfined(t *testing.T) {
	l, path := listen(t)
	client, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	raw, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c, id := handshake(t, raw)
	defer c.Close()
	if id.Confined != "" {
		t.Errorf("confined: %q", id.Confined)
	}
}

// prepareClient makes the process what the environment says, before it connects.
func prepareClient() error {
	if os.Getenv("PEER_TEST_NO_NEW_PRIVS") != "" {
		os.Unsetenv("PEER_TEST_NO_NEW_PRIVS")
		// The flag is a thread's; the thread that executes is the whole process afterwards.
		runtime.LockOSThread()
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return err
		}
		return syscall.Exec("/proc/self/exe", os.Args, os.Environ())
	}
	if os.Getenv("PEER_TEST_GRANDCHILD") != "" {
		os.Unsetenv("PEER_TEST_GRANDCHILD")
		cmd := exec.Command(os.Args[0])
		cmd.Stderr = os.Stderr
		if err := cmd.Run(); err != nil {
			return err
		}
		os.Exit(0)
	}
	return nil
}
