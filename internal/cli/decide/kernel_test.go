package decide

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/testkernel"
)

// confined runs functions on a thread under a profile, one after the other.
type confined struct {
	work chan func()
	done chan error
}

// confine starts the thread; end throws it away.
func confine(p *profile.Profile, sup landlock.Support) (*confined, error) {
	rs, err := landlock.Build(p, sup)
	if err != nil {
		return nil, err
	}
	defer rs.Release()
	c := &confined{make(chan func()), make(chan error)}
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		c.done <- rs.RestrictThread()
		for f := range c.work {
			f()
			c.done <- nil
		}
	}()
	return c, <-c.done
}

func (c *confined) do(f func() error) (err error) {
	c.work <- func() { err = f() }
	<-c.done
	return err
}

func (c *confined) end() { close(c.work) }

// scene is a tree to ask about, with every kind of file.
type scene struct {
	dir    string
	bound  bool // bound is a mount of other, mounted a file system of its own
	places []string
	listen *net.UnixListener
}

func newScene(t *testing.T) *scene {
	t.Helper()
	s := &scene{dir: tree(t)}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Mkdir(s.dir+"/bound", 0o755))
	must(os.Mkdir(s.dir+"/mounted", 0o755))
	must(syscall.Mkfifo(s.dir+"/other/fifo", 0o644))
	for _, m := range [][3]string{{s.dir + "/other", "bound", ""}, {"none", "mounted", "tmpfs"}} {
		flags := uintptr(0)
		if m[2] == "" {
			flags = unix.MS_BIND
		}
		at := s.dir + "/" + m[1]
		if os.Getuid() == 0 && unix.Mount(m[0], at, m[2], flags, "") == nil {
			s.bound = true
			t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
		}
	}
	must(os.MkdirAll(s.dir+"/mounted/in/deep", 0o755))
	must(os.WriteFile(s.dir+"/mounted/in/file", nil, 0o644))
	s.places = strings.Fields("/ DIR DIR/data DIR/data/deep DIR/data/deep/file DIR/data/link DIR/alias DIR/other DIR/other/secret DIR/other/hard DIR/other/fifo DIR/other/sock DIR/bound DIR/mounted DIR/mounted/in DIR/mounted/in/deep DIR/mounted/in/file DIR/none")
	for i := range s.places {
		s.places[i] = strings.Replace(s.places[i], "DIR", s.dir, 1)
	}
	// A socket's name has 107 bytes at most: bound by a short way to the folder.
	other, err := unix.Open(s.dir+"/other", unix.O_PATH|unix.O_CLOEXEC, 0)
	must(err)
	defer unix.Close(other)
	s.listen, err = net.ListenUnix("unix", &net.UnixAddr{Name: fmt.Sprintf("/proc/self/fd/%d/sock", other), Net: "unix"})
	must(err)
	s.listen.SetUnlinkOnClose(false)
	t.Cleanup(func() { s.listen.Close() })
	return s
}

