package units

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"policyd.dev/policyd/internal/errs"
)

// Attachment is what was asked for. It stands in the drop-in, in JSON.
type Attachment struct {
	Unit   string            `json:"unit"`
	Policy string            `json:"policy"` // the reference: web@stable
	Set    map[string]string `json:"set,omitempty"`
	// All tells that the other commands are confined too, ExecStartPre= and so on.
	All bool `json:"all,omitempty"`
	// Socket is policyd's, where it is not the usual one.
	Socket string `json:"socket,omitempty"`
	// Label is the policy's Smack label, which the drop-in has systemd give.
	Label string `json:"label,omitempty"`
	// Source is the digest of the commands the drop-in was made of.
	Source string `json:"source"`
}

// ErrChangedByHand: a drop-in of policyd's name is not as policyd wrote it.
var ErrChangedByHand = errors.New("the drop-in was changed by hand")

const (
	markAttach = "# policyd-attach: "
	markSum    = "# policyd-sum: "
)

// Where the launcher and the profile are for a service with a root of its own.
const (
	launcherInRoot = "/run/policyd-unit/launch"
	profileInRoot  = "/run/policyd-unit/profile"
)

// Files are the paths that a drop-in names.
type Files struct {
	Launcher, Profile string
}

// Updater is the template of the units that bring profiles up to date before a start;
// its instances have the full names of services.
const Updater = "policyd-unit@.service"

// draft is a drop-in in the making.
type draft struct {
	a        Attachment
	s        *Service
	f        Files
	runtime  bool
	user     bool
	settings []string
	notes    []string
	inRoot   bool
}

// Text makes the drop-in, and says what the admin should know besides. What cannot be kept as it was is an error with the reason.
func Text(a Attachment, s *Service, f Files, runtime, user bool) (text string, notes []string, err error) {
	d := &draft{a: a, s: s, f: f, runtime: runtime, user: user}
	d.a.Source = s.Source(a.All)
	for _, step := range []func() error{d.root, d.hidden, d.smack, d.filters, d.identifier} {
		if err := step(); err != nil {
			return "", nil, fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	d.tell()
	meta, err := json.Marshal(d.a)
	if err != nil {
		return "", nil, err
	}
	var head, body strings.Builder
	fmt.Fprintf(&head, "# %s runs under the policy %s: written by `policyctl attach`, removed by `policyctl detach`.\n", s.Name, a.Policy)
	fmt.Fprintf(&head, "# Change it by `policyctl attach`, or put what is yours into another drop-in.\n%s%s\n", markAttach, meta)
	d.unit(&body)
	body.WriteString("[Service]\n")
	for _, l := range d.settings {
		body.WriteString(l + "\n")
	}
	d.commands(&body)
	return head.String() + markSum + sum(head.String()+body.String()) + "\n" + body.String(), d.notes, nil
}

func sum(text string) string {
	s := sha256.Sum256([]byte(text))
	return "sha256:" + hex.EncodeToString(s[:])
}

// unit writes what the service waits for. That the updater fails is no harm: the profile
// of the last start is there, and without one the launcher starts nothing.
func (d *draft) unit(b *strings.Builder) {
	if !d.updated() && (d.runtime || d.user) {
		return
	}
	b.WriteString("[Unit]\n")
	if !d.runtime && !d.user {
		fmt.Fprintf(b, "RequiresMountsFor=%s\n", literal(d.f.Profile, false))
	}
	if d.updated() {
		fmt.Fprintf(b, "Wants=%[1]s\nAfter=%[1]s\n", strings.Replace(Updater, "@", "@%n", 1))
	}
	b.WriteString("\n")
}

// updated tells that the service starts late enough to wait for policyd: one without
// the default dependencies may be what policyd itself waits for.
func (d *draft) updated() bool { return d.s.Get("DefaultDependencies") != "no" }

// commands writes the Exec lines.
func (d *draft) commands(b *strings.Builder) {
	for _, key := range execKeys {
		confined := key == "ExecStart" || d.a.All
		if !confined || len(d.s.Commands[key]) == 0 {
			continue
		}
		b.WriteString(key + "=\n")
		for _, c := range d.s.Commands[key] {
			b.WriteString(key + "=" + c.through(d.options(key, &c)) + "\n")
		}
	}
}

// options are those of the launcher, whose path comes first. In a root of the service's own
// both files are elsewhere.
func (d *draft) options(key string, c *Command) (launcher string, o []string) {
	launcher, file := d.f.Launcher, d.f.Profile
	if d.inRoot && (key == "ExecStart" || !d.s.Is("RootDirectoryStartOnly")) {
		launcher, file = launcherInRoot, profileInRoot
	}
	o = []string{"--unit", d.a.Unit, "--profile", file}
	if search := d.s.List("ExecSearchPath"); len(search) > 0 && !strings.Contains(c.Program, "/") {
		o = append(o, "--search", strings.Join(search, ":"))
	}
	if d.s.Is("IgnoreSIGPIPE") {
		o = append(o, "--ignore-sigpipe")
	}
	return launcher, o
}

// Source is the digest of the commands that a drop-in is made of.
func (s *Service) Source(all bool) string {
	var b strings.Builder
	for _, key := range execKeys {
		if key != "ExecStart" && !all {
			continue
		}
		for _, c := range s.Commands[key] {
			b.WriteString(key + "=" + c.String() + "\n")
		}
	}
	for _, name := range []string{"RootDirectory", "RootImage", "RootDirectoryStartOnly", "IgnoreSIGPIPE", "ExecSearchPath"} {
		b.WriteString(name + "=" + s.Get(name) + "\n")
	}
	if s.Identifier != "" {
		b.WriteString("SyslogIdentifier=" + s.Identifier + "\n")
	}
	return sum(b.String())
}

// ReadDropIn reads a drop-in back. Errors wrap ErrChangedByHand.
func ReadDropIn(text string) (Attachment, error) {
	var a Attachment
	i := strings.Index(text, "\n"+markSum)
	if i < 0 {
		return a, fmt.Errorf("%w: it lacks the line %q", ErrChangedByHand, markSum)
	}
	line, rest, ok := strings.Cut(text[i+1:], "\n")
	if !ok || strings.TrimPrefix(line, markSum) != sum(text[:i+1]+rest) {
		return a, ErrChangedByHand
	}
	_, meta, ok := strings.Cut(text[:i+1], "\n"+markAttach)
	if !ok {
		return a, fmt.Errorf("%w: it lacks the line %q", ErrChangedByHand, markAttach)
	}
	if err := json.Unmarshal([]byte(meta), &a); err != nil {
		return a, fmt.Errorf("%w: %w", ErrChangedByHand, err)
	}
	if a.Unit == "" || a.Policy == "" {
		return a, fmt.Errorf("%w: it names no unit or no policy: %w", ErrChangedByHand, errs.ErrInvalid)
	}
	return a, nil
}
