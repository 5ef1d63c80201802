package exchange

import (
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"policyd.dev/policyd/enforce/profile"
)

func decimal(p uint16) string { return strconv.Itoa(int(p)) }

// cleanPath checks a path and takes "//", "/./" and a last "/" out of it; a relative one is of base, "" for none. The
// rules are those of paths of a policy.
func cleanPath(s, base string) (string, error) {
	switch {
	case s == "":
		return "", errors.New("an empty path")
	case s[0] != '/' && base == "":
		return "", fmt.Errorf("path %q is relative: the tool takes it from the folder it is started in; give that folder with --base", clip(s))
	case strings.IndexByte(s, 0) >= 0:
		return "", fmt.Errorf("path %q holds a NUL", clip(s))
	case s[0] != '/':
		s = base + "/" + s
	}
	for part := range strings.SplitSeq(s, "/") {
		if part == ".." {
			return "", fmt.Errorf("path %q has a ..; name the folder itself", clip(s))
		}
		if len(part) > profile.MaxName {
			return "", fmt.Errorf("path %q has a name of %d bytes, at most %d", clip(s), len(part), profile.MaxName)
		}
	}
	if s = path.Clean(s); len(s) > profile.MaxPath {
		return "", fmt.Errorf("path of %d bytes, at most %d: %q", len(s), profile.MaxPath, clip(s))
	}
	return s, nil
}

// escape makes a text one that stands for itself in a template.
func escape(s string) string { return strings.ReplaceAll(s, "$", "$$") }

// literal reads a path without variables and gives it as a template.
func (r *report) literal(at spot, s, base string) (string, bool) {
	clean, err := cleanPath(s, base)
	if err != nil {
		r.errorf(at, codeBadPath, "%v", err)
		return "", false
	}
	r.ownProc(at, clean)
	return escape(clean), true
}

// ownProc remarks on paths that name whoever builds the rules.
func (r *report) ownProc(at spot, path string) {
	for _, p := range []string{"/proc/self", "/proc/thread-self", "/dev/fd", "/dev/stdin", "/dev/stdout", "/dev/stderr"} {
		if path == p || strings.HasPrefix(path, p+"/") {
			r.remarkf(at, "%s names the process that builds the rules, not the program; policyd refuses to start with it", p)
			return
		}
	}
}

// port reads a port; as tells what the tool makes of a number that is none, "" for nothing worth telling.
func (r *report) port(at spot, s string, as func(n int64) string) (uint16, bool) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err == nil && (s == "0" || s[0] != '0') {
		return uint16(n), true
	}
	hint := ""
	if wide, err := strconv.ParseInt(s, 10, 64); err == nil && as != nil {
		hint = as(wide)
	}
	r.errorf(at, codeBadPort, "port %q is not a number of 0 to 65535%s", clip(s), hint)
	return 0, false
}
