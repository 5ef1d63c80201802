package sandbox

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/testkernel"
	"policyd.dev/policyd/store"
	"policyd.dev/policyd/store/storetest"
)

// smallDisk mounts a tmpfs of that size.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	testkernel.RequireRoot(t)
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		if errors.Is(err, unix.EPERM) {
			testkernel.Skip(t, "mounting a tmpfs", "run as root with CAP_SYS_ADMIN")
		}
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// With the disk of the logs full the program's write fails, policyd lives on, and the
// end of the program is told.
func TestLogDiskFull(t *testing.T) {
	cfg := testConfig(t, "supervisor")
	cfg.StateDir = smallDisk(t, "1m")
	m := newTestManager(t, cfg)
	dir := t.TempDir()
	r := shell(t, dir, `head -c 4000000 /dev/zero; echo "rc=$?" > "$1"`, filepath.Join(dir, "rc"))
	sb, err := m.Start(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if exit, err := m.Wait(t.Context(), sb.GetId()); err != nil || exit.GetCode() != 0 {
		t.Errorf("exit %v, %v", exit, err)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "rc")); err != nil || string(data) == "rc=0\n" {
		t.Errorf("the writer saw %q, %v; want an error", data, err)
	}
	err = m.Logs(t.Context(), sb.GetId(), LogOptions{}, func(*apiv1.LogsResponse) error { return nil })
	if err != nil {
		t.Errorf("logs on a full disk: %v", err)
	}
	if err := m.Remove(t.Context(), sb.GetId()); err != nil {
		t.Errorf("remove on a full disk: %v", err)
	}
}

