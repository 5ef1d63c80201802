package landlock

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// mount is one line of /proc/self/mountinfo (proc_pid_mountinfo(5)).
type mount struct {
	id    uint64
	dev   string // major:minor of the file system
	root  string // what of the file system is mounted
	point string
}

type mounts []mount

func readMounts() (mounts, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("learn what is mounted where: %w", err)
	}
	return parseMounts(string(b))
}

func parseMounts(text string) (mounts, error) {
	var all mounts
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 5 {
			return nil, fmt.Errorf("mountinfo: line %q", line)
		}
		id, err := strconv.ParseUint(f[0], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("mountinfo: line %q: %w", line, err)
		}
		all = append(all, mount{id, f[2], UnescapeMount(f[3]), UnescapeMount(f[4])})
	}
	return all, nil
}

// place gives where a path is within the file system that the mount with that id
// has; why says what makes that unknown.
func (m mounts) place(path string, id uint64) (own *mount, inFS, why string) {
	for i := range m {
		if m[i].id == id {
			own = &m[i]
		}
	}
	if own == nil {
		return nil, "", "a mount that is gone"
	}
	rel, ok := beneath(path, own.point)
	if !ok {
		return nil, "", "a mount that is hidden"
	}
	return own, join(own.root, rel), ""
}

// process gives the number of the process whose folder in procfs the path is or
// lies in, or "": these are at the top of procfs alone, wherever what of it is
// mounted.
func (m mounts) process(path string, id uint64) (string, error) {
	_, inFS, why := m.place(path, id)
	if why != "" {
		return "", fmt.Errorf("it is in procfs in %s: %s", why, path)
	}
	top, _, _ := strings.Cut(strings.TrimPrefix(inFS, "/"), "/")
	if _, err := strconv.ParseUint(top, 10, 32); err != nil {
		return "", nil
	}
	return top, nil
}

// alias gives another place where what is at path, in the mount with that id,
// is mounted, or "". Mounts hidden below others count: that they stay hidden
// is nothing to build on.
func (m mounts) alias(path string, id uint64) string {
	own, inFS, why := m.place(path, id)
	if why != "" {
		return why
	}
	for i := range m {
		o := &m[i]
		if o.id == id || o.dev != own.dev {
			continue
		}
		if rel, ok := beneath(inFS, o.root); ok {
			return join(o.point, rel)
		}
	}
	return ""
}

// beneath gives path relative to dir ("" or starting with a slash) when it is dir or in it.
func beneath(path, dir string) (string, bool) {
	if dir == "/" {
		if path == "/" {
			return "", true
		}
		return path, true
	}
	rel, ok := strings.CutPrefix(path, dir)
	if !ok || rel != "" && rel[0] != '/' {
		return "", false
	}
	return rel, true
}

func join(dir, rel string) string {
	if dir == "/" && rel != "" {
		return rel
	}
	return dir + rel
}

// UnescapeMount undoes the octal escapes of a field of mountinfo: \040 for space
// and the like (proc_pid_mountinfo(5)).
func UnescapeMount(field string) string {
	if !strings.Contains(field, `\`) {
		return field
	}
	var b strings.Builder
	for i := 0; i < len(field); i++ {
		if field[i] == '\\' && i+4 <= len(field) {
			if n, err := strconv.ParseUint(field[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(field[i])
	}
	return b.String()
}
