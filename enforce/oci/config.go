package oci

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"policyd.dev/policyd/internal/errs"
)

// Annotations of a container. Any other of this prefix is refused: a mistyped
// one must not leave a container unconfined.
const (
	prefix = "policyd.dev/"
	// AnnotationProfile names the policy, as NAME, NAME@VERSION or NAME@TAG.
	AnnotationProfile = prefix + "profile"
	// annotationContainer with a container's name goes before AnnotationProfile (see ofContainer).
	annotationContainer = AnnotationProfile + "/container."
	// AnnotationApplied is the digest of the profile the edit put in.
	AnnotationApplied = prefix + "applied"
	// AnnotationVersion is the version it is of, as NAME@NUMBER.
	AnnotationVersion = prefix + "version"
	// AnnotationSmack is the Smack label of the container's processes, when the
	// policy gives one.
	AnnotationSmack = prefix + "smack-label"
)

// Where the launcher and the profile are in a container. /dev is a tmpfs there,
// so nothing is written into the root file system, and a read-only one works.
// The folder is a mount too, and read-only: a program that may rename in /dev
// could otherwise put a launcher of its own in its place, for the next exec.
const (
	mountDir     = "/dev/.policyd"
	LauncherPath = mountDir + "/launch"
	ProfilePath  = mountDir + "/profile"
)

// Config is the text of a config.json without the edit.
type Config struct {
	// Ref is the policy that annotations ask for, "" when none does.
	Ref string
	// Sandbox tells that this is the container that holds a pod's namespaces
	// (pause): it runs no program of the pod's.
	Sandbox bool
	// Annotations are all of it.
	Annotations map[string]string
	// Parameters are the values that annotations give parameters of the policy.
	Parameters map[string]Parameter
	// Image and Namespace are those of a container of Kubernetes, Container and
	// Pod its name and its pod's, as its engine tells them; "" where it does not.
	Image, Namespace, Container, Pod string

	text []byte
}

// Edit is what a container gets.
type Edit struct {
	Launcher string // policyd-launch on the host
	Profile  string // the file with the encoded profile on the host
	Digest   string // its digest
	Version  string // NAME@NUMBER, for people
	// SmackLabel is what the launcher takes on; "" for none.
	SmackLabel string
}

// ReadConfig reads a config.json and takes an earlier edit out again. The error
// wraps errs.ErrInvalid when the text only says that it was edited, or when its
// annotations cannot be followed.
func ReadConfig(text []byte) (*Config, error) {
	if _, err := wholeText(text); err != nil {
		return nil, err
	}
	a, err := annotations(text)
	if err != nil {
		return nil, err
	}
	c := &Config{}
	if c.text, err = undo(text, a); err != nil {
		return nil, err
	}
	for _, key := range []string{AnnotationApplied, AnnotationVersion, AnnotationSmack} {
		delete(a, key)
	}
	c.Annotations = a
	if err := c.readEngine(); err != nil {
		return nil, err
	}
	if c.Sandbox {
		return c, nil
	}
	if c.Parameters, err = Parameters(a, c.Container); err != nil {
		return nil, err
	}
	asked := AnnotationProfile
	for key := range a {
		about, of := ofContainer(key)
		switch {
		case !strings.HasPrefix(key, prefix), strings.HasPrefix(key, AnnotationParameter), key == AnnotationProfile:
		case about != AnnotationProfile || of == "":
			return nil, fmt.Errorf("%w: there is no annotation %q; there are %s, %sNAME and %sNAME", errs.ErrInvalid, key, AnnotationProfile, annotationContainer, AnnotationParameter)
		case c.Container == "":
			return nil, fmt.Errorf("%w: annotation %q: nothing tells the name of this container", errs.ErrInvalid, key)
		case of != c.Container:
		case asked != AnnotationProfile:
			return nil, fmt.Errorf("%w: annotations %q and %q say the same", errs.ErrInvalid, min(asked, key), max(asked, key))
		default:
			asked = key
		}
	}
	ref, ok := a[asked]
	if ok && ref == "" {
		return nil, fmt.Errorf("%w: annotation %q is empty", errs.ErrInvalid, asked)
	}
	c.Ref = ref
	return c, nil
}

