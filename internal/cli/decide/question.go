package decide

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"policyd.dev/policyd/enforce/profile"
)

var (
	// ErrQuestion is returned for words that are no question.
	ErrQuestion = errors.New("not a question that can be answered")

	// ErrNoQuestion is returned by [ParseLine] for an empty line or a comment.
	ErrNoQuestion = errors.New("no question")
)

// Question is one operation as a user writes it, understood. Its paths are as
// they were written.
type Question struct {
	op   profile.Operation // paths not resolved
	word string
	peer string // "in" or "out" of the sandbox, for signal and abstract-unix
}

// Kind is what the kernel is asked for.
func (q Question) Kind() profile.OpKind { return q.op.Kind }

// Path is the (first) path of the question as it was written, "" for none.
func (q Question) Path() string { return q.op.Path }

// Operation is what the kernel is asked, with paths as they were written.
func (q Question) Operation() profile.Operation { return q.op }

// Peer is the other side of signal and abstract-unix: "in" or "out" of the
// sandbox; else "".
func (q Question) Peer() string { return q.peer }

// String gives the words that [ParseLine] reads as this question.
func (q Question) String() string {
	words := []string{q.word}
	for _, a := range usageOf(q.word).args {
		words = append(words, quote(a.text(&q)))
	}
	return strings.Join(words, " ")
}

// Parse reads a question given as words: `open`, `/etc/passwd`, `r`. Errors
// wrap [ErrQuestion] and say what is wanted.
func Parse(words []string) (Question, error) {
	if len(words) == 0 {
		return Question{}, fmt.Errorf("%w: want an operation, one of %s", ErrQuestion, wordList())
	}
	u := usageOf(words[0])
	if u == nil {
		return Question{}, unknownWord(words[0])
	}
	q := Question{word: u.Word, op: profile.Operation{Kind: u.kind}}
	given := words[1:]
	for i, a := range u.args {
		word := "" // of an optional one that is left out
		if i < len(given) {
			word = given[i]
		} else if !a.optional {
			return Question{}, fmt.Errorf("%w: %s is missing: want `%s`", ErrQuestion, a.name, u)
		}
		if err := a.read(&q, word); err != nil {
			return Question{}, fmt.Errorf("%w: %w: want `%s`", ErrQuestion, err, u)
		}
	}
	if len(given) > len(u.args) {
		return Question{}, fmt.Errorf("%w: %.80q is too much: want `%s`", ErrQuestion, given[len(u.args)], u)
	}
	return q, nil
}

// argument is one word behind that of the operation.
type argument struct {
	name     string // in usage lines
	optional bool
	read     func(*Question, string) error // "" only for an optional one left out
	text     func(*Question) string
}

var (
	argPath    = argument{name: "PATH", read: func(q *Question, s string) error { return readPath(&q.op.Path, s) }, text: func(q *Question) string { return q.op.Path }}
	argOld     = argument{name: "PATH", read: argPath.read, text: argPath.text}
	argNew     = argument{name: "NEWPATH", read: func(q *Question, s string) error { return readPath(&q.op.NewPath, s) }, text: func(q *Question) string { return q.op.NewPath }}
	argMode    = argument{name: "r|w|rw[t][c][d]|p", read: readMode, text: func(q *Question) string { return modeText(q.op.Open) }}
	argDevMode = argument{name: "r|w|rw", optional: true, read: readDeviceMode, text: argMode.text}
	argType    = argument{name: "reg|fifo|sock|char|block", read: readType, text: func(q *Question) string { return typeWords[q.op.Make] }}
	argPort    = argument{name: "PORT", read: readPort, text: func(q *Question) string { return strconv.Itoa(int(q.op.Port)) }}
	argNet     = argument{name: "tcp|udp", read: readProtocol, text: func(q *Question) string { return protocolText(q.op.Kind) }}
	argPeer    = argument{name: "in|out", read: readPeer, text: func(q *Question) string { return q.peer }}
)

