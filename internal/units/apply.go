package units

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/rogpeppe/go-internal/diff"

	"policyd.dev/policyd/enforce/unit"
	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/errs"
)

// Present is a drop-in that is there.
type Present struct {
	Attachment
	Path    string
	Runtime bool
	Text    string
	// Changed wraps ErrChangedByHand when it is not as it was written; Diff shows it.
	Changed error
	Diff    string
}

// Find reads the drop-in of a unit; nil when there is none.
func (p *Place) Find(name string) (*Present, error) {
	for _, runtime := range []bool{false, true} { // the order of precedence
		path := p.DropIn(name, runtime)
		text, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		d := &Present{Path: path, Runtime: runtime, Text: string(text)}
		d.Attachment, d.Changed = ReadDropIn(d.Text)
		if d.Changed == nil && d.Unit != name {
			d.Changed = fmt.Errorf("%w: it is of %s", ErrChangedByHand, d.Unit)
		}
		if d.Changed != nil {
			d.Changed = fmt.Errorf("%s: %w", path, d.Changed)
			if was, err := os.ReadFile(p.Copy(name, runtime)); err == nil {
				d.Diff = string(diff.Diff("as written", was, "as it is", text))
			}
			d.Unit = name
		}
		return d, nil
	}
	return nil, nil
}

// Plan is a drop-in and a profile that are about to be written.
type Plan struct {
	Service *Service
	Record  *unit.Record
	Text    string // of the drop-in
	Runtime bool
	// Over is the drop-in that is replaced, as it was when this was planned; nil for none.
	Over *Present
}

// Attach writes what was planned and has systemd take it. When systemd then starts
// something else, all is put back as it was.
func (m *Manager) Attach(ctx context.Context, p *Place, plan *Plan) (err error) {
	name := plan.Service.Name
	release, err := p.Lock()
	if err != nil {
		return err
	}
	defer release()
	if err := p.Unchanged(name, plan.Over); err != nil {
		return err
	}
	files := []saved{save(p.Profile(name, plan.Runtime)), save(p.Copy(name, plan.Runtime)), save(p.DropIn(name, plan.Runtime))}
	defer func() {
		if err == nil {
			return
		}
		for _, f := range files {
			err = errors.Join(err, f.restore())
		}
		if rerr := m.Reload(context.WithoutCancel(ctx)); rerr != nil {
			err = errors.Join(err, rerr)
		}
	}()
	if err := p.WriteProfile(plan.Record, plan.Runtime); err != nil {
		return err
	}
	if err := write(p.Copy(name, plan.Runtime), []byte(plan.Text)); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(p.DropIn(name, plan.Runtime)), 0o755); err != nil {
		return err
	}
	if err := write(p.DropIn(name, plan.Runtime), []byte(plan.Text)); err != nil {
		return err
	}
	if err := m.Reload(ctx); err != nil {
		return err
	}
	return m.holds(ctx, name, plan.Text)
}

// Unchanged holds, under the lock, that nobody else has attached or detached a unit
// since its drop-in was looked at.
func (p *Place) Unchanged(name string, was *Present) error {
	is, err := p.Find(name)
	switch {
	case err != nil:
		return err
	case (is == nil) != (was == nil), is != nil && (is.Path != was.Path || is.Text != was.Text):
		return fmt.Errorf("%s was attached or detached by somebody else meanwhile: look at `policyctl get units` and try again", name)
	}
	return nil
}

// holds asks systemd whether the ExecStart lines of a drop-in are what it starts.
func (m *Manager) holds(ctx context.Context, name, text string) error {
	ask := name
	if IsTemplate(name) {
		ask = anyInstance(name)
	}
	u, err := m.Show(ctx, ask)
	if err != nil {
		return err
	}
	return u.Effective(text)
}

// WriteProfile writes a unit's profile, so that it is there whole or not at all.
func (p *Place) WriteProfile(r *unit.Record, runtime bool) error {
	b, err := r.Encode()
	if err != nil {
		return err
	}
	path := p.Profile(r.Unit, runtime)
	if err := ownFolder(filepath.Dir(path)); err != nil {
		return err
	}
	if err := p.changing(r, path, func() error { return write(path, b) }); err != nil {
		return fmt.Errorf("%s: %w", r.Unit, err)
	}
	return nil
}

// ownFolder makes the folder of profiles, or holds that nobody else may write there.
func ownFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	st, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !st.IsDir() || st.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s: %w: others may write there (mode %04o)", dir, errs.ErrInvalid, st.Mode().Perm())
	}
	if owner, ok := st.Sys().(*syscall.Stat_t); !ok || int(owner.Uid) != os.Geteuid() {
		return fmt.Errorf("%s: %w: it belongs to another user, who could put other profiles there (chown it)", dir, errs.ErrInvalid)
	}
	return os.Chmod(dir, 0o755) // whatever the umask was: services' users read the profiles
}

func write(path string, b []byte) error {
	return cli.WriteAtomically(path, 0o644, func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	})
}

// Detach removes a drop-in and has systemd forget it; the folder goes too when
// nothing else is in it. When systemd cannot be told, all is as it was.
func (m *Manager) Detach(ctx context.Context, p *Place, d *Present) error {
	release, err := p.Lock()
	if err != nil {
		return err
	}
	defer release()
	if err := p.Unchanged(d.Unit, d); err != nil {
		return err
	}
	before := save(d.Path)
	if err := os.Remove(d.Path); err != nil {
		return err
	}
	if err := m.Reload(ctx); err != nil {
		return errors.Join(err, before.restore())
	}
	_ = os.Remove(filepath.Dir(d.Path)) // fails where others have drop-ins
	for _, path := range []string{p.Profile(d.Unit, d.Runtime), p.Copy(d.Unit, d.Runtime), p.History(d.Unit)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// saved is a file to be put back.
type saved struct {
	path string
	was  []byte
	err  error
}

func save(path string) saved {
	b, err := os.ReadFile(path)
	return saved{path, b, err}
}

func (s *saved) restore() error {
	switch {
	case s.err == nil:
		return write(s.path, s.was)
	case errors.Is(s.err, fs.ErrNotExist):
		if err := os.Remove(s.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if filepath.Base(s.path) == DropIn {
			_ = os.Remove(filepath.Dir(s.path))
		}
		return nil
	}
	return nil // it could not be read, so that it was not written either
}