// Text gives the config.json without an edit.
func (c *Config) Text() []byte { return c.text }

// Edited gives the config.json of a container that runs under the profile.
func (c *Config) Edited(e Edit) ([]byte, error) {
	b := c.text
	root, err := children(b, span{end: len(b)}, '{')
	if err != nil {
		return nil, err
	}
	process, ok, err := pick(b, root, "process")
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("%w: there is no process", errs.ErrInvalid)
	}
	args, err := prefixArgs(b, process, Launch{e.Digest, e.SmackLabel})
	if err != nil {
		return nil, fmt.Errorf("process: %w", err)
	}
	mounts, err := addMounts(b, root, e)
	if err != nil {
		return nil, fmt.Errorf("mounts: %w", err)
	}
	marks, err := addAnnotations(b, root, e)
	if err != nil {
		return nil, fmt.Errorf("annotations: %w", err)
	}
	return apply(b, []change{args, mounts, marks}), nil
}

// annotations reads those of a text that is known to be JSON.
func annotations(b []byte) (map[string]string, error) {
	at, ok, err := member(b, span{end: len(b)}, "annotations")
	if err != nil || !ok {
		return nil, err
	}
	all, err := children(b, at, '{')
	if err != nil {
		return nil, fmt.Errorf("annotations: %w", err)
	}
	a := make(map[string]string, len(all))
	for _, s := range all {
		var v string
		if err := json.Unmarshal(b[s.start:s.end], &v); err != nil {
			return nil, fmt.Errorf("%w: annotation %q: %w", errs.ErrInvalid, s.key, err)
		}
		if _, twice := a[s.key]; twice {
			return nil, fmt.Errorf("%w: annotation %q is there twice", errs.ErrInvalid, s.key)
		}
		a[s.key] = v
	}
	return a, nil
}

func addMounts(b []byte, root []span, e Edit) (change, error) {
	at, ok, err := pick(b, root, "mounts")
	if err != nil {
		return change{}, err
	}
	if !ok {
		return change{}, fmt.Errorf("%w: there is none on /dev", errs.ErrInvalid)
	}
	all, err := children(b, at, '[')
	if err != nil {
		return change{}, err
	}
	dev := ""
	for _, m := range all {
		dest, err := stringMember(b, m, "destination")
		if err != nil {
			return change{}, err
		}
		switch dest = path.Clean("/" + dest); {
		case dest == "/dev":
			if dev, err = mountType(b, m); err != nil {
				return change{}, err
			}
		case dest == mountDir || strings.HasPrefix(dest, mountDir+"/"):
			return change{}, fmt.Errorf("%w: %s is policyd's place", errs.ErrInvalid, dest)
		}
	}
	if dev != "tmpfs" {
		return change{}, fmt.Errorf("%w: /dev is no tmpfs of the container's own (type %q), and the launcher must not be put into another's", errs.ErrInvalid, dev)
	}
	text := "," + folderText + "," + mountText(LauncherPath, e.Launcher) + "," + mountText(ProfilePath, e.Profile)
	end := all[len(all)-1].end
	return change{end, end, text}, nil
}

// mountType is a mount's type as runtimes see it: with the option bind or rbind
// it is a bind mount, whatever it says.
func mountType(b []byte, mount span) (string, error) {
	at, ok, err := member(b, mount, "options")
	if err != nil {
		return "", err
	}
	if ok {
		options, err := children(b, at, '[')
		if err != nil {
			return "", fmt.Errorf("options: %w", err)
		}
		for _, s := range options {
			var option string
			if err := json.Unmarshal(b[s.start:s.end], &option); err != nil {
				return "", fmt.Errorf("%w: options: %w", errs.ErrInvalid, err)
			}
			if option, _, _ = strings.Cut(option, "\x00"); option == "bind" || option == "rbind" {
				return "bind", nil
			}
		}
	}
	return stringMember(b, mount, "type")
}