// lines are questions about the tree.
func (s *scene) lines() []string {
	text := `
open DIR/data/deep/file r|open DIR/data/deep/file rw|open DIR/data/deep/file wt|open DIR/data/link r|open DIR/data/link w
open DIR/other/secret r|open DIR/other/hard w|open DIR/other/secret rt|open DIR/alias/deep/file r|open DIR/data/deep/../../other/hard r
open DIR r|open DIR/data rd|open DIR/alias r|open DIR/data/new rc|open DIR/data/new wct|open DIR/data/dangling wc|open DIR/data/dangling r
open DIR/other/fifo r|open DIR/other/sock r|open DIR/bound/secret r|open DIR/bound/hard w|open DIR/mounted/in/file r|open DIR/mounted/in/new wc
open DIR/data p|open DIR/other/secret rd|open DIR/data/none r|open DIR/data w|open DIR/data rt
truncate DIR/data/deep/file|truncate DIR/data/link|truncate DIR/bound/secret|truncate DIR/data|truncate DIR/other/fifo
mkdir DIR/data/new|mkdir DIR/other/new|mkdir DIR/bound/new|mkdir DIR/data/link|mkdir DIR/none/new|mkdir DIR/mounted/in/deep/new
mknod DIR/data/new reg|mknod DIR/other/new fifo|mknod DIR/data/new sock|mknod DIR/mounted/new reg|mknod DIR/data/dangling reg
symlink DIR/data/new|symlink DIR/bound/new|symlink DIR/data/deep/new
unlink DIR/data/deep/file|unlink DIR/data/link|unlink DIR/other/hard|unlink DIR/bound/secret|unlink DIR/data/deep|unlink DIR/none
rmdir DIR/mounted/in/deep|rmdir DIR/data/interp|rmdir DIR/data/deep
rename DIR/data/deep/file DIR/data/deep/new|rename DIR/data/deep/file DIR/data/new|rename DIR/data/deep DIR/other/new|rename DIR/other/secret DIR/data/new
rename DIR/data/link DIR/other/new|rename DIR/other/fifo DIR/data/deep/file|rename DIR/alias DIR/data/new|rename DIR/bound/secret DIR/bound/new
rename DIR/bound/secret DIR/data/new|rename DIR/mounted/in/file DIR/mounted/new|rename DIR/mounted/in/deep DIR/mounted/new|rename DIR/data/deep DIR/other/secret
rename DIR/mounted/in/file DIR/mounted/in/deep/new|rename DIR/other/secret DIR/other/hard|rename DIR/none DIR/data/new
exchange DIR/data/deep/file DIR/other/hard|exchange DIR/data/deep DIR/other/secret|exchange DIR/data/link DIR/alias|exchange DIR/mounted/in/deep DIR/mounted/in/file
exchange DIR/data/interp DIR/data/none|exchange DIR/data DIR/data/deep/file|exchange DIR/data/deep/file DIR/data
rename DIR/data DIR/data/new|rename DIR/data DIR/data/deep/file|rename DIR/data/deep/file DIR/data|rename DIR/mounted/in/deep DIR/mounted/in
link DIR/data/deep/file DIR/mounted/in/file
link DIR/data/deep/file DIR/data/deep/new|link DIR/data/deep/file DIR/other/new|link DIR/other/secret DIR/data/new|link DIR/data/link DIR/data/new
link DIR/mounted/in/file DIR/mounted/new|link DIR/data/deep DIR/data/new|link DIR/data/interp DIR/bound/new
rmdir DIR/alias/|rmdir DIR/data/interp/|rmdir DIR/data/.|rmdir DIR/data/deep/..|rmdir DIR/mounted/in/deep//|rmdir DIR/data/link/|rmdir /
unlink DIR/data/deep/file/|unlink DIR/alias/|unlink DIR/data/deep/|unlink DIR/data/.|mkdir DIR/data/new/|mkdir DIR/data/dangling/|mkdir DIR/data/.|mkdir DIR/none/..
mknod DIR/data/new/ reg|mknod DIR/data/deep/ fifo|symlink DIR/data/new/|link DIR/data/interp DIR/data/new/|link DIR/alias/ DIR/data/new|link DIR/data/link/ DIR/data/new
open DIR/data/new/ wc|open DIR/data/. rc|open DIR/data/dangling/ wc|open DIR/alias/ r|open DIR/data/interp/ r|open DIR/data/deep/file/.. r|truncate DIR/data/interp/
rename DIR/alias/ DIR/data/new|rename DIR/data/deep DIR/other/secret/|rename DIR/data/deep/ DIR/other/new/|rename DIR/data/interp DIR/data/new/|rename DIR/data/deep DIR/alias/
rename DIR/data/. DIR/other/new|rename DIR/data/deep DIR/other/..|exchange DIR/data/deep/ DIR/other/secret/|exchange DIR/data/deep/ DIR/other/secret|exchange DIR/alias/ DIR/other/secret
ioctl-dev /dev/null|ioctl-dev /dev/null rw|ioctl-dev DIR/data/interp|connect-unix DIR/other/sock|connect-unix DIR/data/interp|connect-unix DIR/bound/sock
stat DIR/other/secret|chmod DIR/other/secret`
	text = strings.ReplaceAll(strings.TrimSpace(text), "\n", "|")
	return strings.Split(strings.ReplaceAll(text, "DIR", s.dir), "|")
}

