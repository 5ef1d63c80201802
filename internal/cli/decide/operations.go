package decide

import (
	"fmt"
	"strings"

	"policyd.dev/policyd/enforce/profile"
)

// Usage is one operation of the table: its word, the words behind it, and a
// sentence.
type Usage struct {
	Word string
	Args string
	Help string

	kind profile.OpKind
	args []argument
}

// String gives `open PATH r|w|rw[t][c][d]|p`.
func (u *Usage) String() string { return strings.TrimSpace(u.Word + " " + u.Args) }

// operations is the one table that parsing, help, completion and documentation use.
var operations = []Usage{
	op("open", profile.OpOpen, "open a file or directory; t truncates, c creates if missing, d wants a directory, p is O_PATH", argPath, argMode),
	op("exec", profile.OpExec, "execute a program, with the interpreters of its #! line and its ELF header", argPath),
	op("truncate", profile.OpTruncate, "truncate(2) a file by its path", argPath),
	op("mkdir", profile.OpMkdir, "make a directory", argPath),
	op("mknod", profile.OpMknod, "make a file of a type; bind(2) of a unix socket to a path is `mknod PATH sock`", argPath, argType),
	op("symlink", profile.OpSymlink, "make a symbolic link at PATH", argPath),
	op("unlink", profile.OpUnlink, "remove a file", argPath),
	op("rmdir", profile.OpRmdir, "remove a directory", argPath),
	op("rename", profile.OpRename, "rename PATH to NEWPATH, which may be replaced", argOld, argNew),
	op("exchange", profile.OpExchange, "exchange the two (renameat2(2) with RENAME_EXCHANGE)", argOld, argNew),
	op("link", profile.OpLink, "make NEWPATH a hard link to PATH", argOld, argNew),
	op("ioctl-dev", profile.OpIoctlDev, "open a device, reading unless said otherwise, and use ioctl(2) on it", argPath, argDevMode),
	op("connect-unix", profile.OpConnectUnix, "connect or send to a unix socket by its path, made outside of the sandbox", argPath),
	op("bind", profile.OpBindTCP, "bind a socket to a local port", argNet, argPort),
	op("connect", profile.OpConnectTCP, "connect a socket to a remote port", argNet, argPort),
	op("send-udp", profile.OpSendUDP, "send a datagram to a remote port", argPort),
	op("signal", profile.OpSignal, "send a signal to a process in or out of the sandbox", argPeer),
	op("abstract-unix", profile.OpAbstractUnix, "connect or send to an abstract unix socket of a process in or out of the sandbox", argPeer),
	op("mount", profile.OpMount, "mount, umount, remount, pivot_root, move_mount"),
	op("stat", profile.OpStat, "look at a file's attributes; also access, readlink, chdir, statfs", argPath),
	op("chmod", profile.OpSetAttributes, "change a file's attributes; also chown, utime, setxattr, flock", argPath),
}

func op(word string, kind profile.OpKind, help string, args ...argument) Usage {
	names := make([]string, len(args))
	for i, a := range args {
		names[i] = a.name
		if a.optional {
			names[i] = "[" + a.name + "]"
		}
	}
	return Usage{Word: word, Args: strings.Join(names, " "), Help: help, kind: kind, args: args}
}

// Operations gives the table of operations, in the order to show them.
func Operations() []Usage { return append([]Usage(nil), operations...) }

func usageOf(word string) *Usage {
	for i := range operations {
		if operations[i].Word == word {
			return &operations[i]
		}
	}
	return nil
}

func wordList() string {
	words := make([]string, len(operations))
	for i := range operations {
		words[i] = operations[i].Word
	}
	return strings.Join(words, ", ")
}

// unknownWord names the operations nearest to a word that is none.
func unknownWord(word string) error {
	var near []string
	for i := range operations {
		if w := operations[i].Word; len(word) >= 3 && strings.Contains(w, word) {
			near = append(near, w)
		}
	}
	if len(near) == 0 {
		near = nearest(word)
	}
	if len(near) > 0 {
		return fmt.Errorf("%w: unknown operation %.40q: did you mean %s?", ErrQuestion, word, strings.Join(near, " or "))
	}
	return fmt.Errorf("%w: unknown operation %.40q: want one of %s", ErrQuestion, word, wordList())
}

// nearest gives the operations that differ from a word the least, if it is at
// most by two letters.
func nearest(word string) (near []string) {
	best := 2
	for i := range operations {
		w := operations[i].Word
		switch d := distance(word, w); {
		case d < best:
			near, best = []string{w}, d
		case d == best:
			near = append(near, w)
		}
	}
	return near
}

// distance is how many letters are to be put in, taken out or replaced.
func distance(a, b string) int {
	if len(a) > 40 {
		return len(a)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