const folderText = `{"destination":"` + mountDir + `","type":"tmpfs","source":"tmpfs","options":["ro","nosuid","nodev","mode=755","size=64k"]}`

func mountText(dest, source string) string {
	return `{"destination":` + quote(dest) + `,"type":"bind","source":` + quote(source) + `,"options":["bind","ro","nosuid","nodev"]}`
}

func addAnnotations(b []byte, root []span, e Edit) (change, error) {
	at, ok, err := pick(b, root, "annotations")
	if err != nil {
		return change{}, err
	}
	text := quote(AnnotationApplied) + ":" + quote(e.Digest) + "," + quote(AnnotationVersion) + ":" + quote(e.Version)
	if e.SmackLabel != "" {
		text += "," + quote(AnnotationSmack) + ":" + quote(e.SmackLabel)
	}
	switch {
	case ok:
		all, err := children(b, at, '{')
		if err != nil {
			return change{}, err
		}
		if len(all) > 0 {
			return change{all[0].from, all[0].from, text + ","}, nil
		}
		return change{at.start + 1, at.start + 1, text}, nil
	case at.end != 0:
		return change{at.start, at.end, "{" + text + "}"}, nil
	}
	// There is a process, so there is a member before.
	end := root[len(root)-1].end
	return change{end, end, `,"annotations":{` + text + "}"}, nil
}

// undo takes an edit out, whatever has written the text since. A text that says
// it was edited and is not is refused: whoever may set annotations could
// otherwise have a container left as it is.
func undo(b []byte, a map[string]string) ([]byte, error) {
	digest, ok := a[AnnotationApplied]
	for _, key := range []string{AnnotationVersion, AnnotationSmack} {
		if _, alone := a[key]; !ok && alone {
			return nil, fmt.Errorf("%w: annotation %q without %q", errs.ErrInvalid, key, AnnotationApplied)
		}
	}
	if !ok {
		return b, nil
	}
	forged := func(what string) error {
		return fmt.Errorf("%w: annotation %q says that policyd-runc has edited this, but %s; only policyd-runc sets that annotation", errs.ErrInvalid, AnnotationApplied, what)
	}
	root := span{end: len(b)}
	process, ok, err := member(b, root, "process")
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, forged("there is no process")
	}
	args, n, err := launched(b, process, Launch{digest, a[AnnotationSmack]})
	if err != nil {
		return nil, err
	}
	if n == 0 || n == len(args) {
		return nil, forged("the program is not the launcher")
	}
	changes := []change{drop(args, 0, n-1)}

	at, ok, err := member(b, root, "mounts")
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, forged("there are no mounts")
	}
	mounts, err := children(b, at, '[')
	if err != nil {
		return nil, err
	}
	last := len(mounts) - 1
	for i, want := range []string{ProfilePath, LauncherPath, mountDir} {
		dest := ""
		if last-i >= 0 {
			if dest, err = stringMember(b, mounts[last-i], "destination"); err != nil {
				return nil, err
			}
		}
		if dest != want {
			return nil, forged("its mounts are not the last ones")
		}
	}
	changes = append(changes, drop(mounts, last-2, last))
	b = apply(b, changes)
	for _, key := range []string{AnnotationApplied, AnnotationVersion, AnnotationSmack} {
		if b, err = dropAnnotation(b, key); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func dropAnnotation(b []byte, key string) ([]byte, error) {
	at, _, err := member(b, span{end: len(b)}, "annotations")
	if err != nil {
		return nil, err
	}
	all, err := children(b, at, '{')
	if err != nil {
		return nil, err
	}
	for i, s := range all {
		if s.key == key {
			return apply(b, []change{drop(all, i, i)}), nil
		}
	}
	return b, nil
}