func readPath(to *string, s string) error {
	switch {
	case s == "":
		return errors.New("an empty path")
	case len(s) > profile.MaxPath:
		return fmt.Errorf("path %.40q of %d bytes, more than %d", s, len(s), profile.MaxPath)
	case strings.IndexByte(s, 0) >= 0:
		return fmt.Errorf("path %.80q holds a NUL", s)
	}
	*to = s
	return nil
}

// openLetters are the letters of a mode, in the order they are written.
var openLetters = [...]struct {
	letter byte
	flag   profile.OpenFlags
}{
	{'r', profile.OpenRead},
	{'w', profile.OpenWrite},
	{'t', profile.OpenTruncate},
	{'c', profile.OpenCreate},
	{'d', profile.OpenDirectory},
	{'p', profile.OpenPath},
}

func readMode(q *Question, s string) error {
	var f profile.OpenFlags
letters:
	for i := range len(s) {
		for _, l := range openLetters {
			if s[i] == l.letter && f&l.flag == 0 {
				f |= l.flag
				continue letters
			}
		}
		return fmt.Errorf("mode %.40q: letters are r (read), w (write), t (truncate), c (create), d (directory), p (O_PATH), each once", s)
	}
	const access = profile.OpenRead | profile.OpenWrite
	switch {
	case f&profile.OpenPath != 0 && f&^(profile.OpenPath|profile.OpenDirectory) != 0:
		return fmt.Errorf("mode %q: p (O_PATH) opens for nothing else: alone or with d", s)
	case f&(access|profile.OpenPath) == 0:
		return fmt.Errorf("mode %q: neither r nor w", s)
	case f&profile.OpenDirectory != 0 && f&(profile.OpenWrite|profile.OpenTruncate|profile.OpenCreate) != 0:
		return fmt.Errorf("mode %q: a directory is opened for reading only", s)
	}
	q.op.Open = f
	return nil
}

func modeText(f profile.OpenFlags) string {
	var b []byte
	for _, l := range openLetters {
		if f&l.flag != 0 {
			b = append(b, l.letter)
		}
	}
	return string(b)
}

func readDeviceMode(q *Question, s string) error {
	switch s {
	case "", "r":
		q.op.Open = profile.OpenRead
	case "w":
		q.op.Open = profile.OpenWrite
	case "rw":
		q.op.Open = profile.OpenRead | profile.OpenWrite
	default:
		return fmt.Errorf("mode %.40q", s)
	}
	return nil
}

var typeWords = map[profile.FileType]string{
	profile.RegularFile: "reg", profile.Fifo: "fifo", profile.Socket: "sock",
	profile.CharDevice: "char", profile.BlockDevice: "block",
}

func readType(q *Question, s string) error {
	for t, word := range typeWords {
		if word == s {
			q.op.Make = t
			return nil
		}
	}
	return fmt.Errorf("type %.40q", s)
}

func readPort(q *Question, s string) error {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || s != strconv.FormatUint(n, 10) {
		return fmt.Errorf("port %.40q is no number from 0 to 65535", s)
	}
	q.op.Port = uint16(n)
	return nil
}

func readProtocol(q *Question, s string) error {
	switch {
	case s == "tcp":
	case s == "udp" && q.op.Kind == profile.OpBindTCP:
		q.op.Kind = profile.OpBindUDP
	case s == "udp":
		q.op.Kind = profile.OpConnectUDP
	default:
		return fmt.Errorf("protocol %.40q", s)
	}
	return nil
}

func protocolText(k profile.OpKind) string {
	if k == profile.OpBindUDP || k == profile.OpConnectUDP {
		return "udp"
	}
	return "tcp"
}

func readPeer(q *Question, s string) error {
	if s != "in" && s != "out" {
		return fmt.Errorf("%.40q is neither in (of the same sandbox) nor out (of it)", s)
	}
	q.peer = s
	return nil
}
