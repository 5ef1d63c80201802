package decide

import (
	"path"
	"strings"
)

// ownLink gives the link on the way of a path, /proc/self or /proc/thread-self,
// that is another process to the program asked about than to this one; "" when
// there is none. It goes the way of path_resolution(7).
func ownLink(name string) string {
	todo := strings.Split(name, "/")
	at := "/"
	for links := 0; len(todo) > 0 && links <= maxLinks; {
		part := todo[0]
		todo = todo[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			at = path.Dir(at)
			continue
		}
		next := path.Join(at, part)
		if next == "/proc/self" || next == "/proc/thread-self" {
			return next
		}
		target, isLink := readLink(next)
		if !isLink {
			at = next
			continue
		}
		links++
		if path.IsAbs(target) {
			at = "/"
		}
		todo = append(strings.Split(target, "/"), todo...)
	}
	return ""
}
