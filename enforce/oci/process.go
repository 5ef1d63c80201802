package oci

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"policyd.dev/policyd/internal/errs"
)

// Launch is how programs of a container are started.
type Launch struct {
	Digest     string // of the profile that is put on
	SmackLabel string // that is taken on before, "" for none
}

// Prefix is what stands before a program's own arguments, in a container that
// has the mounts of [Config.Edited].
func (l Launch) Prefix() []string {
	args := []string{LauncherPath, "exec", "--file", ProfilePath, "--digest", l.Digest}
	if l.SmackLabel != "" {
		args = append(args, "--smack-label", l.SmackLabel)
	}
	return append(args, "--")
}

// Prefix is that of a container without a Smack label.
func Prefix(digest string) []string { return Launch{Digest: digest}.Prefix() }

// EditProcess gives the process file of an exec in a container that is started so. A file that has the launcher already stays as it is.
func EditProcess(text []byte, l Launch) ([]byte, error) {
	root, err := wholeText(text)
	if err != nil {
		return nil, err
	}
	if args, n, err := launched(text, root, l); err != nil || n > 0 && n < len(args) {
		return text, err
	}
	c, err := prefixArgs(text, root, l)
	if err != nil {
		return nil, err
	}
	return apply(text, []change{c}), nil
}

// StateLaunch gives how a container's programs are started, from what the
// runtime's `state` says; the zero Launch when it was created under no profile.
func StateLaunch(state []byte) (Launch, error) {
	if _, err := wholeText(state); err != nil {
		return Launch{}, err
	}
	a, err := annotations(state)
	return Launch{a[AnnotationApplied], a[AnnotationSmack]}, err
}

func prefixArgs(b []byte, process span, l Launch) (change, error) {
	args, err := arguments(b, process)
	if err != nil {
		return change{}, err
	}
	if len(args) == 0 {
		return change{}, fmt.Errorf("%w: args: there is no program", errs.ErrInvalid)
	}
	var text strings.Builder
	for _, a := range l.Prefix() {
		text.WriteString(quote(a) + ",")
	}
	return change{args[0].start, args[0].start, text.String()}, nil
}

// launched gives the arguments, and how many of them are the launcher's.
func launched(b []byte, process span, l Launch) (args []span, n int, err error) {
	if args, err = arguments(b, process); err != nil {
		return nil, 0, err
	}
	want := l.Prefix()
	if len(args) < len(want) {
		return args, 0, nil
	}
	var have []string
	for _, s := range args[:len(want)] {
		var v string
		if err := json.Unmarshal(b[s.start:s.end], &v); err != nil {
			return nil, 0, fmt.Errorf("%w: args: %w", errs.ErrInvalid, err)
		}
		have = append(have, v)
	}
	if !slices.Equal(have, want) {
		return args, 0, nil
	}
	return args, len(want), nil
}

func arguments(b []byte, process span) ([]span, error) {
	at, ok, err := member(b, process, "args")
	if err != nil || !ok {
		return nil, err
	}
	args, err := children(b, at, '[')
	if err != nil {
		return nil, fmt.Errorf("args: %w", err)
	}
	return args, nil
}
