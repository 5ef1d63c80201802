package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/policy"
)

// Stdin is the name of standard input among files.
const Stdin = "-"

// ReadSources reads the files named by -f: a file, "-" for standard input, or
// a folder, which stands for all *.yaml and *.yml files in and beneath it (not
// in hidden folders), in the order of their names.
func ReadSources(names []string, stdin io.Reader) ([]*apiv1.SourceFile, error) {
	if len(names) == 0 {
		return nil, Usage(errors.New("no file given: use -f FILE, -f FOLDER or -f -"))
	}
	var files []*apiv1.SourceFile
	for _, name := range names {
		if name == Stdin {
			b, err := policy.ReadText(stdin)
			if err != nil {
				return nil, fmt.Errorf("read standard input: %w", err)
			}
			files = append(files, &apiv1.SourceFile{Name: "<stdin>", Content: b})
			continue
		}
		paths, err := expand(name)
		if err != nil {
			return nil, err
		}
		for _, p := range paths {
			b, err := policy.ReadTextFile(p)
			if err != nil {
				return nil, err
			}
			files = append(files, &apiv1.SourceFile{Name: p, Content: b})
		}
	}
	return files, nil
}

func expand(name string) ([]string, error) {
	st, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !st.IsDir() {
		return []string{name}, nil
	}
	var found []string
	err = filepath.WalkDir(name, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path != name && strings.HasPrefix(d.Name(), ".") {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if ext := filepath.Ext(path); !d.IsDir() && (ext == ".yaml" || ext == ".yml") {
			found = append(found, path)
		}
		return nil
	})
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%s: no *.yaml or *.yml file in it", name)
	}
	return found, err
}

// WriteAtomically makes a file with the content that write gives, or leaves
// what was there: the content is on the disk before the file gets its name.
// What is no regular file (a device, a named pipe) or a symbolic link
// (/dev/stdout) is never replaced: it is written to.
func WriteAtomically(path string, mode fs.FileMode, write func(io.Writer) error) (err error) {
	if st, err := os.Lstat(path); err == nil && !st.Mode().IsRegular() && !st.IsDir() {
		return writeInto(path, mode, write)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		if at, ok := errors.AsType[*fs.PathError](err); ok {
			at.Path = path // not the name that nobody gave
		}
		return err
	}
	defer func() {
		if err != nil {
			tmp.Close()
			os.Remove(tmp.Name())
		}
	}()
	if err = write(tmp); err != nil {
		return err
	}
	if err = tmp.Chmod(mode); err != nil {
		return err
	}
	if err = tmp.Sync(); err != nil {
		return err
	}
	if err = tmp.Close(); err != nil {
		return err
	}
	if err = os.Rename(tmp.Name(), path); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(path))
}

// writeInto gives content to what is there, once all of it is made.
func writeInto(path string, mode fs.FileMode, write func(io.Writer) error) error {
	var content bytes.Buffer
	if err := write(&content); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode) // a link may lead to nothing yet
	if err != nil {
		return err
	}
	_, err = f.Write(content.Bytes())
	return errors.Join(err, f.Close())
}

// syncFolder makes a rename in a folder last.
func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
