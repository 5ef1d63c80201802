package decide

import (
	"fmt"
	"os"
	"path"
	"regexp"
	"strings"
	"syscall"

	"policyd.dev/policyd/enforce/profile"
)

// eachLink goes the way of a path as path_resolution(7) says and shows f each
// symbolic link that is followed, by its real folder and its name, until f is
// content. follow says whether one at the end is followed too.
func eachLink(name string, follow bool, f func(link string) bool) {
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
		target, isLink := readLink(next)
		last := len(todo) == 0
		if !isLink || last && !follow {
			at = next
			continue
		}
		if f(next) {
			return
		}
		links++
		if path.IsAbs(target) {
			at = "/"
		}
		todo = append(strings.Split(target, "/"), todo...)
	}
}

// ownLink gives the link on the way of a path, /proc/self or /proc/thread-self,
// that is another process to the program asked about than to this one; "" when
// there is none.
func ownLink(name string) (own string) {
	eachLink(name, true, func(link string) bool {
		if link == "/proc/self" || link == "/proc/thread-self" {
			own = link
		}
		return own != ""
	})
	return own
}

// magicLink is one that proc(5) lets nobody follow who may not trace the process.
var magicLink = regexp.MustCompile(`^/proc/([0-9]+)(/task/[0-9]+)?/(exe|cwd|root|(fd|ns|map_files)/[^/]+)$`)

// traced refuses a path that leads through a process outside of the sandbox, as
// all are that there are now: any layer keeps a program from tracing it
// (hook_ptrace_access_check in security/landlock/task.c), and no rule helps.
func (x *inquiry) traced(given string, follow bool) error {
	abs := x.path(given)
	if abs == "" || x.d.opt.Lexical || len(x.d.p.Layers) == 0 {
		return nil
	}
	var err error
	eachLink(abs, follow, func(link string) bool {
		if m := magicLink.FindStringSubmatch(link); m != nil && m[1] != fmt.Sprint(os.Getpid()) {
			err = notAsked(given, "it leads through "+link+", of a process outside of the sandbox", syscall.EACCES)
		}
		return err != nil
	})
	return err
}

// tracedFile is a file of proc(5) whose open asks for the right to trace the process.
var tracedFile = regexp.MustCompile(`^/proc/([0-9]+)(/task/[0-9]+)?/(mem|environ|auxv|maps|smaps|smaps_rollup|numa_maps|pagemap)$`)

// memory refuses the open of what a process outside of the sandbox holds in its memory, as [inquiry.traced] does for
// links; of the files that show less, the kernel lets those be read who have CAP_PERFMON (may_access_mm in mm/fork.c).
func (x *inquiry) memory() error {
	m := tracedFile.FindStringSubmatch(x.old.real)
	if m == nil || m[1] == fmt.Sprint(os.Getpid()) || x.op.Kind != profile.OpOpen || x.op.Open&profile.OpenPath != 0 || len(x.d.p.Layers) == 0 {
		return nil
	}
	if m[3] == "mem" {
		return notAsked(x.q.op.Path, "it is the memory of a process outside of the sandbox", syscall.EACCES)
	}
	x.a.note(noteTraced, "%s also asks for the right to trace process %s, which is outside of the sandbox: EACCES, but for programs with CAP_PERFMON", x.q.op.Path, m[1])
	return nil
}
