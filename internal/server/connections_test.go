package server

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/sys/unix"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/internal/testkernel"
)

// One user's connections are bounded; others go on, and a closed one makes room.
func TestConnectionsOfOneUser(t *testing.T) {
	testkernel.RequireRoot(t)
	var log lines
	e := start(t, func(c *Config) {
		c.Limits.Connections = 3
		c.Log = slog.New(slog.NewJSONHandler(&log, nil))
	})
	var open []net.Conn
	for i := range 5 {
		c, answered := idle(t, e.socket)
		if answered != (i < 3) {
			t.Errorf("connection %d of 3 allowed is answered: %v", i+1, answered)
		}
		open = append(open, c)
	}
	if _, err := e.admin.Status(e.ctx(), &apiv1.StatusRequest{}); err != nil {
		t.Errorf("others: %v", err)
	}
	log.mu.Lock()
	text := log.buf.String()
	log.mu.Unlock()
	if !strings.Contains(text, "uid:65534 has 3 connections open; limits.connections allows 3") || strings.Count(text, "connection refused") > 2 {
		t.Errorf("log: %s", text)
	}
	open[0].Close()
	for deadline := time.Now().Add(10 * time.Second); ; {
		if _, answered := idle(t, e.socket); answered {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("a closed connection makes no room")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// idle connects as another user, says the preface, and tells whether policyd answers with its settings.
func idle(t *testing.T, socket string) (net.Conn, bool) {
	t.Helper()
	type result struct {
		c   net.Conn
		err error
	}
	done := make(chan result)
	go func() {
		// The thread alone is another user, as the kernel sees it, and ends with the goroutine.
		runtime.LockOSThread()
		keep := ^uintptr(0)
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, keep, 65534, keep); errno != 0 {
			done <- result{nil, errno}
			return
		}
		c, err := net.Dial("unix", socket)
		done <- result{c, err}
	}()
	r := <-done
	if r.err != nil {
		t.Fatal(r.err)
	}
	t.Cleanup(func() { r.c.Close() })
	if err := r.c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	framer := http2.NewFramer(r.c, r.c)
	_, err := r.c.Write([]byte(http2.ClientPreface))
	if err == nil {
		err = framer.WriteSettings()
	}
	if err == nil {
		_, err = framer.ReadFrame()
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("neither answered nor closed")
	}
	return r.c, err == nil
}
