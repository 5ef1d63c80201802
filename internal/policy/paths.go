package policy

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"policyd.dev/policyd/enforce/profile"
)

// cleanPath checks an absolute path and takes "//", "/./" and a final "/" out of
// it. ".." is refused: behind a symbolic link it names something else than it
// seems to.
func cleanPath(s string) (string, error) {
	switch {
	case s == "":
		return "", errors.New("the path is empty")
	case len(s) > MaxPathBytes:
		return "", fmt.Errorf("path of %d bytes, at most %d: %q", len(s), MaxPathBytes, clip(s))
	case s[0] != '/':
		return "", fmt.Errorf("path %q is not absolute", clip(s))
	case strings.IndexByte(s, 0) >= 0:
		return "", fmt.Errorf("path %q holds a NUL", clip(s))
	}
	dirty := false
	for i := 1; i <= len(s); {
		end := strings.IndexByte(s[i:], '/')
		if end < 0 {
			end = len(s)
		} else {
			end += i
		}
		switch part := s[i:end]; {
		case part == "..":
			return "", fmt.Errorf("path %q has a ..; name the folder itself", clip(s))
		case len(part) > profile.MaxName:
			return "", fmt.Errorf("path %q has a name of %d bytes, at most %d", clip(s), len(part), profile.MaxName)
		case part == "" && len(s) > 1 || part == ".":
			dirty = true
		}
		i = end + 1
	}
	if !dirty {
		return s, nil
	}
	var b strings.Builder
	for part := range strings.SplitSeq(s, "/") {
		if part != "" && part != "." {
			b.WriteByte('/')
			b.WriteString(part)
		}
	}
	if b.Len() == 0 {
		return "/", nil
	}
	return b.String(), nil
}

// beneath tells whether a clean path is dir or lies beneath it.
func beneath(path, dir string) bool {
	return dir == "/" || strings.HasPrefix(path, dir) && (len(path) == len(dir) || path[len(dir)] == '/')
}

// parsePorts reads "443" or "8000-8010".
func parsePorts(s string) (first, last uint16, err error) {
	low, high, isRange := strings.Cut(s, "-")
	if isRange && low == "" {
		return 0, 0, fmt.Errorf("port %q is not within 0 to 65535", clip(s))
	}
	if first, err = parsePort(low); err != nil {
		return 0, 0, err
	}
	if !isRange {
		return first, first, nil
	}
	if last, err = parsePort(high); err != nil {
		return 0, 0, err
	}
	if first > last {
		return 0, 0, fmt.Errorf("range %s runs backwards; write %d-%d", s, last, first)
	}
	return first, last, nil
}

func parsePort(s string) (uint16, error) {
	v, err := strconv.ParseUint(s, 10, 16)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, fmt.Errorf("port %s is not within 0 to 65535", clip(s))
	case err != nil:
		return 0, fmt.Errorf("port %q is not a number or a range LOW-HIGH", clip(s))
	case len(s) > 1 && s[0] == '0':
		return 0, fmt.Errorf("port %q begins with a 0; write %d", clip(s), v)
	}
	return uint16(v), nil
}
