package smack

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"policyd.dev/policyd/internal/testkernel"
)

// Which rules have no effect is a claim about the kernel beyond its answers to
// access2: whether a new file takes its directory's label is looked up apart.
func TestTransmuteOnKernel(t *testing.T) {
	testkernel.Each(t, testkernel.Smack, func(t *testing.T) {
		testkernel.RequireRoot(t)
		for i, c := range []struct {
			object string
			rule   string
			want   string // label of the new file, "" for the subject's own
		}{
			{"*", "rwxa", ""},
			{"*", "t", "*"},
			{"@", "t", "@"},
			{"_", "rwxa", ""},
			{"_", "rwxat", "_"},
			{"Dir", "rwxa", ""},
			{"Dir", "rwxat", "Dir"},
		} {
			subject := fmt.Sprintf("Transmuter%d", i)
			a, err := ParseAccess(c.rule)
			if err != nil {
				t.Fatal(err)
			}
			if c.want == "" {
				c.want = subject
			}
			got, err := newFileLabel(t.TempDir(), Rule{subject, c.object, a})
			if err != nil {
				t.Errorf("%s %s %s: %v", subject, c.object, c.rule, err)
			} else if got != c.want {
				t.Errorf("%s %s %s: a new file has the label %s, want %s", subject, c.object, c.rule, got, c.want)
			}
			if dead := deadLetters(subject, c.object, a); dead&Transmute != 0 && got != subject {
				t.Errorf("%s %s %s: t is called dead", subject, c.object, c.rule)
			}
		}
	})
}

// newFileLabel loads the rule, makes a transmuting directory with the object as
// its label and gives the label of a file the subject makes in it.
func newFileLabel(dir string, r Rule) (string, error) {
	load, err := os.OpenFile("/sys/fs/smackfs/load2", os.O_WRONLY, 0)
	if err != nil {
		return "", err
	}
	defer load.Close()
	if _, err := load.Write(r.Append(nil)); err != nil {
		return "", err
	}
	for name, value := range map[string]string{"security.SMACK64": r.Object, "security.SMACK64TRANSMUTE": "TRUE"} {
		if err := syscall.Setxattr(dir, name, []byte(value), 0); err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
	}
	file := filepath.Join(dir, "file")
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its label
		if err := os.WriteFile("/proc/thread-self/attr/current", []byte(r.Subject), 0); err != nil {
			done <- err
			return
		}
		fd, err := syscall.Open(file, syscall.O_CREAT|syscall.O_WRONLY|syscall.O_EXCL, 0o600)
		if err == nil {
			err = syscall.Close(fd)
		}
		done <- err
	}()
	if err := <-done; err != nil {
		return "", err
	}
	buf := make([]byte, MaxLabel+1)
	n, err := syscall.Getxattr(file, "security.SMACK64", buf)
	if err != nil {
		return "", err
	}
	return strings.TrimRight(string(buf[:n]), "\x00"), nil
}
