package spawn

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"policyd.dev/policyd/internal/errs"
)

// defaultPath is where programs are looked for without a PATH.
const defaultPath = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"

// LookPathAs finds a program as execvp(3) would for a child with this credential
// (nil: the caller's), environment and directory. A name with a slash is only
// joined to dir. Parts of PATH that are not absolute are passed over. It looks
// with the user's rights, not with policyd's, and so answers for what he may not
// see as for what is not there to be executed; the kernel has the last word at
// exec. Errors wrap errs.ErrProgramNotFound, errs.ErrProgramRefused when all that
// was found cannot be executed, or errs.ErrStart when that user cannot be.
func LookPathAs(c *Credential, name string, env []string, dir string) (path string, err error) {
	if aerr := asUser(c, func() { path, err = LookPath(name, env, dir) }); aerr != nil {
		return "", fmt.Errorf("%w: run as uid %d: %w", errs.ErrStart, c.UID, aerr)
	}
	return path, err
}

// LookPath is LookPathAs with the caller's own rights.
func LookPath(name string, env []string, dir string) (string, error) {
	if name == "" || strings.IndexByte(name, 0) >= 0 {
		return "", fmt.Errorf("%w: %q is not a name", errs.ErrProgramNotFound, name)
	}
	if strings.Contains(name, "/") {
		path := name
		if !filepath.IsAbs(path) {
			path = filepath.Join("/", dir, path)
		}
		return path, checkProgram(path)
	}
	search := defaultPath
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			search = v
		}
	}
	var refused error
	for part := range strings.SplitSeq(search, ":") {
		if !filepath.IsAbs(part) {
			continue
		}
		path := filepath.Join(part, name)
		err := checkProgram(path)
		if err == nil {
			return path, nil
		}
		if errors.Is(err, errs.ErrProgramRefused) && refused == nil {
			refused = err
		}
	}
	if refused != nil {
		return "", refused
	}
	return "", fmt.Errorf("%w: %q is in none of the folders of PATH (%s)", errs.ErrProgramNotFound, name, search)
}

func checkProgram(path string) error {
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ENAMETOOLONG):
		return fmt.Errorf("%w: %w", errs.ErrProgramNotFound, err)
	case err != nil:
		return fmt.Errorf("%w: %w", errs.ErrProgramRefused, err)
	case st.IsDir():
		return fmt.Errorf("%w: %s is a directory", errs.ErrProgramRefused, path)
	case !st.Mode().IsRegular():
		return fmt.Errorf("%w: %s is not a regular file", errs.ErrProgramRefused, path)
	case st.Mode()&0o111 == 0:
		return fmt.Errorf("%w: %s has no execute permission", errs.ErrProgramRefused, path)
	}
	return nil
}
