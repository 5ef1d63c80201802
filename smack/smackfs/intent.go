package smackfs

import (
	"bytes"
	"fmt"
	"iter"
	"os"
	"slices"
	"strings"

	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/smack"
)

// Intent is what a load is about to change, kept on disk while it does: if policyd is killed meanwhile, [Recover]
// tells from it what of the kernel's rules is policyd's. After the load, ended or put back, it is to be forgotten.
type Intent struct {
	Boot    string // the boot it was made in
	Order   Order
	Changes []Change
}

const intentHead = "policyd smack intent 1"

// Encode gives the bytes: a line "policyd smack intent 1 BOOT ORDER", a line "SUBJECT OBJECT FROM TO" for each change.
func (i *Intent) Encode() []byte { return encodeIntent(i.Boot, i.Order, slices.Values(i.Changes)) }

func encodeIntent(boot string, order Order, changes iter.Seq[Change]) []byte {
	b := fmt.Appendf(nil, "%s %s %s\n", intentHead, boot, order)
	for c := range changes {
		b = smack.Rule{Subject: c.Subject, Object: c.Object, Access: c.From}.Append(b)
		b = append(c.To.Append(append(b[:len(b)-1], ' ')), '\n')
	}
	return b
}

// ParseIntent reads what Encode wrote, and nothing else.
func ParseIntent(b []byte) (*Intent, error) {
	bad := func(line string) error { return fmt.Errorf("%w: intent of a load: %.120q", errs.ErrInvalid, line) }
	head, rest, ok := strings.Cut(string(b), "\n")
	fields, tail := strings.Split(head, " "), strings.TrimPrefix(head, intentHead+" ")
	if !ok || tail == head || len(fields) != 6 || fields[4] == "" {
		return nil, bad(head)
	}
	i := &Intent{Boot: fields[4]}
	if fields[5] == RevokesFirst.String() {
		i.Order = RevokesFirst
	}
	for line := range strings.Lines(rest) {
		col := strings.Split(strings.TrimSuffix(line, "\n"), " ")
		if len(col) != 4 || smack.CheckLabel(col[0]) != nil || smack.CheckLabel(col[1]) != nil {
			return nil, bad(line)
		}
		from, err := smack.ParseAccess(col[2])
		if err != nil {
			return nil, bad(line)
		}
		to, err := smack.ParseAccess(col[3])
		if err != nil {
			return nil, bad(line)
		}
		i.Changes = append(i.Changes, Change{col[0], col[1], from, to})
	}
	if !bytes.Equal(i.Encode(), b) {
		return nil, bad(head)
	}
	return i, nil
}

// BootID names this boot of the kernel: rules do not outlive it. It is "unknown" where /proc does not tell.
func BootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	id := strings.TrimSpace(string(b))
	if err != nil || id == "" || strings.ContainsAny(id, " \n") {
		return "unknown"
	}
	return id
}

// Recovery is how far an interrupted load had come.
type Recovery struct {
	Rebooted bool // the kernel was started anew since: nothing of the load is left
	// Before and After are how many pairs are as they were and as they should become; Between are those in the middle
	// of a change, and Other those that somebody else has changed since, as From, with To as the load wanted it.
	Before, After, Between int
	Other                  []Change
	// Owned is what is policyd's now, to be given to [Load] as owned, which mends whatever was left.
	Owned *smack.Set
}

// Recover looks at the kernel after a load that did not end. owned is what was owned before that load. Nothing is
// written: to go on, or to go back, is to load the one or the other policy with Owned.
func Recover(fs FS, owned *smack.Set, i *Intent) (*Recovery, error) {
	if i.Boot != BootID() {
		return &Recovery{Rebooted: true, Owned: &smack.Set{}}, nil
	}
	now, err := ReadRules(fs)
	if err != nil {
		return nil, err
	}
	r := &Recovery{}
	b := smack.NewSetBuilder()
	if owned != nil {
		for rule := range owned.All() {
			b.Set(rule.Subject, rule.Object, rule.Access)
		}
	}
	for _, c := range i.Changes {
		middle := i.Order.middle(c)
		is, _ := now.Lookup(c.Subject, c.Object)
		switch is {
		case c.From:
			r.Before++
		case c.To:
			r.After++
		case middle:
			r.Between++
		default:
			r.Other = append(r.Other, Change{c.Subject, c.Object, is, c.To})
		}
		// What the load has written is policyd's.
		if is == c.To || is == middle && is != c.From {
			b.Set(c.Subject, c.Object, is)
		}
	}
	if r.Owned, err = b.Build(); err != nil {
		return nil, err
	}
	return r, nil
}
