package main

import (
	"path/filepath"
	"slices"
	"time"

	"policyd.dev/policyd/enforce/oci"
	"policyd.dev/policyd/internal/ask"
	"policyd.dev/policyd/internal/containers"
)

// record tells policyd of the container, before there is one: policyd shows it,
// and the profile's file stays as long as the record.
func (s *settings) record(l *line, runtime string, c *oci.Config, q *ask.Question, p *known) error {
	bundle, err := filepath.Abs(l.opts["bundle"])
	if err != nil {
		return err
	}
	r := &containers.Record{
		ID: l.id(), Root: containers.RootOf(runtime, l.opts["root"]), Bundle: bundle, Runtime: runtime,
		Version: p.Version, Digest: p.Digest, Ref: q.Ref, Binding: p.Binding, Parameters: q.Parameters,
		SmackLabel: p.SmackLabel, Missing: p.Missing, LastKnown: p.Last, Created: time.Now().UTC(), // local time would be read from a file
		Workload: containers.Workload{Image: c.Image, Namespace: c.Namespace, Name: c.Container, Pod: c.Pod, Annotations: c.Annotations},
	}
	if file := l.opts["pid-file"]; file != "" {
		if r.PidFile, err = filepath.Abs(file); err != nil {
			return err
		}
	}
	return containers.Write(s.Records, r)
}

// id is the container's in create, run and restore; an error of the runtime's
// command line is for the runtime to tell.
func (l *line) id() string {
	if len(l.rest) == 0 {
		return ""
	}
	return l.rest[0]
}

// forgetContainer takes the record of a container away that the runtime is about
// to delete. Where it will not delete it, or that cannot be told, the record
// stays, and policyd removes it when the container is gone.
func (s *settings) forgetContainer(l *line, runtime string) {
	rest := slices.DeleteFunc(slices.Clone(l.args[min(len(l.globals)+1, len(l.args)):]), func(a string) bool { return a == "--" })
	force := slices.Contains(rest, "--force") || slices.Contains(rest, "-f")
	rest = slices.DeleteFunc(rest, func(a string) bool { return a == "--force" || a == "-f" })
	root := containers.RootOf(runtime, l.opts["root"])
	if len(rest) != 1 || containers.CheckID(rest[0]) != nil || root == "" {
		return
	}
	r, err := containers.Read(s.Records, root, rest[0])
	if err != nil {
		return
	}
	if now := r.Look().State; force || now == containers.Stopped || now == containers.Gone {
		_ = containers.Remove(s.Records, root, rest[0])
	}
}
