package smackfs

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// observed is something a kernel was seen to do. Its labels are its own, so that the cases can follow one another.
type observed struct {
	name  string
	file  string
	write string
	// answer is what the write gives: "" for the whole count, a number for a short one, or an errno.
	answer string
	old    string // answer of 6.1, when it is another
	// shows are lines (or the whole text of a file of one value) that the file in show has afterwards, lacks those it has not.
	show         string
	shows, lacks []string
	bringup      bool // of kernels with bringup mode alone
}

var l255 = strings.Repeat("m", 255)

var observedWrites = []observed{
	// Labels.
	{name: "cut at a slash", file: fileLoad2, write: "S1/x B rwx", show: fileLoad2, shows: []string{"S1 B rwx"}},
	{name: "cut at a quotation mark", file: fileLoad2, write: `S2"x B rwx`, show: fileLoad2, shows: []string{"S2 B rwx"}},
	{name: "cut at an apostrophe", file: fileLoad2, write: `S3'x B rwx`, show: fileLoad2, shows: []string{"S3 B rwx"}},
	{name: "cut at a backslash", file: fileLoad2, write: `S4\x B rwx`, show: fileLoad2, shows: []string{"S4 B rwx"}},
	{name: "cut at DEL", file: fileLoad2, write: "S5\x7fx B rwx", show: fileLoad2, shows: []string{"S5 B rwx"}},
	{name: "cut at a control character", file: fileLoad2, write: "S6\x01x B rwx", show: fileLoad2, shows: []string{"S6 B rwx"}},
	{name: "cut at a letter that is not ASCII", file: fileLoad2, write: "S7é B rwx", show: fileLoad2, shows: []string{"S7 B rwx"}},
	{name: "split at A0", file: fileLoad2, write: "R4à B rwx", show: fileLoad2, shows: []string{"R4 B rwx"}},
	{name: "255 bytes", file: fileLoad2, write: l255 + " " + l255 + "o r", answer: "EINVAL"},
	{name: "255 bytes twice", file: fileLoad2, write: "o" + l255[1:] + " " + l255 + " r", show: fileLoad2, shows: []string{"o" + l255[1:] + " " + l255 + " r"}},
	{name: "256 bytes", file: fileLoad2, write: l255 + "m B r", answer: "EINVAL"},
	{name: "leading dash", file: fileLoad2, write: "-x B r", answer: "EINVAL"},
	{name: "nothing before the stop byte", file: fileLoad2, write: "/x B r", answer: "EINVAL"},
	{name: "all that is legal", file: fileLoad2, write: "S10!#$%&()*+,-.:;<=>?@[]^_`{|}~ B r", show: fileLoad2, shows: []string{"S10!#$%&()*+,-.:;<=>?@[]^_`{|}~ B r"}},
	{name: "a comment is a rule", file: fileLoad2, write: "# foo rwx", show: fileLoad2, shows: []string{"# foo rwx"}},
	{name: "case counts", file: fileLoad2, write: "Case B r\ncase B w\n", show: fileLoad2, shows: []string{"Case B r", "case B w"}},

	// Access letters.
	{name: "order and case", file: fileLoad2, write: "A1 B BLTAXWR", show: fileLoad2, shows: []string{"A1 B rwxatlb"}},
	{name: "repeats and dashes", file: fileLoad2, write: "A2 B r-r-x", show: fileLoad2, shows: []string{"A2 B rx"}},
	{name: "waxbeans", file: fileLoad2, write: "A3 B waxbeans", show: fileLoad2, shows: []string{"A3 B wxab"}},
	{name: "unknown letter first", file: fileLoad2, write: "A4 B qrw", show: fileLoad2, lacks: []string{"A4 B"}},
	{name: "a digit", file: fileLoad2, write: "A5 B 7", show: fileLoad2, lacks: []string{"A5 B"}},
	{name: "unknown letter in between", file: fileLoad2, write: "A6 B rwV10", show: fileLoad2, shows: []string{"A6 B rw"}},
	{name: "no access is hidden", file: fileLoad2, write: "A7 B r\nA7 B -\n", show: fileLoad2, lacks: []string{"A7 B"}},
	{name: "replaces", file: fileLoad2, write: "A8 B r\nA8 B w\n", show: fileLoad2, shows: []string{"A8 B w"}},
	{name: "write does not show lock", file: fileLoad2, write: "A9 B w", show: fileLoad2, shows: []string{"A9 B w"}},

	// load2.
	{name: "three tokens at a time", file: fileLoad2, write: "O1 B r w\nO2 B r\n", answer: "EINVAL", show: fileLoad2, shows: []string{"O1 B r", "w O2 b"}},
	{name: "newlines mean nothing", file: fileLoad2, write: "O3\nB\nr O4 B\tw", show: fileLoad2, shows: []string{"O3 B r", "O4 B w"}},
	{name: "rules before an error stay", file: fileLoad2, write: "O5 B r\n-O6 B r\nO7 B r\n", answer: "EINVAL", show: fileLoad2, shows: []string{"O5 B r"}, lacks: []string{"O7 B"}},
	{name: "blanks alone", file: fileLoad2, write: " \n", answer: "EINVAL"},
	{name: "nothing", file: fileLoad2, write: ""},
	{name: "NUL", file: fileLoad2, write: "O8 B r\x00", answer: "EINVAL", show: fileLoad2, shows: []string{"O8 B r"}},
	{name: "two tokens", file: fileLoad2, write: "O9 B", answer: "EINVAL"},
	{name: "4095 bytes", file: fileLoad2, write: padded("P1", 4095), show: fileLoad2, shows: []string{"P1 B r"}},
	{name: "4096 bytes", file: fileLoad2, write: padded("P2", 4096), answer: "4088", show: fileLoad2, shows: []string{"P2 B r"}},
	{name: "4096 bytes without a newline", file: fileLoad2, write: strings.Repeat("P", 4096), answer: "EINVAL"},
	{name: "4095 bytes that end within a rule", file: fileLoad2, write: padded("P3", 4095)[:4093], answer: "EINVAL", show: fileLoad2, shows: []string{"P3 B r"}},

	// load, of fixed columns.
	{name: "old format", file: fileLoad, write: fixed("Q1", "B", "rwxa"), show: fileLoad, shows: []string{"Q1 B rwxa"}},
	{name: "old format, 54 bytes", file: fileLoad, write: fixed("Q2", "B", "rwxatl"), show: fileLoad, shows: []string{"Q2 B rwxatl"}},
	{name: "old format, 51 bytes", file: fileLoad, write: fixed("Q3", "B", "rwx"), answer: "EINVAL"},
	{name: "old format, 55 bytes", file: fileLoad, write: fixed("Q4", "B", "rwxatlb"), answer: "EINVAL"},
	{
		name: "old format, 24 bytes of a label", file: fileLoad, write: fixed("Q5"+strings.Repeat("q", 22), "B", "rwxa"),
		show: fileLoad, lacks: []string{"Q5"},
	},
	{name: "which load2 shows", file: fileLoad2, write: "", show: fileLoad2, shows: []string{"Q5" + strings.Repeat("q", 22) + " B rwxa"}},

	// change-rule.
	{name: "allow and deny", file: fileChange, write: "C1 B rwx -\nC1 B a w\n", show: fileLoad2, shows: []string{"C1 B rxa"}},
	{name: "deny wins", file: fileChange, write: "C2 B rw w", show: fileLoad2, shows: []string{"C2 B r"}},
	{name: "a rule is made", file: fileChange, write: "C3 B - -", show: fileLoad2, lacks: []string{"C3 B"}},
	{name: "three tokens", file: fileChange, write: "C4 B r", answer: "EINVAL"},
	{name: "unknown letters are not denied", file: fileChange, write: "C5 B rw -\nC5 B - qw\n", show: fileLoad2, shows: []string{"C5 B rw"}},

	// revoke-subject.
	{name: "rules to revoke", file: fileLoad2, write: "RV1 B rwx\nRV1 C r\nRV2 RV1 r\n"},
	{name: "the rest is ignored", file: fileRevoke, write: "RV1 RV2", show: fileLoad2, shows: []string{"RV2 RV1 r"}, lacks: []string{"RV1 B", "RV1 C"}},
	{name: "unknown subject", file: fileRevoke, write: "RVunknown", show: fileCipso2, lacks: []string{"RVunknown"}},
	{name: "revoke nothing", file: fileRevoke, write: "", answer: "EINVAL"},
	{name: "revoke a dash", file: fileRevoke, write: "-x", answer: "EINVAL"},
	{name: "revoke 256 bytes", file: fileRevoke, write: l255 + "m", answer: "EINVAL"},

	// cipso2.
	{name: "columns", file: fileCipso2, write: "I1 7   2   1   185 ", answer: "EINVAL"},
	{name: "the label is made all the same", file: fileLoad2, show: fileCipso2, shows: []string{"I1 250/"}},
	{name: "level and categories", file: fileCipso2, write: "I2 7   2   1   184 ", show: fileCipso2, shows: []string{"I2   7/1,184"}},
	{name: "no columns", file: fileCipso2, write: "I3 7", answer: "EOVERFLOW"},
	{name: "short columns", file: fileCipso2, write: "I4 7 2 1 2", answer: "EOVERFLOW"},
	{name: "level", file: fileCipso2, write: "I5 256 0   ", answer: "EINVAL"},
	{name: "category 0 is dropped", file: fileCipso2, write: "I6 8   2   0   3   ", show: fileCipso2, shows: []string{"I6   8/3"}},
	{name: "leading blank", file: fileCipso2, write: " I7 8   0   ", answer: "EINVAL"},
	{name: "no categories", file: fileCipso2, write: "I8 255 0   ", show: fileCipso2, shows: []string{"I8 255\n"}},
	{name: "old columns", file: fileCipso, write: fmt.Sprintf("%-24s9   1   5   ", "I9"), show: fileCipso, shows: []string{"I9   9/5"}},
	{name: "old columns, too short", file: fileCipso, write: fmt.Sprintf("%-24s9   1   ", "I10"), answer: "EINVAL"},

	// netlabel.
	{name: "octets wrap", file: fileNetlabel, write: "300.1.1.1 N1", show: fileNetlabel, shows: []string{"44.1.1.1/32 N1"}},
	{name: "host bits go", file: fileNetlabel, write: "10.1.2.3/8 N2", show: fileNetlabel, shows: []string{"10.0.0.0/8 N2"}},
	{name: "CIPSO hosts", file: fileNetlabel, write: "127.0.0.1 -CIPSO", show: fileNetlabel, shows: []string{"127.0.0.1/32 -CIPSO"}},
	{name: "no deleting", file: fileNetlabel, write: "10.0.0.0/8 -DELETE", answer: "EINVAL", show: fileNetlabel, shows: []string{"10.0.0.0/8 N2"}},
	{name: "mask", file: fileNetlabel, write: "10.0.0.0/33 N3", answer: "EINVAL"},
	{name: "8 bytes", file: fileNetlabel, write: "1.1.1.1 ", answer: "EINVAL"},
	{name: "cut label", file: fileNetlabel, write: "10.1.0.0/16 N4/x", show: fileNetlabel, shows: []string{"10.1.0.0/16 N4"}},

	// ipv6host.
	{name: "no double colon", file: fileIPv6, write: "fe80::1/64 N5", answer: "EINVAL"},
	{name: "mask in host order", file: fileIPv6, write: "fe80:0:0:0:0:0:0:1/10 N6", show: fileIPv6, shows: []string{"fe00:0000:0000:0000:0000:0000:0000:0000/10 N6"}},
	{name: "mask of 16", file: fileIPv6, write: "fe80:1:0:0:0:0:0:1/16 N7", show: fileIPv6, shows: []string{"fe80:0000:0000:0000:0000:0000:0000:0000/16 N7"}},
	{name: "deleted entries hide", file: fileIPv6, write: "fe80:1:0:0:0:0:0:1/16 -DELETE", show: fileIPv6, lacks: []string{"fe80:0000:0000:0000:0000:0000:0000:0000/16 "}},
	{name: "group", file: fileIPv6, write: "10000:0:0:0:0:0:0:1 N8", answer: "EINVAL"},
	{name: "mask 129", file: fileIPv6, write: "1:0:0:0:0:0:0:1/129 N8", answer: "EINVAL"},

	// Numbers.
	{name: "doi", file: fileDoi, write: "4\n", show: fileDoi, shows: []string{"4"}},
	{name: "doi 0", file: fileDoi, write: "0", answer: "EINVAL"},
	{name: "doi 2^32", file: fileDoi, write: "4294967296", answer: "ERANGE", old: "EINVAL"},
	{name: "doi back", file: fileDoi, write: "3", show: fileDoi, shows: []string{"3"}},
	{name: "direct 256", file: fileDirect, write: "256", answer: "ERANGE", old: "ok"},
	{name: "direct -1", file: fileDirect, write: "-1", answer: "EINVAL", old: "ok"},
	{name: "direct relabels", file: fileDirect, write: "77", show: fileCipso2, shows: []string{"N1  77/"}},
	{name: "direct back", file: fileDirect, write: "250", show: fileDirect, shows: []string{"250"}},
	{name: "mapped -1", file: fileMapped, write: "-1", answer: "EINVAL", old: "ok"},
	{name: "mapped back", file: fileMapped, write: "251", show: fileMapped, shows: []string{"251"}},
	{name: "logging", file: fileLogging, write: "3", show: fileLogging, shows: []string{"3\n"}},
	{name: "logging 4", file: fileLogging, write: "4", answer: "EINVAL"},
	{name: "logging -1", file: fileLogging, write: "-1", answer: "EINVAL"},
	{name: "logging x", file: fileLogging, write: "x", answer: "EINVAL"},
	{name: "logging back", file: fileLogging, write: "1"},
	{name: "ptrace", file: filePtrace, write: "2", show: filePtrace, shows: []string{"2\n"}},
	{name: "ptrace 3", file: filePtrace, write: "3", answer: "EINVAL"},
	{name: "ptrace back", file: filePtrace, write: "0"},

	// Labels of one kind or another.
	{name: "ambient is cut", file: fileAmbient, write: "M1/y", show: fileAmbient, shows: []string{"M1\x00"}},
	{name: "no ambient", file: fileAmbient, write: "", answer: "EINVAL"},
	{name: "ambient dash", file: fileAmbient, write: "-x", answer: "EINVAL", show: fileAmbient, shows: []string{"M1\x00"}},
	{name: "ambient back", file: fileAmbient, write: "_", show: fileAmbient, shows: []string{"_\x00"}},
	{name: "syslog", file: fileSyslog, write: "M2", show: fileSyslog, shows: []string{"M2\x00"}},
	{name: "syslog dash", file: fileSyslog, write: "-", answer: "EINVAL"},
	{name: "syslog back", file: fileSyslog, write: "*", show: fileSyslog, shows: []string{"*\x00"}},
	{name: "unconfined", file: fileUnconf, write: "M3", show: fileUnconf, shows: []string{"M3\x00"}, bringup: true},
	{name: "unconfined cleared by anything", file: fileUnconf, write: "/x", show: fileUnconf, shows: []string{"\x00"}, bringup: true},
	{name: "onlycap in reverse", file: fileOnlycap, write: "_ System", show: fileOnlycap, shows: []string{"System _ "}},
	{name: "newlines hide labels", file: fileOnlycap, write: "_\nSystem\n", show: fileOnlycap, shows: []string{"_ "}},
	{name: "a later label is invalid", file: fileOnlycap, write: "_ -x System", answer: "EINVAL", show: fileOnlycap, shows: []string{"_ "}},
	{name: "an invalid first label clears", file: fileOnlycap, write: "-typo System", show: fileOnlycap, shows: []string{""}},
	{name: "onlycap again", file: fileOnlycap, write: "_", show: fileOnlycap, shows: []string{"_ "}},
	{name: "nothing clears", file: fileOnlycap, write: "", show: fileOnlycap, shows: []string{""}},
	{name: "relabel-self", file: fileRelabel, write: "M4 M5"},
	{name: "relabel-self of nothing", file: fileRelabel, write: "", answer: "EINVAL"},
	{name: "relabel-self cleared", file: fileRelabel, write: "-"},
}

