package fetch

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"policyd.dev/policyd/internal/errs"
)

var content = []byte("the bytes of a bundle")

// TestHostileFile: whoever may write into etcd names the file. None of these keeps the reader, and none is read.
func TestHostileFile(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, b []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good, fifo := file("good", content), filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{"to-good": good, "to-fifo": fifo, "to-itself": filepath.Join(dir, "to-itself")} {
		if err := os.Symlink(to, filepath.Join(dir, from)); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		path string
		want error // nil: the bytes
		away bool
	}{
		"a file":                     {good, nil, false},
		"a link to one":              {dir + "/to-good", nil, false},
		"a name in percent":          {dir + "/%67ood", nil, false},
		"a longer file":              {file("long", append(content, 0)), errs.ErrTampered, false},
		"an empty file":              {file("empty", nil), errs.ErrTampered, false},
		"a FIFO":                     {fifo, errAny, true},
		"a link to a FIFO":           {dir + "/to-fifo", errAny, true},
		"a link to itself":           {dir + "/to-itself", syscall.ELOOP, true},
		"a folder":                   {dir, errAny, true},
		"a device":                   {"/dev/zero", errAny, true},
		"the terminal":               {"/dev/tty", errAny, true},
		"this process's memory":      {"/proc/self/mem", errs.ErrTampered, false},
		"the kernel's log":           {"/proc/kmsg", errs.ErrTampered, false},
		"what a process waits for":   {"/proc/self/mounts", errs.ErrTampered, false},
		"nothing":                    {dir + "/none", os.ErrNotExist, true},
		"a file as if it had others": {good + "/x", syscall.ENOTDIR, true},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		got, err := Reference(ctx, http.DefaultClient, "file://"+c.path, len(content))
		cancel()
		switch {
		case c.want == nil && (err != nil || !bytes.Equal(got, content)):
			t.Errorf("%s: %q %v", name, got, err)
		case c.want != nil && (err == nil || !errors.Is(c.want, errAny) && !errors.Is(err, c.want)):
			t.Errorf("%s: %v, want %v", name, err, c.want)
		case errors.As(err, new(*AwayError)) != c.away:
			t.Errorf("%s: away is %v: %v", name, !c.away, err)
		}
	}
}

var errAny = errors.New("any")

// TestHostileServer: https is never left, and neither a server without end nor one that says nothing keeps the reader.
func TestHostileServer(t *testing.T) {
	reached := false
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		reached = true
		_, _ = w.Write(content)
	}))
	defer plain.Close()
	released := make(chan struct{})
	var s *httptest.Server
	s = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/good":
			_, _ = w.Write(content)
		case "/moved":
			http.Redirect(w, r, s.URL+"/good", http.StatusFound)
		case "/loop":
			http.Redirect(w, r, s.URL+"/loop", http.StatusFound)
		case "/http":
			http.Redirect(w, r, plain.URL+"/good", http.StatusFound)
		case "/file":
			w.Header().Set("Location", "file:///etc/passwd")
			w.WriteHeader(http.StatusFound)
		case "/slow":
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			<-released
		case "/endless":
			for b := make([]byte, 1<<16); ; {
				if _, err := w.Write(b); err != nil {
					return
				}
			}
		case "/cut":
			w.Header().Set("Content-Length", "21")
			_, _ = w.Write(content[:5])
		}
	}))
	defer s.Close()
	defer close(released)
	for path, want := range map[string]string{
		"/good": "", "/moved": "", "/loop": "more than 5 redirects", "/http": "redirect to http://", "/file": "redirect to file://",
		"/slow": "deadline", "/cut": "unexpected EOF",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		got, err := Reference(ctx, s.Client(), s.URL+path, len(content))
		cancel()
		if want == "" && (err != nil || !bytes.Equal(got, content)) || want != "" && (err == nil || !strings.Contains(err.Error(), want) || !errors.As(err, new(*AwayError))) {
			t.Errorf("%s: %q %v, want %q", path, got, err, want)
		}
	}
	if reached {
		t.Error("a request in clear was sent")
	}
	if got, err := Reference(t.Context(), s.Client(), s.URL+"/endless", len(content)); err != nil || len(got) != len(content)+1 {
		t.Errorf("endless: %d bytes, %v; want one more than was signed", len(got), err)
	}
	for _, place := range []string{"http://h/x", "ftp://h/x", "file://host/x", "x", "https://u:p@h/x", "file:///x?y"} {
		if _, err := Reference(t.Context(), s.Client(), place, 1); !errors.Is(err, errs.ErrInvalid) {
			t.Errorf("%s: %v", place, err)
		}
	}
	if _, err := Reference(t.Context(), s.Client(), s.URL, 1<<30); !errors.Is(err, errs.ErrTooLarge) {
		t.Errorf("a GiB: %v", err)
	}
}
