package decide

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"policyd.dev/policyd/enforce/profile"
)

func TestParse(t *testing.T) {
	const r, w, tr, c, d, p = profile.OpenRead, profile.OpenWrite, profile.OpenTruncate, profile.OpenCreate, profile.OpenDirectory, profile.OpenPath
	for _, test := range []struct {
		line string
		want profile.Operation
	}{
		{"open /x r", profile.Operation{Kind: profile.OpOpen, Path: "/x", Open: r}},
		{"open /x rwtc", profile.Operation{Kind: profile.OpOpen, Path: "/x", Open: r | w | tr | c}},
		{"open /x rd", profile.Operation{Kind: profile.OpOpen, Path: "/x", Open: r | d}},
		{"open /x p", profile.Operation{Kind: profile.OpOpen, Path: "/x", Open: p}},
		{"open /x dp", profile.Operation{Kind: profile.OpOpen, Path: "/x", Open: d | p}},
		{"exec x", profile.Operation{Kind: profile.OpExec, Path: "x"}},
		{"truncate /x", profile.Operation{Kind: profile.OpTruncate, Path: "/x"}},
		{"mkdir /x", profile.Operation{Kind: profile.OpMkdir, Path: "/x"}},
		{"mknod /x reg", profile.Operation{Kind: profile.OpMknod, Path: "/x", Make: profile.RegularFile}},
		{"mknod /x sock", profile.Operation{Kind: profile.OpMknod, Path: "/x", Make: profile.Socket}},
		{"symlink /x", profile.Operation{Kind: profile.OpSymlink, Path: "/x"}},
		{"unlink /x", profile.Operation{Kind: profile.OpUnlink, Path: "/x"}},
		{"rmdir /x", profile.Operation{Kind: profile.OpRmdir, Path: "/x"}},
		{"rename /x /y", profile.Operation{Kind: profile.OpRename, Path: "/x", NewPath: "/y"}},
		{"exchange /x /y", profile.Operation{Kind: profile.OpExchange, Path: "/x", NewPath: "/y"}},
		{"link /x '/y z'", profile.Operation{Kind: profile.OpLink, Path: "/x", NewPath: "/y z"}},
		{"ioctl-dev /dev/tty", profile.Operation{Kind: profile.OpIoctlDev, Path: "/dev/tty", Open: r}},
		{"ioctl-dev /dev/tty rw", profile.Operation{Kind: profile.OpIoctlDev, Path: "/dev/tty", Open: r | w}},
		{"connect-unix /x", profile.Operation{Kind: profile.OpConnectUnix, Path: "/x"}},
		{"bind tcp 0", profile.Operation{Kind: profile.OpBindTCP}},
		{"bind udp 65535", profile.Operation{Kind: profile.OpBindUDP, Port: 65535}},
		{"connect tcp 80", profile.Operation{Kind: profile.OpConnectTCP, Port: 80}},
		{"connect udp 80", profile.Operation{Kind: profile.OpConnectUDP, Port: 80}},
		{"send-udp 53", profile.Operation{Kind: profile.OpSendUDP, Port: 53}},
		{"signal in", profile.Operation{Kind: profile.OpSignal}},
		{"abstract-unix out", profile.Operation{Kind: profile.OpAbstractUnix}},
		{"mount", profile.Operation{Kind: profile.OpMount}},
		{"stat /x", profile.Operation{Kind: profile.OpStat, Path: "/x"}},
		{"chmod /x", profile.Operation{Kind: profile.OpSetAttributes, Path: "/x"}},
		{`open "/a \"b\" \c" r # and why`, profile.Operation{Kind: profile.OpOpen, Path: `/a "b" \c`, Open: r}},
		{`open /a\ b#c r`, profile.Operation{Kind: profile.OpOpen, Path: "/a b#c", Open: r}},
	} {
		q, err := ParseLine(test.line)
		if err != nil || q.op != test.want {
			t.Errorf("%s: %+v, %v", test.line, q.op, err)
			continue
		}
		again, err := ParseLine(q.String())
		if err != nil || again != q {
			t.Errorf("%s is written %s, which is read as %+v, %v", test.line, q, again, err)
		}
	}
	for _, u := range Operations() {
		if !slices.ContainsFunc([]string{"exec", "open", "mount"}, func(w string) bool { return w == u.Word }) && u.Args == "" {
			t.Errorf("%s: no words", u.Word)
		}
		if u.Help == "" || len(u.String()) > 76 {
			t.Errorf("%s: help %q", u.String(), u.Help)
		}
	}
}

// Nothing is guessed, and the error says what is wanted.
func TestBadQuestions(t *testing.T) {
	for line, want := range map[string]string{
		"open":                   "PATH is missing: want `open PATH",
		"open /x":                "is missing",
		"open /x rwx":            "letters are r (read)",
		"open /x rr":             "each once",
		"open /x t":              "neither r nor w",
		"open /x c":              "neither r nor w",
		"open /x rp":             "O_PATH",
		"open /x wd":             "for reading only",
		"open /x ''":             "neither r nor w",
		"open /x r y":            `"y" is too much`,
		"open '' r":              "an empty path",
		"open \x00 r":            "NUL",
		"exec":                   "PATH is missing",
		"rename /x":              "NEWPATH is missing",
		"mknod /x":               "is missing: want `mknod PATH reg|fifo|sock|char|block`",
		"mknod /x dir":           `type "dir"`,
		"ioctl-dev /x x":         `mode "x"`,
		"bind tcp":               "PORT is missing",
		"bind sctp 5":            `protocol "sctp"`,
		"bind tcp 65536":         "from 0 to 65535",
		"bind tcp 70000":         "from 0 to 65535",
		"bind tcp -1":            "from 0 to 65535",
		"bind tcp +1":            "from 0 to 65535",
		"bind tcp 080":           "from 0 to 65535",
		"connect udp x":          "from 0 to 65535",
		"signal":                 "in|out is missing",
		"signal up":              "neither in",
		"mount /x":               "too much",
		"fly /x":                 "want one of open, exec",
		"opne /x r":              "did you mean open?",
		"unlnk /x":               "did you mean unlink?",
		"unix /x":                "did you mean connect-unix or abstract-unix?",
		"send udp 5":             "did you mean send-udp?",
		"open '/x r":             "not closed",
		`open "/x r`:             "not closed",
		`open /x r \`:            "backslash",
		"open " + long() + " r":  "4096 bytes, more than 4095",
		"openopenopenopenopen x": "want one of",
	} {
		if _, err := ParseLine(line); !errors.Is(err, ErrQuestion) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %q", line, err, want)
		}
	}
	if _, err := Parse(nil); !errors.Is(err, ErrQuestion) {
		t.Errorf("no words: %v", err)
	}
	for _, line := range []string{"", "  \t\r\n", "# open /x r", "  # x"} {
		if _, err := ParseLine(line); !errors.Is(err, ErrNoQuestion) {
			t.Errorf("%q: %v", line, err)
		}
	}
}

func long() string { return "/" + strings.Repeat("x", profile.MaxPath) }

// What is read is written so that it is read again.
func FuzzParseLine(f *testing.F) {
	for _, line := range []string{"open /x r", `rename "a b" 'c'`, "bind tcp 80", `open /a\ b r # x`, "signal in"} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		q, err := ParseLine(line)
		if err != nil {
			if !errors.Is(err, ErrQuestion) && !errors.Is(err, ErrNoQuestion) {
				t.Fatal(err)
			}
			return
		}
		if again, err := ParseLine(q.String()); err != nil || again != q {
			t.Fatalf("%q is written %q, which is read as %+v, %v", line, q, again, err)
		}
	})
}