// padded gives whole rules of a subject, of n bytes together.
func padded(subject string, n int) string {
	s := strings.Repeat(subject+" B r\n", n/len(subject+" B r\n"))
	return s[:len(s)-1] + strings.Repeat(" ", n-len(s)) + "\n"
}

func fixed(subject, object, access string) string {
	return fmt.Sprintf("%-24s%-24s%s", subject, object, access)
}

// testObserved makes the writes one after the other.
func testObserved(t *testing.T, fs FS, k ModelKernel) {
	for _, tc := range observedWrites {
		if tc.bringup && !k.Bringup {
			continue
		}
		want := fmt.Sprintf("wrote %d ok; ", len(tc.write))
		switch answer := map[bool]string{true: tc.old, false: tc.answer}[k.Old && tc.old != ""]; {
		case answer == "" || answer == "ok":
		case answer[0] >= '0' && answer[0] <= '9':
			want = fmt.Sprintf("wrote %s ok; ", answer)
		default:
			want = "wrote 0 " + answer + "; "
		}
		if got := (kernelOp{file: tc.file, data: tc.write}).do(fs); got != want {
			t.Errorf("%s: %s, want %s", tc.name, got, want)
		}
		if tc.show == "" {
			continue
		}
		b, err := readFile(fs, tc.show)
		if err != nil {
			t.Fatal(err)
		}
		text := string(b)
		for _, s := range tc.shows {
			ok := text == s
			switch tc.show {
			case fileLoad, fileLoad2:
				ok = strings.Contains("\n"+text, "\n"+s+"\n")
			case fileCipso, fileCipso2, fileNetlabel, fileIPv6:
				ok = strings.Contains("\n"+text, "\n"+s)
			}
			if !ok {
				t.Errorf("%s: %s does not show %q: %.300q", tc.name, tc.show, s, text)
			}
		}
		for _, s := range tc.lacks {
			if strings.Contains("\n"+text, "\n"+s) {
				t.Errorf("%s: %s shows %q", tc.name, tc.show, s)
			}
		}
	}
}

