package main

import (
	"bytes"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"policyd.dev/policyd/enforce/oci"
	"policyd.dev/policyd/internal/containers"
)

// confineExec puts the launcher before what is executed in a container that was
// created under a profile, and gives the runtime's arguments. Which profile that
// is only the runtime knows: a record made here may be of another attempt to
// create a container of its name. What runc and crun keep is read; any other
// runtime, and one that keeps it otherwise, is asked.
func confineExec(runtime string, l *line) ([]string, error) {
	if len(l.rest) == 0 {
		return nil, errors.New("exec: want the id of a container")
	}
	launch, err := containerLaunch(runtime, l)
	if err != nil || launch.Digest == "" {
		return l.args, err
	}
	if err := containers.AllowLabel(launch.SmackLabel); err != nil {
		return nil, err
	}
	if path, ok := l.opts["process"]; ok {
		text, err := readText(path)
		if err != nil {
			return nil, fmt.Errorf("process file: %w", err)
		}
		edited, err := oci.EditProcess(text, launch)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if !bytes.Equal(edited, text) {
			err = replaceText(path, edited)
		}
		return l.args, err
	}
	if len(l.rest) == 1 {
		return nil, errors.New("exec: want a program")
	}
	return slices.Insert(slices.Clone(l.args), l.restAt+1, launch.Prefix()...), nil
}

func containerLaunch(runtime string, l *line) (oci.Launch, error) {
	if root := containers.RootOf(runtime, l.opts["root"]); root != "" {
		if st, err := containers.Runtime(root, l.rest[0]); err == nil {
			return oci.Launch{Digest: st.Digest, SmackLabel: st.SmackLabel}, nil
		}
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(runtime, append(slices.Clone(l.globals), "state", l.rest[0])...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return oci.Launch{}, fmt.Errorf("learn the profile of container %q: %s state: %w: %s", l.rest[0], runtime, err, strings.TrimSpace(stderr.String()))
	}
	launch, err := oci.StateLaunch(stdout.Bytes())
	if err != nil {
		return launch, fmt.Errorf("learn the profile of container %q: %w", l.rest[0], err)
	}
	return launch, nil
}
