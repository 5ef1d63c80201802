package smackfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// shown are the files that can be compared by reading them.
var shown = []string{
	fileLoad, fileLoad2, fileSelf, fileSelf2, fileCipso, fileCipso2, fileNetlabel, fileIPv6, fileDoi, fileDirect, fileMapped,
	fileAmbient, fileOnlycap, fileRelabel, fileUnconf, fileSyslog, fileLogging, filePtrace, fileChange, fileRevoke,
}

// kernelOp is one odd or valid write, with a read on the same descriptor for the access files.
type kernelOp struct {
	file string
	data string
	ask  bool // read the answer
	twin bool // write twice on one descriptor
}

func (op kernelOp) String() string { return fmt.Sprintf("%s %q twice=%v", op.file, op.data, op.twin) }

// do gives what the operation showed, as text that can be compared.
func (op kernelOp) do(fs FS) string {
	flag := unix.O_WRONLY
	if op.ask {
		flag = unix.O_RDWR
	}
	f, err := fs.Open(op.file, flag)
	if err != nil {
		return "open: " + errnoOf(err)
	}
	defer f.Close()
	var out strings.Builder
	for range 1 + map[bool]int{true: 1}[op.twin] {
		n, err := f.Write([]byte(op.data))
		fmt.Fprintf(&out, "wrote %d %s; ", n, errnoOf(err))
	}
	if op.ask {
		var buf [16]byte
		n, err := f.Read(buf[:])
		if errors.Is(err, io.EOF) {
			err = nil
		}
		fmt.Fprintf(&out, "read %q %s", buf[:n], errnoOf(err))
	}
	return out.String()
}

func errnoOf(err error) string {
	var errno unix.Errno
	switch {
	case err == nil:
		return "ok"
	case errors.As(err, &errno):
		return unix.ErrnoName(errno)
	}
	return err.Error()
}

// opMaker makes random operations of which about half are odd.
type opMaker struct {
	r      *rand.Rand
	labels []string
}

func newOpMaker(seed uint64) *opMaker {
	m := &opMaker{r: rand.New(rand.NewPCG(seed, 1))}
	m.labels = []string{"_", "^", "*", "?", "@"}
	for i := range 12 {
		m.labels = append(m.labels, fmt.Sprintf("Rnd%d", i))
	}
	m.labels = append(m.labels,
		strings.Repeat("t", 22), strings.Repeat("t", 23), strings.Repeat("t", 24), strings.Repeat("t", 25),
		strings.Repeat("L", 255), "a#b;c:d,e", "~T~", "x-y", "{|}`")
	return m
}

func (m *opMaker) pick(s ...string) string { return s[m.r.IntN(len(s))] }

func (m *opMaker) odd() bool { return m.r.IntN(3) == 0 }