// observedQuestions are answers of access2 after the rules "As Ob rwx", "Aw Ob w", "Az Ob -" and labels.
var observedQuestions = []struct{ ask, answer string }{
	{"As Ob r", "1"},
	{"As Ob rwx", "1"},
	{"As Ob a", "0"},
	{"As Ob -", "1"},
	{"As Ob q", "1"},
	{"Az Ob -", "0"},
	{"As Az -", "0"},
	{"As Ob l", "1"},
	{"Aw Ob l", "1"},
	{"Aw Ob wl", "1"},
	{"As _ r", "1"},
	{"As _ x", "1"},
	{"As _ l", "1"},
	{"As _ rl", "0"},
	{"As _ w", "0"},
	{"^ Ob r", "1"},
	{"^ Ob rl", "0"},
	{"^ Ob w", "0"},
	{"As ^ r", "0"},
	{"* * r", "0"},
	{"* @ r", "0"},
	{"* Ob r", "0"},
	{"^ * w", "1"},
	{"As * rwxatl", "1"},
	{"As @ rwxatl", "1"},
	{"@ As rwxatl", "1"},
	{"? _ r", "1"},
	{"? ? rwxatl", "1"},
	{"As As rwxatl", "1"},
	{"Ob As r", "0"},
	{"Nope _ r", "0"},
	{"As Nope r", "0"},
	{"As Ob r trailing text", "1"},
	{"As/x Ob/y r", "1"},
	{"-As Ob r", "EINVAL"},
	{"As Ob", "EINVAL"},
	{"", "EINVAL"},
}

