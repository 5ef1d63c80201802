package spawn

import (
	"errors"
	"fmt"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/internal/errs"
)

// diagnosis is what looking again, as the program's user, found to be wrong.
// Only words and the class of the error come from it: nothing was started.
type diagnosis struct {
	what string // "credentials", "directory", "program" or "" when all looks fine
	err  error
}

// diagnose runs on the job's thread, which ends right after, so it may take on
// the user's file system identity and directory. (Not the real user id: then
// that user could signal policyd's thread, and a fatal signal ends the process.)
func (j *job) diagnose() {
	var ee *execError
	if !errors.As(j.err, &ee) {
		return
	}
	if c := j.cmd.Credential; c != nil {
		if err := actAs(c); err != nil {
			j.found = diagnosis{"credentials", err}
			return
		}
	}
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return
	}
	if err := unix.Chdir(j.attr.Dir); err != nil {
		j.found = diagnosis{"directory", err}
		return
	}
	var st unix.Stat_t
	if err := unix.Stat(j.cmd.Path, &st); err != nil {
		j.found = diagnosis{"program", err}
		return
	}
	if err := unix.Faccessat2(unix.AT_FDCWD, j.cmd.Path, unix.X_OK, unix.AT_EACCESS); err != nil {
		j.found = diagnosis{"program", err}
		return
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		j.found = diagnosis{"program", errNotRegular}
	}
}

var errNotRegular = errors.New("it is not a regular file")

// explain gives the error of a job its class and its words.
func (j *job) explain() error {
	var ee *execError
	if !errors.As(j.err, &ee) {
		if errors.Is(j.err, errs.ErrSmackUnavailable) {
			return j.err
		}
		return fmt.Errorf("%w: %w", errs.ErrStart, j.err)
	}
	path := j.cmd.Path
	if !filepath.IsAbs(path) {
		path = filepath.Join("/", j.cmd.Dir, path)
	}
	switch f := j.found; f.what {
	case "credentials":
		return fmt.Errorf("%w: run as uid %d: %w", errs.ErrStart, j.cmd.Credential.UID, f.err)
	case "directory":
		return fmt.Errorf("%w: directory %q: %w", errs.ErrStart, j.cmd.Dir, f.err)
	case "program":
		if missingFile(f.err) {
			return fmt.Errorf("%w: %q: %w", errs.ErrProgramNotFound, path, f.err)
		}
		return fmt.Errorf("%w: %q: %w", errs.ErrProgramRefused, path, f.err)
	}
	return j.explainErrno(path, ee.err)
}

// explainErrno is for when directory and program look fine from outside.
func (j *job) explainErrno(path string, err error) error {
	switch {
	case missingFile(err):
		for _, l := range execChain(j.cmd.Credential, path) {
			if l.err != nil && missingFile(l.err) {
				return fmt.Errorf("%w: %q: its %s %q is not there: %w", errs.ErrProgramNotFound, path, l.role, l.path, err)
			}
		}
		return fmt.Errorf("%w: %q or what interprets it: %w", errs.ErrProgramNotFound, path, err)
	case errors.Is(err, syscall.EACCES):
		if p := j.rs.Profile(); p != nil {
			if why := explainExec(p, j.cmd.Credential, path); why != "" {
				return fmt.Errorf("%w: %w: %s", errs.ErrProgramRefused, err, why)
			}
		}
		var fs unix.Statfs_t
		if unix.Statfs(path, &fs) == nil && fs.Flags&unix.ST_NOEXEC != 0 {
			return fmt.Errorf("%w: %q: its file system is mounted noexec: %w", errs.ErrProgramRefused, path, err)
		}
		return fmt.Errorf("%w: %q: %w", errs.ErrProgramRefused, path, err)
	case errors.Is(err, syscall.EPERM) && explainSmackExec(j.cmd.SmackLabel, path) != "":
		return fmt.Errorf("%w: %q: %w: %s", errs.ErrProgramRefused, path, err, explainSmackExec(j.cmd.SmackLabel, path))
	case errors.Is(err, syscall.ENOEXEC):
		return fmt.Errorf("%w: %q is in no format the kernel executes (a script without #!?): %w", errs.ErrProgramRefused, path, err)
	case errors.Is(err, syscall.ETXTBSY), errors.Is(err, syscall.ELIBBAD), errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.EISDIR):
		return fmt.Errorf("%w: %q: %w", errs.ErrProgramRefused, path, err)
	case errors.Is(err, syscall.E2BIG):
		return fmt.Errorf("%w: %q: arguments and environment are too large: %w", errs.ErrStart, path, err)
	case errors.Is(err, syscall.EAGAIN):
		return fmt.Errorf("%w: %q: no more processes allowed (RLIMIT_NPROC, pids.max): %w", errs.ErrStart, path, err)
	}
	return fmt.Errorf("%w: %q: fork, or a step between it and exec: %w", errs.ErrStart, path, err)
}

func missingFile(err error) bool {
	return errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ENAMETOOLONG)
}