// With the journal's disk full nothing starts, and what runs is not touched.
func TestJournalDiskFull(t *testing.T) {
	cfg := testConfig(t, "supervisor")
	cfg.RuntimeDir = smallDisk(t, "64k")
	m := newTestManager(t, cfg)
	dir := t.TempDir()
	before, err := m.Start(t.Context(), testRequest(t, dir, "sleep", "1000"))
	if err != nil {
		t.Fatal(err)
	}
	filler := filepath.Join(cfg.RuntimeDir, "filler")
	for size := 1 << 20; size > 0; size /= 2 { // to the last byte
		f, err := os.OpenFile(filler, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = f.Write(make([]byte, size)) // fails when it is full: that is wanted
		f.Close()
	}
	mark := filepath.Join(dir, "mark")
	r := shell(t, dir, `echo x > "$1"`, mark)
	r.Spec.Argv = append(r.Spec.Argv, strings.Repeat("x", 8192))
	if sb, err := m.Start(t.Context(), r); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("start with a full journal: %v, %v", sb, err)
	}
	if _, err := os.Stat(mark); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the program ran: %v", err)
	}
	if sb, err := m.Get(before.GetId()); err != nil || sb.GetState() != apiv1.SandboxState_SANDBOX_STATE_RUNNING {
		t.Errorf("the one before: %v, %v", sb, err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Start(t.Context(), r); err != nil {
		t.Errorf("start with room again: %v", err)
	}
}

// While records cannot be stored nothing new starts; what ran meanwhile is stored later.
func TestStoreFails(t *testing.T) {
	cfg := testConfig(t, "supervisor")
	st := newFaultyStore()
	cfg.Store = st
	m := newTestManager(t, cfg)
	dir := t.TempDir()
	st.setFail(errs.ErrStoreFull)
	sb, err := m.Start(t.Context(), testRequest(t, dir, "/bin/true"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Wait(t.Context(), sb.GetId()); err != nil {
		t.Fatal(err)
	}
	if err := m.ledger.flush(t.Context()); !errors.Is(err, errs.ErrStoreFull) {
		t.Fatalf("flush: %v", err)
	}
	if _, err := m.Start(t.Context(), testRequest(t, dir, "/bin/true")); !errors.Is(err, errs.ErrStoreFull) {
		t.Errorf("start: %v", err)
	}
	if got, err := m.Get(sb.GetId()); err != nil || !ended(got) {
		t.Errorf("its record in memory: %v, %v", got, err)
	}
	st.setFail(nil)
	eventually(t, "it is stored", func() bool {
		rec, err := st.Sandbox(sb.GetId())
		return err == nil && ended(rec)
	})
}

// Output of a program at full speed is bounded on disk by the sandbox's limit.
func TestLogLimitOfSandbox(t *testing.T) {
	m := newTestManager(t, testConfig(t, "supervisor"))
	if !m.logs.holes {
		testkernel.Skip(t, "a file system with holes", "run on ext4, xfs, btrfs or tmpfs")
	}
	r := shell(t, t.TempDir(), `seq -f %079.0f 0 199999`)
	r.Spec.LogLimit = 256 << 10
	sb, err := m.Start(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Wait(t.Context(), sb.GetId()); err != nil {
		t.Fatal(err)
	}
	var data bytes.Buffer
	var dropped uint64
	err = m.Logs(t.Context(), sb.GetId(), LogOptions{}, func(r *apiv1.LogsResponse) error {
		if r.GetDropped() != 0 && data.Len() > 0 {
			t.Error("dropped is not said first")
		}
		dropped += r.GetDropped()
		data.Write(r.GetStdout())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, last := checkLines(t, data.Bytes()); last != 199999 {
		t.Errorf("last line kept is %d", last)
	}
	if data.Len() > 256<<10 || dropped+uint64(data.Len()) != 200000*lineWidth {
		t.Errorf("%d bytes kept, %d dropped", data.Len(), dropped)
	}
	if got := m.LogBytesBy(uint32(os.Geteuid())); got < uint64(data.Len()) || got > 256<<10 {
		t.Errorf("%d bytes are accounted", got)
	}
}

// Sandboxes of another boot of the kernel have ended, whatever has their pid now.
func TestOtherBoot(t *testing.T) {
	cfg := testConfig(t, "supervisor")
	rec := testRecord("0123456789ab")
	rec.Pid, rec.BootId, rec.Detached = int32(os.Getpid()), "another", true
	if ticks, err := startTicks(os.Getpid()); err != nil {
		t.Fatal(err)
	} else {
		rec.StartTicks = ticks
	}
	if err := cfg.Store.PutSandboxes(t.Context(), []*apiv1.Sandbox{rec}, []*apiv1.Event{startEvent(rec)}); err != nil {
		t.Fatal(err)
	}
	m := newTestManager(t, cfg)
	got, err := m.Get(rec.GetId())
	if err != nil || got.GetState() != apiv1.SandboxState_SANDBOX_STATE_UNKNOWN || !got.GetExit().GetUnknown() {
		t.Errorf("%v, %v", got, err)
	}
}

// Pages of ended sandboxes, and ids by their beginning.
func TestListPages(t *testing.T) {
	cfg := testConfig(t, "supervisor")
	st := storetest.OpenAt(t, filepath.Join(t.TempDir(), "db"), store.Options{NoSync: true})
	cfg.Store = st
	var recs []*apiv1.Sandbox
	for _, id := range []string{"00000000000a", "00000000000b", "0a0000000000"} {
		rec := testRecord(id)
		rec.State = apiv1.SandboxState_SANDBOX_STATE_EXITED
		rec.Exit = &apiv1.ExitStatus{}
		recs = append(recs, rec)
	}
	if err := st.PutSandboxes(t.Context(), recs, nil); err != nil {
		t.Fatal(err)
	}
	m := newTestManager(t, cfg)
	var ids []string
	for after := ""; ; {
		page, next, err := m.List(Filter{Ended: true, Limit: 2, After: after})
		if err != nil {
			t.Fatal(err)
		}
		for _, sb := range page {
			ids = append(ids, sb.GetId())
		}
		if after = next; next == "" {
			break
		}
	}
	if got := strings.Join(ids, " "); got != "00000000000a 00000000000b 0a0000000000" {
		t.Errorf("pages give %s", got)
	}
	if _, err := m.Get("00000000000"); !errors.Is(err, errs.ErrInvalid) {
		t.Errorf("ambiguous id: %v", err)
	}
	if sb, err := m.Get("0a"); err != nil || sb.GetId() != "0a0000000000" {
		t.Errorf("unique beginning: %v, %v", sb, err)
	}
}

// A start for which policyd has no descriptors left says so, and the next one works.
func TestNoDescriptors(t *testing.T) {
	m := newTestManager(t, testConfig(t, "supervisor"))
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
	few := old
	few.Cur = uint64(fd)
	r := testRequest(t, t.TempDir(), "/bin/true")
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	_, err = m.Start(t.Context(), r)
	if rerr := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); rerr != nil {
		t.Fatal(rerr)
	}
	if !errors.Is(err, errs.ErrStart) || !errors.Is(err, unix.EMFILE) {
		t.Errorf("without descriptors: %v", err)
	}
	sb, err := m.Start(t.Context(), testRequest(t, t.TempDir(), "/bin/true"))
	if err != nil {
		t.Fatal(err)
	}
	if exit, err := m.Wait(t.Context(), sb.GetId()); err != nil || exit.GetCode() != 0 {
		t.Errorf("after it: %v, %v", exit, err)
	}
}
