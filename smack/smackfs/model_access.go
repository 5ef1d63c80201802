package smackfs

import (
	"golang.org/x/sys/unix"
)

// access is smk_access: whether the global rules allow it.
func (m *Model) access(subject, object *modelLabel, req uint8) bool {
	return m.ruled(subject, object, req) ||
		(m.kernel.Bringup && m.unconfined != nil && (object == m.unconfined || subject == m.unconfined))
}

func (m *Model) ruled(subject, object *modelLabel, req uint8) bool {
	switch {
	case subject.name == "*":
		return false
	case object.name == "@", subject.name == "@", object.name == "*", subject == object:
		return true
	}
	if req&^(mayRead|mayExec) == 0 || req&^mayLock == 0 {
		if object.name == "_" || subject.name == "^" {
			return true
		}
	}
	r := subject.rules.index[[2]*modelLabel{subject, object}]
	if r == nil || r.access == 0 {
		return false
	}
	may := r.access
	if may&mayWrite != 0 {
		may |= mayLock
	}
	return req&^may == 0
}

func writeAccess(fs *modelFS, f *modelFile, p []byte) (int, error) {
	if err := f.begin(p); err != nil {
		return 0, err
	}
	if len(p) < 54 {
		return 0, unix.EINVAL
	}
	r, err := fs.m.fillRule(cString(p), cString(p[oldLabelLen:]), cString(p[2*oldLabelLen:]), nil, oldLabelLen, false)
	if err := f.answer(fs.m, r, err); err != nil {
		return 0, err
	}
	return 54, nil
}

func writeAccess2(fs *modelFS, f *modelFile, p []byte) (int, error) {
	if err := f.begin(p); err != nil {
		return 0, err
	}
	r, _, err := fs.m.longRule(p, 3, false)
	if err := f.answer(fs.m, r, err); err != nil {
		return 0, err
	}
	return len(p), nil
}

// begin is simple_transaction_get: one write an open, also when that one failed.
func (f *modelFile) begin(p []byte) error {
	if len(p) > maxTransaction {
		return unix.EFBIG
	}
	if f.taken {
		return unix.EBUSY
	}
	f.taken = true
	return nil
}

// answer is the end of smk_user_access; labels the kernel has never seen are denied, not refused.
func (f *modelFile) answer(m *Model, r parsedRule, err error) error {
	switch {
	case err == unix.ENOENT:
		f.text = []byte("0\x00")
	case err != nil:
		return err
	case m.access(r.subject, r.object, r.allow):
		f.text = []byte("1\x00")
	default:
		f.text = []byte("0\x00")
	}
	return nil
}
