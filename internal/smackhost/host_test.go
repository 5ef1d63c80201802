package smackhost

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/policy"
	"policyd.dev/policyd/smack/smackfs"
	"policyd.dev/policyd/store"
	"policyd.dev/policyd/store/storetest"
)

// errKilled is what everything answers after the point at which policyd was killed.
var errKilled = errors.New("killed")

// killer counts writes to the kernel and to the store, and from one of them on lets nothing through.
type killer struct {
	mu    sync.Mutex
	left  int // writes that still go through; negative: all
	count int
}

func (k *killer) step() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.left == 0 {
		return errKilled
	}
	k.left--
	k.count++
	return nil
}

// killedFS is a smackfs that policyd can no longer write once it is killed, nor read.
type killedFS struct {
	smackfs.FS
	k *killer
}

func (f killedFS) Unwrap() smackfs.FS { return f.FS }

func (f killedFS) Open(name string, flag int) (smackfs.File, error) {
	file, err := f.FS.Open(name, flag)
	if err != nil || flag == unix.O_RDONLY {
		return file, err
	}
	return killedFile{file, f.k}, nil
}

type killedFile struct {
	smackfs.File
	k *killer
}

func (f killedFile) Write(p []byte) (int, error) {
	if len(p) == 0 { // asks whether it may
		return f.File.Write(p)
	}
	if err := f.k.step(); err != nil {
		return 0, err
	}
	return f.File.Write(p)
}

type killedStore struct {
	*store.Store
	k *killer
}

func (s killedStore) SetSmackState(ctx context.Context, st *apiv1.SmackState, events ...*apiv1.Event) error {
	if err := s.k.step(); err != nil {
		return err
	}
	return s.Store.SetSmackState(ctx, st, events...)
}

// host is a policyd's part of Smack on a model of the kernel.
type host struct {
	t  *testing.T
	st *store.Store
	fs smackfs.FS
	*Manager
}

func newHost(t *testing.T) *host {
	h := &host{t: t, st: storetest.Open(t), fs: smackfs.NewModel(smackfs.ModelKernel{Bringup: true})}
	h.restart()
	return h
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// process is the kernel's files as one process has them: policyd, which can tell what others do to them.
func (h *host) process() smackfs.FS {
	if m, ok := h.fs.(*smackfs.Model); ok {
		return m.As(smackfs.Root)
	}
	return h.fs
}

// restart is a new policyd on the same kernel and store.
func (h *host) restart() {
	mine := h.process()
	h.Manager = New(Config{Store: h.st, Find: func() (smackfs.FS, error) { return mine, nil }, Log: quiet()})
}

// killedAfter is a policyd that is killed after so many writes; negative: never.
func (h *host) killedAfter(n int) *killer {
	k := &killer{left: n}
	mine := h.process()
	h.Manager = New(Config{
		Store: killedStore{h.st, k}, Find: func() (smackfs.FS, error) { return killedFS{mine, k}, nil }, Log: quiet(),
	})
	return k
}

// apply stores a policy: rules as text, and settings as YAML behind.
func (h *host) apply(name, rules string, settings ...string) *apiv1.Version {
	h.t.Helper()
	return applyTo(h.t, h.st, name, rules, settings...)
}

func applyTo(t *testing.T, st *store.Store, name, rules string, settings ...string) *apiv1.Version {
	t.Helper()
	text := fmt.Sprintf("apiVersion: policyd/v1\nkind: SmackPolicy\nmetadata: {name: %s}\nspec:\n  layers:\n    - name: base\n      rules: |\n        %s\n",
		name, strings.ReplaceAll(strings.TrimSpace(rules), "\n", "\n        "))
	for _, s := range settings {
		text += "  settings: " + s + "\n"
	}
	docs, err := policy.Parse(name+".yaml", []byte(text))
	if err != nil {
		t.Fatalf("%v in\n%.2000s", err, text)
	}
	d := docs[0]
	got, err := st.Apply(t.Context(), store.Actor{Name: "test"}, []store.Put{{
		Kind: d.Kind, Name: d.Name, Resource: d.Resource, Source: d.Source, SourceName: d.File, SourceLine: uint32(d.FirstLine),
		Digest: policy.ContentDigest(d.Resource, nil),
	}})
	if err != nil {
		t.Fatal(err)
	}
	v, err := st.Get(store.KindSmackPolicy, fmt.Sprintf("%s@%d", name, got[0].Info.GetNumber()))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (h *host) load(v *apiv1.Version, o LoadOptions) *apiv1.LoadResponse {
	h.t.Helper()
	res, err := h.Load(h.t.Context(), v, o)
	if err != nil {
		h.t.Fatal(err)
	}
	return res
}

// write writes as somebody else than policyd.
func (h *host) write(file, data string) {
	h.t.Helper()
	f, err := h.fs.Open(file, unix.O_WRONLY)
	if err != nil {
		h.t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write([]byte(data)); err != nil {
		h.t.Fatal(err)
	}
}

// kernel is what the kernel shows: rules, and settings that a policy of these tests may make.
func (h *host) kernel() map[string]string {
	h.t.Helper()
	rules, err := smackfs.ReadRules(h.fs)
	if err != nil {
		h.t.Fatal(err)
	}
	out := map[string]string{}
	for r := range rules.All() {
		out[r.Subject+" "+r.Object] = r.Access.String()
	}
	settings, err := smackfs.ReadSettings(h.fs)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, e := range settings {
		out[e.File+":"+e.Key] = e.Value
	}
	return out
}

func (h *host) same(what string, want map[string]string) {
	h.t.Helper()
	if got := h.kernel(); !maps.Equal(got, want) {
		for k := range want {
			if got[k] != want[k] {
				h.t.Errorf("%s: %s is %q, want %q", what, k, got[k], want[k])
			}
		}
		for k, v := range got {
			if _, ok := want[k]; !ok {
				h.t.Errorf("%s: %s is %q, want nothing", what, k, v)
			}
		}
		h.t.FailNow()
	}
}

func (h *host) state() *apiv1.GetSmackResponse {
	h.t.Helper()
	s, err := h.State(h.t.Context(), nil, true)
	if err != nil {
		h.t.Fatal(err)
	}
	return s
}

func (h *host) events(kind string) (n int) {
	h.t.Helper()
	list, err := h.st.Events(1, 1000)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, e := range list {
		if e.GetType() == kind {
			n++
		}
	}
	return n
}

// without is a policyd on a host without Smack.
func (h *host) without(err error) {
	h.Manager = New(Config{Store: h.st, Find: func() (smackfs.FS, error) { return nil, err }, Log: quiet()})
}

// refusingFS is a kernel that refuses every write to a file.
type refusingFS struct {
	smackfs.FS
	file string
}

func (f *refusingFS) Unwrap() smackfs.FS { return f.FS }

func (f *refusingFS) Open(name string, flag int) (smackfs.File, error) {
	if name == f.file && flag != unix.O_RDONLY {
		return refusingFile{}, nil
	}
	return f.FS.Open(name, flag)
}

type refusingFile struct{ smackfs.File }

func (refusingFile) Write([]byte) (int, error) { return 0, unix.EINVAL }
func (refusingFile) Close() error              { return nil }
