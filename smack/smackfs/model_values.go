package smackfs

import (
	"bytes"
	"math"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// kstrtou is the kernel's kstrtouN for base 10: a leading +, digits, one newline at the end.
// kstrtouN_from_user looks at the first N+2 bytes alone; look is that number, or 0 for all.
func kstrtou(p []byte, most uint64, look int) (uint64, error) {
	if look > 0 {
		p = p[:min(len(p), look)]
	}
	p = cString(p)
	if len(p) > 0 && p[0] == '+' {
		p = p[1:]
	}
	p = bytes.TrimSuffix(p, []byte("\n"))
	if len(p) == 0 {
		return 0, unix.EINVAL
	}
	var v uint64
	over := false
	for _, c := range p {
		d, ok := digit(c, 10)
		if !ok {
			return 0, unix.EINVAL
		}
		over = over || v > (math.MaxUint64-d)/10
		v = v*10 + d
	}
	if over || v > most {
		return 0, unix.ERANGE
	}
	return v, nil
}

// kstrtoi is kstrtoint_from_user for base 10.
func kstrtoi(p []byte) (int, error) {
	p = p[:min(len(p), 34)]
	if rest, neg := bytes.CutPrefix(p, []byte("-")); neg {
		if len(rest) > 0 && rest[0] == '+' {
			return 0, unix.EINVAL
		}
		v, err := kstrtou(rest, -math.MinInt32, 0)
		return -int(v), err
	}
	v, err := kstrtou(p, math.MaxInt32, 0)
	return int(v), err
}

// sscanInt is sscanf(p, "%d") into an int.
func (k ModelKernel) sscanInt(p []byte) (int, error) {
	s := k.scan(p)
	v := int(int32(s.number(10, true)))
	if s.n != 1 {
		return 0, unix.EINVAL
	}
	return v, nil
}

func writeDoi(fs *modelFS, _ *modelFile, p []byte) (int, error) {
	if !fs.privileged() {
		return 0, unix.EPERM
	}
	if fs.m.kernel.Old && (len(p) == 0 || len(p) >= 80) {
		return 0, unix.EINVAL
	}
	look := 0
	if !fs.m.kernel.Old {
		look = 34
	}
	v, err := kstrtou(p, math.MaxUint32, look)
	switch {
	case err != nil && fs.m.kernel.Old, err == nil && v == 0: // 0 is CIPSO_V4_DOI_UNKNOWN
		return 0, unix.EINVAL
	case err != nil:
		return 0, err
	}
	fs.m.doi = v
	return len(p), nil
}

func showDoi(fs *modelFS) []byte { return strconv.AppendUint(nil, fs.m.doi, 10) }

func directOf(m *Model) *int  { return &m.direct }
func mappedOf(m *Model) *int  { return &m.mapped }
func loggingOf(m *Model) *int { return &m.logging }
func ptraceOf(m *Model) *int  { return &m.ptrace }

type modelWrite = func(*modelFS, *modelFile, []byte) (int, error)

// writeLevel is smk_write_direct and smk_write_mapped: every label at the old level moves to the new one, also one that
// was put there by cipso2.
func writeLevel(of func(*Model) *int) modelWrite {
	return func(fs *modelFS, _ *modelFile, p []byte) (int, error) {
		if !fs.privileged() {
			return 0, unix.EPERM
		}
		var to int
		var err error
		if fs.m.kernel.Old {
			if len(p) == 0 || len(p) >= 80 {
				return 0, unix.EINVAL
			}
			to, err = fs.m.kernel.sscanInt(p)
		} else {
			var v uint64
			v, err = kstrtou(p, maxLevel, 10)
			to = int(v)
		}
		if err != nil {
			return 0, err
		}
		level := of(fs.m)
		for _, l := range fs.m.known {
			if l.level == *level {
				l.level = to
			}
		}
		*level = to
		return len(p), nil
	}
}

func showLevel(of func(*Model) *int) func(*modelFS) []byte {
	return func(fs *modelFS) []byte { return strconv.AppendInt(nil, int64(*of(fs.m)), 10) }
}

// writeSmall is smk_write_logging and smk_write_ptrace.
func writeSmall(of func(*Model) *int, most int, atStart bool) modelWrite {
	return func(fs *modelFS, f *modelFile, p []byte) (int, error) {
		if !fs.privileged() {
			return 0, unix.EPERM
		}
		parse := kstrtoi
		if fs.m.kernel.Old {
			parse = fs.m.kernel.sscanInt
			if len(p) == 0 || len(p) >= 32 {
				return 0, unix.EINVAL
			}
		}
		if atStart && f.pos != 0 {
			return 0, unix.EINVAL
		}
		v, err := parse(p)
		if err != nil {
			return 0, err
		}
		if v < 0 || v > most {
			return 0, unix.EINVAL
		}
		*of(fs.m) = v
		return len(p), nil
	}
}

func showSmall(of func(*Model) *int) func(*modelFS) []byte {
	return func(fs *modelFS) []byte { return append(showLevel(of)(fs), '\n') }
}

func writeAmbient(fs *modelFS, _ *modelFile, p []byte) (int, error) {
	if !fs.privileged() {
		return 0, unix.EPERM
	}
	l, err := fs.m.importLabel(cString(p), len(p))
	if err != nil {
		return 0, err
	}
	fs.m.ambient = l
	return len(p), nil
}

func showAmbient(fs *modelFS) []byte { return append([]byte(fs.m.ambient.name), 0) }

func writeSyslog(fs *modelFS, _ *modelFile, p []byte) (int, error) {
	if !fs.privileged() {
		return 0, unix.EPERM
	}
	l, err := fs.m.importLabel(cString(p), len(p))
	if err != nil {
		return 0, err
	}
	fs.m.syslog = l
	return len(p), nil
}

func showSyslog(fs *modelFS) []byte {
	if fs.m.syslog == nil {
		return []byte("*\x00")
	}
	return append([]byte(fs.m.syslog.name), 0)
}

// writeUnconfined is smk_write_unconfined: what is no label clears it.
func writeUnconfined(fs *modelFS, _ *modelFile, p []byte) (int, error) {
	if !fs.privileged() {
		return 0, unix.EPERM
	}
	if len(p) > pageSize {
		return 0, unix.EINVAL
	}
	l, err := fs.m.importLabel(cString(p), len(p))
	if err != nil {
		l = nil
	}
	fs.m.unconfined = l
	return len(p), nil
}

func showUnconfined(fs *modelFS) []byte {
	if fs.m.unconfined == nil {
		return []byte{0}
	}
	return append([]byte(fs.m.unconfined.name), 0)
}

// labelList is smk_parse_label_list and what its callers make of an error: labels are split at blanks alone, each ends
// at its first stop byte, and a list that begins with something invalid is an empty list. ok is false when the list was
// refused.
func (m *Model) labelList(p []byte) (list []*modelLabel, ok bool) {
	for tok := range bytes.SplitSeq(cString(p), []byte(" ")) {
		if len(tok) == 0 {
			continue
		}
		l, err := m.importLabel(tok, 0)
		if err != nil {
			return nil, len(list) == 0
		}
		list = append(list, l)
	}
	return list, true
}

func writeOnlycap(fs *modelFS, _ *modelFile, p []byte) (int, error) {
	if !fs.privileged() {
		return 0, unix.EPERM
	}
	if len(p) > pageSize {
		return 0, unix.EINVAL
	}
	list, ok := fs.m.labelList(p)
	if !ok {
		return 0, unix.EINVAL
	}
	fs.m.onlycap = list
	return len(p), nil
}

func showOnlycap(fs *modelFS) []byte { return showLabels(fs.m.onlycap) }

func writeRelabel(fs *modelFS, f *modelFile, p []byte) (int, error) {
	if !fs.privileged() {
		return 0, unix.EPERM
	}
	if f.pos != 0 || len(p) == 0 || len(p) > pageSize {
		return 0, unix.EINVAL
	}
	list, ok := fs.m.labelList(p)
	if !ok {
		return 0, unix.EINVAL
	}
	fs.relabel = list
	slices.Reverse(fs.self.list) // the credentials are copied, rule by rule to the front
	return len(p), nil
}

func showRelabel(fs *modelFS) []byte { return showLabels(fs.relabel) }

func showLabels(list []*modelLabel) []byte {
	var out []byte
	for _, l := range slices.Backward(list) {
		out = append(append(out, l.name...), ' ')
	}
	return out
}