// perform does what a question asks. It runs confined.
func (s *scene) perform(q Question) error {
	path, to := q.op.Path, q.op.NewPath
	switch q.op.Kind {
	case profile.OpOpen:
		fd, err := unix.Open(path, openFlags(q.op.Open), 0o644)
		if err == nil {
			unix.Close(fd)
		}
		return err
	case profile.OpTruncate:
		return unix.Truncate(path, 1)
	case profile.OpMkdir:
		return unix.Mkdir(path, 0o755)
	case profile.OpMknod:
		return unix.Mknod(path, 0o644|map[profile.FileType]uint32{profile.RegularFile: unix.S_IFREG, profile.Fifo: unix.S_IFIFO, profile.Socket: unix.S_IFSOCK}[q.op.Make], 0)
	case profile.OpSymlink:
		return unix.Symlink("somewhere", path)
	case profile.OpUnlink:
		return unix.Unlink(path)
	case profile.OpRmdir:
		return unix.Rmdir(path)
	case profile.OpRename:
		return unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, to, 0)
	case profile.OpExchange:
		return unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, to, unix.RENAME_EXCHANGE)
	case profile.OpLink:
		return unix.Link(path, to)
	case profile.OpIoctlDev:
		fd, err := unix.Open(path, openFlags(q.op.Open), 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if _, err := unix.IoctlGetTermios(fd, unix.TCGETS); err != unix.ENOTTY {
			return err
		}
		return nil
	case profile.OpConnectUnix:
		return connectUnix(path)
	case profile.OpStat:
		var st unix.Stat_t
		return unix.Stat(path, &st)
	case profile.OpSetAttributes:
		return unix.Chmod(path, 0o644)
	}
	return fmt.Errorf("%s: not to be performed here", q)
}

func openFlags(f profile.OpenFlags) int {
	flags := unix.O_CLOEXEC | unix.O_NONBLOCK
	for flag, bit := range map[profile.OpenFlags]int{
		profile.OpenTruncate: unix.O_TRUNC, profile.OpenCreate: unix.O_CREAT,
		profile.OpenDirectory: unix.O_DIRECTORY, profile.OpenPath: unix.O_PATH,
	} {
		if f&flag != 0 {
			flags |= bit
		}
	}
	switch f & (profile.OpenRead | profile.OpenWrite) {
	case profile.OpenWrite:
		flags |= unix.O_WRONLY
	case profile.OpenRead | profile.OpenWrite:
		flags |= unix.O_RDWR
	}
	return flags
}

// connectUnix goes by a descriptor of the socket, since its path is too long.
func connectUnix(path string) error {
	at, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Connect(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("/proc/thread-self/fd/%d", at)})
}

// undo makes the tree what it was, but for what was removed: that comes back as
// another inode, to which no rule is bound.
func (s *scene) undo(t *testing.T, q Question, made string) {
	t.Helper()
	var err error
	path, to := strings.TrimRight(q.op.Path, "/"), strings.TrimRight(q.op.NewPath, "/")
	switch q.op.Kind {
	case profile.OpOpen, profile.OpMkdir, profile.OpMknod, profile.OpSymlink, profile.OpLink:
		if made != "" {
			err = os.Remove(made)
		}
	case profile.OpUnlink:
		switch {
		case strings.HasSuffix(path, "link"):
			err = os.Symlink(s.dir+"/other/secret", path)
		default:
			err = os.WriteFile(path, nil, 0o644)
		}
	case profile.OpRmdir:
		err = os.Mkdir(path, 0o755)
	case profile.OpRename:
		if same, _ := os.Lstat(path); same == nil { // two names of one file: renaming did nothing
			err = unix.Rename(to, path)
		}
		if to == s.dir+"/data/deep/file" {
			err = errors.Join(err, os.WriteFile(to, nil, 0o644))
		}
	case profile.OpExchange:
		err = unix.Renameat2(unix.AT_FDCWD, to, unix.AT_FDCWD, path, unix.RENAME_EXCHANGE)
	}
	if err != nil {
		t.Fatalf("undo %s: %v", q, err)
	}
}

// rules are random ones, on every kind of place, of 1 to 3 layers.
func (s *scene) rules(rng *rand.Rand, abi int) (layers []profile.Layer, rules []rule) {
	all := profile.Handled(profile.FS, abi)
	for l := range 1 + rng.IntN(3) {
		handled := profile.Access(rng.Uint32()|rng.Uint32()) & all
		if handled == 0 {
			handled = all
		}
		layers = append(layers, layer(fmt.Sprintf("l%d", l), handled, 0))
		for range rng.IntN(6) {
			a := profile.Access(rng.Uint32()|rng.Uint32()) & handled
			if rng.IntN(2) == 0 {
				a = handled
			}
			if a != 0 {
				rules = append(rules, rule{l, s.places[rng.IntN(len(s.places))], a, profile.Skip})
			}
		}
	}
	return layers, rules
}

