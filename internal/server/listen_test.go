package server

import (
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/internal/testkernel"
)

func TestListenUnixModes(t *testing.T) {
	for _, umask := range []int{0, 0o022, 0o777} {
		for _, mode := range []fs.FileMode{0o600, 0o660, 0o666} {
			path := filepath.Join(openDir(t), "s")
			old := unix.Umask(umask)
			l, err := ListenUnix(path, mode, -1)
			now := unix.Umask(old)
			if err != nil {
				t.Fatal(err)
			}
			if now != umask {
				t.Errorf("umask is left at %o, not %o", now, umask)
			}
			info, err := os.Lstat(path)
			if err != nil || info.Mode().Perm() != mode || info.Mode().Type() != fs.ModeSocket {
				t.Errorf("umask %o: %v, %v; want %v", umask, info.Mode(), err, mode)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			if _, err := os.Lstat(path); err == nil {
				t.Error("socket is left after Close")
			}
		}
	}
}

// There is no moment in which more than the owner could connect: the name appears like that, whatever the umask.
func TestSocketAppearsClosed(t *testing.T) {
	old := unix.Umask(0)
	defer unix.Umask(old)
	path := filepath.Join(openDir(t), "s")
	l, err := bindForOwner(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if info, err := os.Lstat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("after bind: %v, %v", info.Mode(), err)
	}
}

func TestListenUnixGroup(t *testing.T) {
	testkernel.RequireRoot(t)
	path := filepath.Join(openDir(t), "s")
	l, err := ListenUnix(path, 0o660, 4321)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil || st.Gid != 4321 || st.Mode&0o777 != 0o660 {
		t.Errorf("gid %d mode %o, %v", st.Gid, st.Mode, err)
	}
}

func TestListenUnixStaleAndLive(t *testing.T) {
	path := filepath.Join(openDir(t), "s")
	// A daemon that died left its socket and its lock's file.
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	if err := os.WriteFile(path+".lock", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := ListenUnix(path, 0o600, -1)
	if err != nil {
		t.Fatalf("stale socket: %v", err)
	}
	if _, err := ListenUnix(path, 0o600, -1); err == nil || !strings.Contains(err.Error(), "another policyd is listening") {
		t.Errorf("live policyd: %v", err)
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatalf("the live one does not listen any more: %v", err)
	}
	c.Close()
	l.Close()

	foreign, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer foreign.Close()
	if _, err := ListenUnix(path, 0o600, -1); err == nil || !strings.Contains(err.Error(), "another program is listening") {
		t.Errorf("live stranger: %v", err)
	}
}

func TestListenUnixRefuses(t *testing.T) {
	dir := openDir(t)
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	open := filepath.Join(dir, "open")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	live, err := net.Listen("unix", filepath.Join(dir, "live"))
	if err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	links := map[string]string{}
	for name, to := range map[string]string{"dangling": "nowhere", "to-live": "live", "to-file": "file", "loop": "loop"} {
		links[name] = filepath.Join(dir, name)
		if err := os.Symlink(to, links[name]); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{
		links["dangling"]:              "a symbolic link has this name",
		links["to-live"]:               "a symbolic link has this name",
		links["to-file"]:               "a symbolic link has this name",
		links["loop"]:                  "a symbolic link has this name",
		"":                             "abstract",
		"@policyd":                     "abstract",
		"\x00policyd":                  "abstract",
		"policyd.sock":                 "not an absolute path",
		"/tmp/\x00":                    "NUL",
		file:                           "not a socket",
		filepath.Join(open, "s"):       "could replace the socket",
		filepath.Join(file, "s"):       "not a directory",
		"/" + strings.Repeat("x", 107): "has 108 bytes; the kernel takes 107",
	} {
		l, err := ListenUnix(path, 0o600, -1)
		if err == nil {
			l.Close()
			t.Errorf("%q was taken", path)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", path, err, want)
		}
	}
	if _, err := os.Lstat(file); err != nil {
		t.Error("a file of that name was removed")
	}
	for name, path := range links {
		if _, err := os.Readlink(path); err != nil {
			t.Errorf("the link %s was removed: %v", name, err)
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, "nowhere")); err == nil {
		t.Error("a socket was made behind a link")
	}
}

// stored is a descriptor that reads as text.
type stored string

func (s stored) File() (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer w.Close()
	_, err = w.WriteString(string(s))
	return r, err
}

const activationEnv = "SERVER_TEST_ACTIVATION"

// activatedMain is the process a service manager started: it says what it got.
func activatedMain() int {
	os.Setenv("LISTEN_PID", fmt.Sprint(os.Getpid()))
	in, err := TakeInherited("stored.")
	if err != nil {
		fmt.Println("error:", err)
		return 0
	}
	for _, name := range sortedKeys(in.Stored) {
		text, err := io.ReadAll(in.Stored[name])
		fmt.Println(name, string(text), err)
	}
	for fd := 3; fd < 6; fd++ {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			fmt.Println("error: children inherit", fd)
		}
	}
	listeners, err := in.Listeners(os.Getenv(activationEnv) == "tcp")
	if err != nil {
		fmt.Println("error:", err)
		return 0
	}
	for _, l := range listeners {
		fmt.Println(l.Addr().Network(), l.Addr())
	}
	if os.Getenv("LISTEN_FDS") != "" {
		fmt.Println("error: LISTEN_FDS is still there")
	}
	return 0
}

func TestActivation(t *testing.T) {
	path := filepath.Join(openDir(t), "s")
	unixL, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer unixL.Close()
	abstract, err := net.ListenUnix("unix", &net.UnixAddr{Name: "@policyd-test-" + t.Name() + fmt.Sprint(os.Getpid()), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer abstract.Close()
	tcp, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	type filer interface{ File() (*os.File, error) }
	for _, tc := range []struct {
		kind  string
		fds   string
		names string
		l     []filer
		want  string
	}{
		{"unix", "1", "policyd.socket", []filer{unixL}, "unix " + path},
		{"unix", "1", "", []filer{abstract}, "abstract"},
		{"unix", "1", "", []filer{tcp}, "no tcp section"},
		{"tcp", "2", "a:b", []filer{unixL, tcp}, "tcp 127.0.0.1"},
		{"unix", "many", "", []filer{unixL}, "LISTEN_FDS"},
		{"unix", "70000", "", []filer{unixL}, "LISTEN_FDS"},
		{"unix", "20", "", []filer{unixL}, "20 sockets"},
		{"unix", "0", "", nil, ""},
		// What comes from the store is no socket, wherever it stands and however many there are.
		{"unix", "3", "stored.a:policyd.socket:stored.b", []filer{stored("first"), unixL, stored("second")}, "stored.a first <nil>\nstored.b second <nil>\nunix " + path},
		{"unix", "3", "stored.a:stored.a:policyd.socket", []filer{stored("first"), stored("second"), unixL}, "stored.a second <nil>\nunix " + path},
		{"unix", "1", "stored.a", []filer{unixL}, "stored.a "},
	} {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), activationEnv+"="+tc.kind, "LISTEN_FDS="+tc.fds, "LISTEN_FDNAMES="+tc.names)
		for _, l := range tc.l {
			f, err := l.File()
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			cmd.ExtraFiles = append(cmd.ExtraFiles, f)
		}
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), tc.want) || tc.want == "" && len(out) > 0 {
			t.Errorf("%s: %q, %v; want %q", tc.kind, out, err, tc.want)
		}
	}
	// What was meant for another process is not taken.
	t.Setenv("LISTEN_PID", "1")
	t.Setenv("LISTEN_FDS", "1")
	in, err := TakeInherited("stored.")
	if err != nil {
		t.Fatal(err)
	}
	if l, err := in.Listeners(false); len(l) > 0 || len(in.Stored) > 0 || err != nil {
		t.Errorf("took another process's sockets: %v, %v", l, err)
	}
}
