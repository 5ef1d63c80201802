package containers

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"policyd.dev/policyd/internal/owned"
)

// Dir is where records lie below the runtime folder of policyd's (/run/policyd, $XDG_RUNTIME_DIR/policyd).
func Dir(run string) string { return filepath.Join(run, "oci", "containers") }

const suffix = ".json"

// The name of a record's file is "<of the container>-<of the digest>.json", each half of a SHA-256: an id can hold
// what a file name cannot, and is as long as it likes.
func prefix(root, id string) string { return half(root+"\x00"+id) + "-" }

func half(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:16])
}

func (r *Record) file() string { return prefix(r.Root, r.ID) + half(r.Digest) + suffix }

// Write puts a record into the folder, whole or not at all, in the place of an earlier one of the same container and
// digest. The folder is made, for its owner alone. Nothing is synced: what the file system keeps over a boot would be
// about containers that are gone.
func Write(dir string, r *Record) error {
	b, err := r.encode()
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".new-*")
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(dir, 0o700); err == nil {
			f, err = os.CreateTemp(dir, ".new-*")
		}
	}
	if err != nil {
		return fmt.Errorf("record of container %q: %w", r.ID, err)
	}
	_, err = f.Write(b)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, r.file()))
	}
	if err != nil {
		os.Remove(f.Name())
		return fmt.Errorf("record of container %q: %w", r.ID, err)
	}
	return nil
}

// Read gives the record of a container: where there are more, that of the profile the runtime has it under, else the
// newest. ErrNone when there is none.
func Read(dir, root, id string) (*Record, error) {
	if err := CheckID(id); err != nil {
		return nil, err
	}
	if err := checkPath("root", root); err != nil {
		return nil, err
	}
	all, err := of(dir, root, id)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w: %q", ErrNone, id)
	}
	if len(all) > 1 {
		if st, err := Runtime(root, id); err == nil {
			if i := slices.IndexFunc(all, func(r *Record) bool { return r.Digest == st.Digest }); i >= 0 {
				return all[i], nil
			}
		}
	}
	return slices.MaxFunc(all, func(a, b *Record) int { return a.Created.Compare(b.Created) }), nil
}

// of reads every record of a container.
func of(dir, root, id string) ([]*Record, error) {
	names, err := names(dir)
	if err != nil {
		return nil, err
	}
	var all []*Record
	for _, name := range names {
		if !strings.HasPrefix(name, prefix(root, id)) {
			continue
		}
		r, err := readFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since
		}
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

// Remove takes every record of a container away. That there is none is no error.
func Remove(dir, root, id string) error {
	if err := CheckID(id); err != nil {
		return err
	}
	names, err := names(dir)
	for _, name := range names {
		if strings.HasPrefix(name, prefix(root, id)) {
			err = errors.Join(err, gone(os.Remove(filepath.Join(dir, name))))
		}
	}
	return err
}

func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// names lists the folder's records; a folder that is not there has none.
func names(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer d.Close()
	all, err := d.Readdirnames(-1)
	return slices.DeleteFunc(all, func(n string) bool { return strings.HasPrefix(n, ".") || !strings.HasSuffix(n, suffix) }), err
}

// readFile reads one record, of a file that nobody but root and the caller can have written and that has the name the
// record would be written to.
func readFile(path string) (*Record, error) {
	f, err := owned.Open(path)
	if errors.Is(err, owned.ErrOthers) {
		err = fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxRecord+1))
	if err != nil {
		return nil, err
	}
	r, err := decode(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if filepath.Base(path) != r.file() {
		return nil, fmt.Errorf("%w: %s is the record of another container (%q)", ErrInvalid, path, r.ID)
	}
	return r, nil
}

// Records gives every record of the folder, whatever became of its container, and an error for each file that is none.
func Records(dir string) ([]*Record, []error) {
	names, err := names(dir)
	if err != nil {
		return nil, []error{err}
	}
	var all []*Record
	var bad []error
	for _, name := range names {
		r, err := readFile(filepath.Join(dir, name))
		switch {
		case errors.Is(err, fs.ErrNotExist): // removed since
		case err != nil:
			bad = append(bad, err)
		default:
			all = append(all, r)
		}
	}
	slices.SortFunc(bad, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return all, bad
}

// Container is a record with what its container is now.
type Container struct {
	*Record
	Now
}

// List gives the containers of the folder's records, by id, and an error for each file that is no record. A record of
// an attempt to create a container whose name was taken is left out, as is that of a container that is gone.
func List(dir string) ([]*Container, []error) {
	records, bad := Records(dir)
	var all []*Container
	for _, r := range records {
		if now := r.Look(); now.State != Gone {
			all = append(all, &Container{r, now})
		}
	}
	slices.SortFunc(all, func(a, b *Container) int {
		return cmpStrings(a.ID, b.ID, a.Root, b.Root, a.Digest, b.Digest)
	})
	return all, bad
}

func cmpStrings(pairs ...string) int {
	for i := 0; i+1 < len(pairs); i += 2 {
		if c := strings.Compare(pairs[i], pairs[i+1]); c != 0 {
			return c
		}
	}
	return 0
}

// startTakes is how long a record may be there before the runtime knows its container.
const startTakes = 5 * time.Minute

// Prune removes the records of containers that are gone, and files of writes that were cut off.
func Prune(dir string) error {
	d, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range d {
		info, ierr := e.Info()
		if ierr != nil || time.Since(info.ModTime()) < startTakes {
			continue
		}
		path := filepath.Join(dir, e.Name())
		if !strings.HasPrefix(e.Name(), ".new-") {
			if r, rerr := readFile(path); rerr != nil || r.Look().State != Gone {
				continue
			}
		}
		err = errors.Join(err, gone(os.Remove(path)))
	}
	return err
}