// What check says of files is what the kernel does: random rules on a tree with
// links of both kinds, bind mounts and mounts, every operation on it; inodes that
// are replaced under the rules; rules on files.
func TestKernelAgrees(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		sup := landlock.Probe()
		const rounds = 40
		const seed = 20261130
		rng := rand.New(rand.NewPCG(seed, 0))
		counts := map[string]int{}
		for round := range rounds {
			s := newScene(t)
			layers, rules := s.rules(rng, sup.ABI)
			p := build(t, layers, rules)
			if len(layers) > 1 && rng.IntN(3) == 0 { // what the kernel gets is one layer
				p.Flatten, p.AcceptReferFlatten, p.AcceptSharedInode = true, true, true
				counts["flattened"]++
			}
			c, err := confine(p, sup)
			if errors.Is(err, errs.ErrInvalid) || errors.Is(err, errs.ErrPathRefused) {
				continue // nothing starts: only rules for directories on files, or a link programs could turn
			}
			if err != nil {
				t.Fatal(err)
			}
			d, err := New(p, nil, Options{ABI: sup.ABI, Errata: sup.Errata})
			if err != nil {
				t.Fatal(err)
			}
			if s.bound {
				counts["with mounts"]++
			}
			lines := s.lines()
			rng.Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
			for _, line := range lines {
				s.compare(t, d, c, line, counts)
			}
			c.end()
			if t.Failed() {
				t.Fatalf("seed %d, round %d, rules %+v of layers %+v", seed, round, rules, layers)
			}
		}
		t.Logf("asked: %v", counts)
		for _, verdict := range []string{"allow ", "deny EACCES", "deny EXDEV", "not_mediated ", "not asked"} {
			if counts[verdict] == 0 {
				t.Errorf("no %q among %v: the rules decide nothing", verdict, counts)
			}
		}
	})
}

// compare has one question answered both ways.
func (s *scene) compare(t *testing.T, d *Decider, c *confined, line string, counts map[string]int) {
	t.Helper()
	q, err := ParseLine(line)
	if err != nil {
		t.Fatal(err)
	}
	place := q.op.Path
	if q.op.NewPath != "" {
		place = q.op.NewPath
	}
	before, unreached := resolve(cmp.Or(strings.TrimRight(place, "/"), "/"), follows(q.op.Kind))
	v, said := d.Explain(q)
	got := c.do(func() error { return s.perform(q) })
	made := ""
	if unreached == nil && !before.exists() {
		if _, err := os.Lstat(before.real); err == nil {
			made = before.real
		}
	}
	defer func() {
		if got == nil || made != "" {
			s.undo(t, q, made)
		}
	}()
	if said != nil {
		counts["not asked"]++
		if errno := syscall.Errno(0); !errors.Is(said, ErrNotAsked) || !errors.As(said, &errno) || !errors.Is(got, errno) {
			t.Errorf("%s: the kernel says %v, no verdict: %v", line, got, said)
		}
		return
	}
	consistent(t, v)
	counts[v.Verdict+" "+v.Errno]++
	noted := func(codes ...string) bool {
		return slices.ContainsFunc(v.Notes, func(n Note) bool { return slices.Contains(codes, n.Code) })
	}
	want := map[string]error{"": nil, "EACCES": syscall.EACCES, "EXDEV": syscall.EXDEV, "EPERM": syscall.EPERM}[v.Errno]
	switch {
	case got == want:
	case noted(noteMissing) && errors.Is(got, syscall.ENOENT), noted(noteExists) && errors.Is(got, syscall.EEXIST):
	case want == nil && noted(noteFileSystem):
	case want == nil && errors.Is(got, syscall.ENXIO): // a named pipe without a reader
	case want == nil && (q.op.Kind == profile.OpRename || q.op.Kind == profile.OpRmdir) && (errors.Is(got, syscall.ENOTDIR) || errors.Is(got, syscall.ENOTEMPTY) || errors.Is(got, syscall.EISDIR)):
	default:
		t.Errorf("%s: the kernel says %v, the verdict is %s %s %v, notes %s", line, got, v.Verdict, v.Errno, v.Layers, codes(v))
	}
	if v.Verdict == Deny && q.op.Kind == profile.OpOpen && (made != "") != noted(noteCreated) {
		t.Errorf("%s: made %q, notes %s", line, made, codes(v))
	}
}