func (m *opMaker) label() string {
	if !m.odd() {
		return m.labels[m.r.IntN(len(m.labels))]
	}
	l := m.labels[m.r.IntN(len(m.labels))]
	switch m.r.IntN(8) {
	case 0:
		return "-" + l
	case 1:
		return ""
	case 2:
		return strings.Repeat("Q", 256)
	case 3:
		return l + m.pick("/", `"`, "'", `\`, "\x7f", "\x01", "é", "à", "\xa0", "\xff") + "rest"
	case 4:
		return m.pick("/", `"`, "é", "\x7f") + l
	case 5:
		return l + "\x00"
	default:
		return fmt.Sprintf("New%d", m.r.IntN(200))
	}
}

func (m *opMaker) letters() string {
	if m.odd() {
		return m.pick("-", "", "RWX", "rrr", "waxbeans", "7", "qrw", "rwV10", "r-x-", "b", "rwxatlb", "r\x00w")
	}
	b := ""
	for _, c := range "rwxatlb" {
		if m.r.IntN(3) == 0 {
			b += string(c)
		}
	}
	if b == "" {
		b = "-"
	}
	return b
}

func (m *opMaker) blank() string {
	if m.odd() {
		return m.pick("  ", "\t", "\n", "\r\n", "\v", "\xa0", "")
	}
	return " "
}

func (m *opMaker) number(most int) string {
	if m.odd() {
		return m.pick("-1", "256", "3000000000", "-9999999999", "0000000000000000000000000000000000000001", "-0", "255", "999", "x", "", "+3", " 4", "4294967296", "0", "0x5", "1e3", "300", "18446744073709551617", "5\n", "5\n\n", "5\x00", "007")
	}
	return fmt.Sprint(m.r.IntN(most + 1))
}

func (m *opMaker) rules(columns int) string {
	var b strings.Builder
	n := 1 + m.r.IntN(4)
	if m.r.IntN(20) == 0 {
		n = 100 + m.r.IntN(200)
	}
	for range n {
		b.WriteString(m.label() + m.blank() + m.label() + m.blank() + m.letters())
		if columns == 4 {
			b.WriteString(m.blank() + m.letters())
		}
		b.WriteString(m.pick("\n", "\n", "\n", "\n", "", " "))
	}
	return b.String()
}

func (m *opMaker) fixed() string {
	s := fmt.Sprintf("%-24s%-24s", m.label(), m.label())
	if m.odd() {
		return s + m.letters()
	}
	return s + fmt.Sprintf("%-*s", 4+m.r.IntN(3), m.letters())
}

func (m *opMaker) cipso() string {
	n := m.r.IntN(5)
	s := fmt.Sprintf("%-4s", m.number(255))
	if m.odd() {
		s += fmt.Sprintf("%-4s", m.number(10))
	} else {
		s += fmt.Sprintf("%-4d", n)
	}
	for range n {
		s += fmt.Sprintf("%-4s", m.number(184))
	}
	if m.odd() {
		s = s[:m.r.IntN(len(s)+1)]
	}
	return s
}

func (m *opMaker) net4() string {
	s := ""
	for i := range 4 {
		if i > 0 {
			s += m.pick(".", ".", ".", ".", ".", ".", ".", ".", "", " .")
		}
		if m.r.IntN(12) == 0 {
			s += m.number(255)
		} else {
			s += fmt.Sprint(m.r.IntN(4))
		}
	}
	if m.r.IntN(2) == 0 {
		s += "/" + m.pick("0", "8", "16", "24", "31", "32", "33", "-1", "", "x", " 8")
	}
	return s + m.blank() + m.pick(m.label(), m.label(), m.label(), "-CIPSO", "-DELETE", "-x")
}

func (m *opMaker) net6() string {
	s := ""
	for i := range 8 {
		if i > 0 {
			s += m.pick(":", ":", ":", ":", ":", ":", ":", ":", ":", ":", ":", ":", ":", ":", ":", "::")
		}
		s += m.pick("fe80", "0", "1", "ffff", "a1b2", "0", "1", "2001", "0x12", "10000", "FE80")
	}
	if m.r.IntN(2) == 0 {
		s += "/" + m.pick("0", "1", "10", "16", "24", "64", "127", "128", "129", "-1", "", "48")
	}
	return s + m.blank() + m.pick(m.label(), m.label(), m.label(), "-CIPSO", "-DELETE", "-x")
}

func (m *opMaker) list() string {
	var s []string
	for range m.r.IntN(4) {
		s = append(s, m.label())
	}
	return strings.Join(s, m.pick(" ", " ", "  ", "\n")) + m.pick("", "", " ", "\n", "\x00")
}

// op leaves the caller its privilege: onlycap stays empty or holds the floor label.
func (m *opMaker) op() kernelOp {
	twin := m.r.IntN(20) == 0
	switch m.r.IntN(24) {
	case 0, 1, 2, 3, 4:
		return kernelOp{file: fileLoad2, data: m.rules(3), twin: twin}
	case 5, 6:
		return kernelOp{file: fileChange, data: m.rules(4), twin: twin}
	case 7:
		return kernelOp{file: fileRevoke, data: m.label() + m.pick("", " x", "\n"), twin: twin}
	case 8:
		return kernelOp{file: fileLoad, data: m.fixed(), twin: twin}
	case 9:
		return kernelOp{file: m.pick(fileSelf2, fileSelf2, fileSelf), data: m.pick(m.rules(3), m.fixed()), twin: twin}
	case 10, 11, 12, 13:
		return kernelOp{file: fileAccess2, data: m.label() + m.blank() + m.label() + m.blank() + m.letters() + m.pick("", "\n", " more"), ask: true, twin: twin}
	case 14:
		return kernelOp{file: fileAccess, data: fmt.Sprintf("%-24s%-24s%-*s", m.label(), m.label(), 4+m.r.IntN(4), m.letters()), ask: true, twin: twin}
	case 15, 16:
		return kernelOp{file: fileCipso2, data: m.label() + m.pick(" ", " ", " ", "  ", "") + m.cipso(), twin: twin}
	case 17:
		return kernelOp{file: fileCipso, data: fmt.Sprintf("%-24s", m.label()) + m.cipso(), twin: twin}
	case 18:
		return kernelOp{file: fileNetlabel, data: m.net4(), twin: twin}
	case 19:
		return kernelOp{file: fileIPv6, data: m.net6(), twin: twin}
	case 20:
		return kernelOp{file: m.pick(fileDirect, fileMapped, fileDoi, fileLogging, filePtrace), data: m.number(3), twin: twin}
	case 21:
		return kernelOp{file: m.pick(fileAmbient, fileUnconf, fileSyslog), data: m.label() + m.pick("", "\n", " x", "\x00"), twin: twin}
	case 22:
		return kernelOp{file: fileRelabel, data: m.list(), twin: twin}
	default:
		data := m.pick("_ ", "_\n", "_/x ", "", "- ", "/ ") + m.list()
		list, ok := NewModel(ModelKernel{}).labelList([]byte(data))
		if ok && len(list) > 0 && !slices.ContainsFunc(list, func(l *modelLabel) bool { return l.name == "_" }) {
			data = "_ " + data
		}
		return kernelOp{file: fileOnlycap, data: data, twin: twin}
	}
}

// diffShown compares what every readable file shows.
func diffShown(a, b FS) string {
	for _, name := range shown {
		ta, ea := readFile(a, name)
		tb, eb := readFile(b, name)
		if errnoOf(ea) != errnoOf(eb) {
			return fmt.Sprintf("%s: %v, %v", name, ea, eb)
		}
		if !bytes.Equal(ta, tb) {
			la, lb := strings.SplitAfter(string(ta), "\n"), strings.SplitAfter(string(tb), "\n")
			for i := range max(len(la), len(lb)) {
				var x, y string
				if i < len(la) {
					x = la[i]
				}
				if i < len(lb) {
					y = lb[i]
				}
				if x != y {
					return fmt.Sprintf("%s line %d: %q, %q", name, i+1, x, y)
				}
			}
		}
	}
	return ""
}

// testSideBySide writes the same to the model and to the kernel.
func testSideBySide(t *testing.T, model, kernel FS, seed uint64, n int) {
	m := newOpMaker(seed)
	var last []string
	for i := range n {
		op := m.op()
		want, got := op.do(model), op.do(kernel)
		last = append(last, op.String())
		if want != got {
			t.Errorf("operation %d of seed %d: %s\nmodel:  %s\nkernel: %s", i, seed, op, want, got)
			if t.Failed() && len(last) > 0 {
				return
			}
		}
		if i%16 == 15 || i == n-1 {
			if d := diffShown(model, kernel); d != "" {
				t.Fatalf("operation %d of seed %d: model and kernel (right) show different files: %s\nafter\n%s", i, seed, d, strings.Join(last, "\n"))
			}
			last = last[:0]
		}
	}
}
