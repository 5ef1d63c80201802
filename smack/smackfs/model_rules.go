package smackfs

import (
	"bytes"

	"golang.org/x/sys/unix"
)

// Lengths of the kernel's security/smack/smack.h.
const (
	maxLabel    = 255 // SMK_LONGLABEL - 1
	oldLabelLen = 24  // SMK_LABELLEN: columns of load, access and cipso
	pageSize    = 4096
	// maxWrite is the most that load2 takes in one write.
	maxWrite = pageSize - 1
	// maxTransaction is what an access file takes (SIMPLE_TRANSACTION_LIMIT - 1).
	maxTransaction = pageSize - 8 - 1
)

const modelLetters = "rwxatlb"

const (
	mayRead = 1 << iota
	mayWrite
	mayExec
	mayAppend
	mayTransmute
	mayLock
	mayBringup
)

// parseLabel is smk_parse_smack: the label that b begins with. limit > 0 bounds how many bytes are looked at.
func parseLabel(b []byte, limit int) (string, error) {
	if limit > 0 && len(b) > limit {
		b = b[:limit]
	}
	if len(b) > 0 && b[0] == '-' {
		return "", unix.EINVAL
	}
	i := 0
	for i < len(b) && !stopByte(b[i]) {
		i++
	}
	if i == 0 || i > maxLabel {
		return "", unix.EINVAL
	}
	return string(b[:i]), nil
}

// importLabel is smk_import_entry: it makes the label when it is not known.
func (m *Model) importLabel(b []byte, limit int) (*modelLabel, error) {
	name, err := parseLabel(b, limit)
	if err != nil {
		return nil, err
	}
	if l, ok := m.byName[name]; ok {
		return l, nil
	}
	return m.insert(name), nil
}

// insert is smack_populate_secattr and smk_insert_entry.
func (m *Model) insert(name string) *modelLabel {
	l := &modelLabel{name: name}
	if len(name) < oldLabelLen {
		l.level, l.cats = m.direct, []byte(name)
	} else {
		id := m.secid
		l.level, l.cats = m.mapped, []byte{byte(id), byte(id >> 8), byte(id >> 16), byte(id >> 24)}
	}
	m.secid++
	m.known = append(m.known, l)
	m.byName[name] = l
	return l
}

// parseAccess is smk_perm_from_str: it ends at the first letter it does not know, without an error.
func parseAccess(b []byte) uint8 {
	var a uint8
	for _, c := range b {
		if c == '-' {
			continue
		}
		i := bytes.IndexByte([]byte(modelLetters), c|0x20)
		if i < 0 || c == 0 {
			break
		}
		a |= 1 << i
	}
	return a
}

func appendAccess(b []byte, a uint8) []byte {
	for i := range len(modelLetters) {
		if a&(1<<i) != 0 {
			b = append(b, modelLetters[i])
		}
	}
	return b
}

// parsedRule sets access to (access | allow) &^ deny.
type parsedRule struct {
	subject, object *modelLabel
	allow, deny     uint8
}

func (m *Model) set(rules *modelRules, r parsedRule) {
	key := [2]*modelLabel{r.subject, r.object}
	old := rules.index[key]
	if old == nil {
		if rules.index == nil {
			rules.index = map[[2]*modelLabel]*modelRule{}
		}
		old = &modelRule{subject: r.subject, object: r.object}
		rules.index[key] = old
		rules.list = append(rules.list, old)
		m.rulesMade++
	}
	old.access = (old.access | r.allow) &^ r.deny
}

// fillRule is smk_fill_rule. With make, labels that are not known are made, the subject also when the object is bad.
// Without, an unknown label is ENOENT.
func (m *Model) fillRule(subject, object, allow, deny []byte, limit int, makeLabels bool) (r parsedRule, err error) {
	find := func(b []byte) (*modelLabel, error) {
		if makeLabels {
			return m.importLabel(b, limit)
		}
		name, err := parseLabel(b, limit)
		if err != nil {
			return nil, err
		}
		l, ok := m.byName[name]
		if !ok {
			return nil, unix.ENOENT
		}
		return l, nil
	}
	if r.subject, err = find(subject); err != nil {
		return r, err
	}
	if r.object, err = find(object); err != nil {
		return r, err
	}
	r.allow = parseAccess(allow)
	if deny != nil {
		r.deny = parseAccess(deny)
	} else {
		r.deny = ^r.allow
	}
	return r, nil
}

