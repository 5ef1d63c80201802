package differential_test

import (
	"slices"
	"strings"
	"syscall"

	"policyd.dev/policyd/enforce/profile"
)

// vfs gives the errors of a step that are not Landlock's: the one that comes
// before Landlock is asked, and the one that comes when Landlock lets it
// through (0 for success). The places are those of fs/namei.c, fs/open.c and
// net/unix/af_unix.c.
func (m *model) vfs(s *step) (before, after syscall.Errno) {
	switch s.op.Kind {
	case profile.OpRename, profile.OpExchange:
		return m.vfsRename(s)
	case profile.OpLink:
		return m.vfsLink(s)
	case profile.OpConnectTCP:
		if s.by == "unspec" {
			return 0, 0
		}
		return 0, syscall.ECONNREFUSED
	case profile.OpBindTCP, profile.OpBindUDP, profile.OpConnectUDP, profile.OpSendUDP, profile.OpSignal, profile.OpAbstractUnix:
		return 0, 0
	case profile.OpMount:
		switch s.by {
		case "remount", "pivot":
			return 0, syscall.EINVAL
		case "bound":
			return 0, syscall.ENOENT // its source is looked up after
		}
		return 0, syscall.ENODEV // the file system type is looked up last
	case profile.OpIoctlDev:
		return 0, syscall.ENOTTY
	}
	if strings.HasPrefix(s.op.Path, "/") {
		return 0, 0 // an open of a device
	}
	at := m.look(s.op.Path)
	if at.err != 0 {
		return at.err, 0
	}
	switch s.op.Kind {
	case profile.OpMkdir, profile.OpSymlink:
		if at.node != nil {
			return syscall.EEXIST, 0
		}
		return 0, 0
	case profile.OpMknod:
		return m.vfsMknod(s, at.node)
	}
	if at.node == nil {
		if s.op.Kind == profile.OpOpen && s.op.Open&profile.OpenCreate != 0 && s.op.Open&profile.OpenPath == 0 {
			return 0, 0
		}
		return syscall.ENOENT, 0
	}
	return m.vfsObject(s, &at)
}

// vfsObject is for operations on something that is there.
func (m *model) vfsObject(s *step, at *place) (before, after syscall.Errno) {
	n := at.node
	switch {
	case s.by == "readlink" && n.kind != symlink:
		return 0, syscall.EINVAL
	case s.by == "access" && n.kind == symlink, s.by == "statfs" && n.kind == symlink:
		return syscall.ENOENT, 0
	case (s.by == "chown" || s.by == "utime") && n.kind == symlink:
		return 0, 0 // of the link itself
	case n.kind == symlink:
		switch s.op.Kind {
		case profile.OpExec, profile.OpTruncate, profile.OpConnectUnix, profile.OpSetAttributes:
			return syscall.ENOENT, 0 // links of a scenario lead nowhere
		}
	}
	switch s.op.Kind {
	case profile.OpOpen:
		return vfsOpen(s.op.Open, n)
	case profile.OpExec:
		switch {
		case n.kind != file:
			return syscall.EACCES, 0
		case !n.program:
			return 0, syscall.ENOEXEC
		}
	case profile.OpTruncate:
		switch n.kind {
		case file:
		case dir:
			return syscall.EISDIR, 0
		default:
			return syscall.EINVAL, 0
		}
	case profile.OpUnlink:
		switch {
		case n.kind == dir:
			return 0, syscall.EISDIR
		case m.mountPoint(at.entry):
			return 0, syscall.EBUSY
		}
	case profile.OpRmdir:
		switch {
		case n.kind != dir:
			return 0, syscall.ENOTDIR
		case m.mountPoint(at.entry):
			return 0, syscall.EBUSY
		case len(n.children) > 0:
			return 0, syscall.ENOTEMPTY
		}
	case profile.OpConnectUnix:
		if !n.live {
			return syscall.ECONNREFUSED, 0
		}
	}
	return 0, 0
}

func vfsOpen(flags profile.OpenFlags, n *node) (before, after syscall.Errno) {
	has := func(f profile.OpenFlags) bool { return flags&f != 0 }
	if has(profile.OpenDirectory) && n.kind != dir {
		return syscall.ENOTDIR, 0
	}
	if has(profile.OpenPath) {
		return 0, 0
	}
	switch n.kind {
	case dir:
		if has(profile.OpenCreate | profile.OpenWrite | profile.OpenTruncate) {
			return syscall.EISDIR, 0
		}
	case symlink:
		return syscall.ELOOP, 0 // opened with O_NOFOLLOW
	case sock, whiteout:
		return 0, syscall.ENXIO
	case fifo:
		if has(profile.OpenWrite) && !has(profile.OpenRead) {
			return 0, syscall.ENXIO // O_NONBLOCK and nobody reads
		}
	}
	return 0, 0
}

func (m *model) vfsMknod(s *step, n *node) (before, after syscall.Errno) {
	switch {
	case n != nil && s.bind:
		return syscall.EADDRINUSE, 0
	case n != nil:
		return syscall.EEXIST, 0
	case (s.kind == char || s.kind == block) && !m.mayMknod:
		return 0, syscall.EPERM
	}
	return 0, 0
}

func (m *model) vfsRename(s *step) (before, after syscall.Errno) {
	exchange := s.op.Kind == profile.OpExchange
	from, to := m.look(s.op.Path), m.look(s.op.NewPath)
	switch {
	case from.parent != nil && to.parent != nil && from.mount != to.mount:
		return syscall.EXDEV, 0
	case from.err != 0:
		return from.err, 0
	case to.err != 0:
		return to.err, 0
	case from.node == nil, exchange && to.node == nil:
		return syscall.ENOENT, 0
	case s.by == "noreplace" && to.node != nil:
		return syscall.EEXIST, 0
	case slices.Contains(m.ancestors(to.parent), from.node):
		return syscall.EINVAL, 0
	case to.node != nil && slices.Contains(m.ancestors(from.parent), to.node) && exchange:
		return syscall.EINVAL, 0
	case to.node != nil && slices.Contains(m.ancestors(from.parent), to.node):
		return syscall.ENOTEMPTY, 0
	case from.node == to.node || to.node == nil && !m.mountPoint(from.entry):
		return 0, 0
	}
	if !exchange && to.node != nil {
		switch {
		case from.node.kind == dir && to.node.kind != dir:
			return 0, syscall.ENOTDIR
		case from.node.kind != dir && to.node.kind == dir:
			return 0, syscall.EISDIR
		}
	}
	switch {
	case m.mountPoint(from.entry), to.entry != nil && m.mountPoint(to.entry):
		return 0, syscall.EBUSY
	case !exchange && len(to.node.children) > 0:
		return 0, syscall.ENOTEMPTY
	}
	return 0, 0
}

func (m *model) vfsLink(s *step) (before, after syscall.Errno) {
	from := m.look(s.op.Path)
	if from.err == 0 && from.node == nil {
		from.err = syscall.ENOENT
	}
	if from.err != 0 {
		return from.err, 0
	}
	to := m.look(s.op.NewPath)
	switch {
	case to.err != 0:
		return to.err, 0
	case to.node != nil:
		return syscall.EEXIST, 0
	case from.inside != to.mount:
		return syscall.EXDEV, 0
	case from.node.kind == dir:
		return 0, syscall.EPERM
	}
	return 0, 0
}