func testObservedQuestions(t *testing.T, fs FS) {
	put(t, fs, "As Ob rwx\nAw Ob w\nAz Ob r\nAz Ob -\n")
	for _, tc := range observedQuestions {
		want := fmt.Sprintf("wrote %d ok; read %q ok", len(tc.ask), tc.answer+"\x00")
		if len(tc.answer) > 1 {
			want = "wrote 0 " + tc.answer + `; read "" ok`
		}
		if got := (kernelOp{file: fileAccess2, data: tc.ask, ask: true}).do(fs); got != want {
			t.Errorf("%q: %s, want %s", tc.ask, got, want)
		}
	}
	op := kernelOp{file: fileAccess2, data: "As Ob r", ask: true, twin: true}
	if got, want := op.do(fs), `wrote 7 ok; wrote 0 EBUSY; read "1\x00" ok`; got != want {
		t.Errorf("twice: %s, want %s", got, want)
	}
	for n, want := range map[int]string{53: `wrote 0 EINVAL; read "" ok`, 54: `wrote 54 ok; read "1\x00" ok`} {
		op := kernelOp{file: fileAccess, data: fmt.Sprintf("%-24s%-24s%-*s", "As", "Ob", n-48, "r"), ask: true}
		if got := op.do(fs); got != want {
			t.Errorf("access of %d bytes: %s, want %s", n, got, want)
		}
	}
	// A descriptor that was read from is written to no more.
	f, err := fs.Open(fileLoad2, unix.O_RDWR)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte("Pos B r")); errnoOf(err) != "EINVAL" {
		t.Errorf("write after a read: %v", err)
	}
}

func TestObserved(t *testing.T) {
	for _, k := range []ModelKernel{{Old: true}, {Bringup: true}} {
		t.Run(fmt.Sprintf("%+v", k), func(t *testing.T) {
			fs := NewModel(k).As(Root)
			testObserved(t, fs, k)
			testObservedQuestions(t, fs)
		})
	}
}