// longRule is smk_parse_long_rule: tokens from b, up to four, and how many bytes they take with the blanks after them.
func (m *Model) longRule(b []byte, tokens int, makeLabels bool) (parsedRule, int, error) {
	var tok [4][]byte
	n := 0
	for i := range tokens {
		for n < len(b) && isSpace(b[n]) {
			n++
		}
		if n == len(b) || b[n] == 0 {
			return parsedRule{}, 0, unix.EINVAL
		}
		start := n
		for n < len(b) && b[n] != 0 && !isSpace(b[n]) {
			n++
		}
		tok[i] = b[start:n]
	}
	for n < len(b) && isSpace(b[n]) {
		n++
	}
	r, err := m.fillRule(tok[0], tok[1], tok[2], tok[3], 0, makeLabels)
	return r, n, err
}

// writeRules is smk_write_rules_list for the long formats: rules before an error stay.
func (m *Model) writeRules(f *modelFile, p []byte, tokens int, self *modelRules) (int, error) {
	if f.pos != 0 {
		return 0, unix.EINVAL
	}
	if len(p) > maxWrite {
		p = p[:bytes.LastIndexByte(p[:maxWrite], '\n')+1]
		if len(p) == 0 {
			return 0, unix.EINVAL
		}
	}
	n := 0
	for n < len(p) {
		r, used, err := m.longRule(p[n:], tokens, true)
		if err != nil {
			return 0, unix.EINVAL
		}
		n += used
		rules := self
		if rules == nil {
			rules = &r.subject.rules
		}
		m.set(rules, r)
	}
	return n, nil
}

// writeFixed is smk_write_rules_list for the 24-byte columns.
func (m *Model) writeFixed(f *modelFile, p []byte, self *modelRules) (int, error) {
	if f.pos != 0 || len(p) < 52 || len(p) > 54 {
		return 0, unix.EINVAL
	}
	r, err := m.fillRule(cString(p), cString(p[oldLabelLen:]), cString(p[2*oldLabelLen:]), nil, oldLabelLen, true)
	if err != nil {
		return 0, unix.EINVAL
	}
	if self == nil {
		self = &r.subject.rules
	}
	m.set(self, r)
	return len(p), nil
}

func cString(b []byte) []byte {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		return b[:i]
	}
	return b
}

func writeLoad(fs *modelFS, f *modelFile, p []byte) (int, error) {
	if !fs.privileged() {
		return 0, unix.EPERM
	}
	return fs.m.writeFixed(f, p, nil)
}

func writeLoad2(fs *modelFS, f *modelFile, p []byte) (int, error) {
	if !fs.privileged() {
		return 0, unix.EPERM
	}
	return fs.m.writeRules(f, p, 3, nil)
}

func writeSelf(fs *modelFS, f *modelFile, p []byte) (int, error) {
	return fs.m.writeFixed(f, p, &fs.self)
}

func writeSelf2(fs *modelFS, f *modelFile, p []byte) (int, error) {
	return fs.m.writeRules(f, p, 3, &fs.self)
}

func writeChange(fs *modelFS, f *modelFile, p []byte) (int, error) {
	if !fs.privileged() {
		return 0, unix.EPERM
	}
	return fs.m.writeRules(f, p, 4, nil)
}

// writeRevoke is smk_write_revoke_subj: an unknown label is no error and is not made.
func writeRevoke(fs *modelFS, f *modelFile, p []byte) (int, error) {
	if f.pos != 0 {
		return 0, unix.EINVAL
	}
	if !fs.privileged() {
		return 0, unix.EPERM
	}
	if len(p) == 0 || len(p) > maxLabel+1 {
		return 0, unix.EINVAL
	}
	name, err := parseLabel(p, 0)
	if err != nil {
		return 0, err
	}
	if l, ok := fs.m.byName[name]; ok {
		for _, r := range l.rules.list {
			r.access = 0
		}
	}
	return len(p), nil
}

func showRules(maxLen int) func(*modelFS) []byte {
	return func(fs *modelFS) []byte {
		var out []byte
		for i := len(fs.m.known) - 1; i >= 0; i-- {
			out = fs.m.known[i].rules.show(out, maxLen)
		}
		return out
	}
}

func showSelf(maxLen int) func(*modelFS) []byte {
	return func(fs *modelFS) []byte { return fs.self.show(nil, maxLen) }
}

// show appends the rules, newest first, without those of no access or of labels that do not fit the file's format.
func (rules *modelRules) show(out []byte, maxLen int) []byte {
	for i := len(rules.list) - 1; i >= 0; i-- {
		r := rules.list[i]
		if r.access == 0 || len(r.subject.name) >= maxLen || len(r.object.name) >= maxLen {
			continue
		}
		out = append(out, r.subject.name...)
		out = append(out, ' ')
		out = append(out, r.object.name...)
		out = append(out, ' ')
		out = appendAccess(out, r.access)
		out = append(out, '\n')
	}
	return out
}
