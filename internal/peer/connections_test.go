package peer

import (
	"bytes"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
)

// A peer has so many connections and no more, and each is given back once.
func TestConnections(t *testing.T) {
	var log bytes.Buffer
	open := NewConnections(2, slog.New(slog.NewTextHandler(&log, nil)))
	open.owner = ^uint32(0) // this process is nobody special
	creds, err := Credentials(nil, open)
	if err != nil {
		t.Fatal(err)
	}
	l, path := listen(t)
	connect := func() (net.Conn, error) {
		client, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		raw, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { raw.Close() })
		c, _, err := creds.ServerHandshake(raw)
		return c, err
	}
	descriptors := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}

	first, err := connect()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := connect(); err != nil {
		t.Fatal(err)
	}
	before := descriptors()
	for range 3 {
		if _, err := connect(); err == nil || !strings.Contains(err.Error(), "has 2 connections open; limits.connections allows 2") {
			t.Errorf("third connection: %v", err)
		}
	}
	if left := descriptors() - before; left != 3*2 { // both ends, which are the test's
		t.Errorf("3 refused connections hold %d descriptors", left)
	}
	if n := strings.Count(log.String(), "connection refused"); n != 1 {
		t.Errorf("%d lines in a moment: %s", n, log.String())
	}
	first.Close()
	first.Close()
	if _, err := connect(); err != nil {
		t.Errorf("after one was closed: %v", err)
	}
	if _, err := connect(); err == nil {
		t.Error("closing one twice made room for two")
	}
	open.SetMost(3)
	if _, err := connect(); err != nil {
		t.Errorf("after the limit was raised: %v", err)
	}
}

// Whom a connection is counted for.
func TestConnectionsCountedApart(t *testing.T) {
	open := NewConnections(1, slog.New(slog.DiscardHandler))
	for _, tc := range []struct {
		id *Identity
		ok bool
	}{
		{&Identity{Local: true, UID: 4321}, true},
		{&Identity{Local: true, UID: 4321}, false},
		{&Identity{Local: true, UID: 4322}, true},
		{&Identity{Local: true, UID: 4321, Confined: reasonNoNewPrivs}, true},
		{&Identity{Local: true, UID: 4321, Confined: reasonUnknown}, false},
		{&Identity{Certificate: "ci"}, true},
		{&Identity{Certificate: "ci"}, false},
		{&Identity{Certificate: "uid:4321"}, true},
		{&Identity{Local: true, UID: open.owner}, true},
		{&Identity{Local: true, UID: open.owner}, true},
		{&Identity{Local: true, UID: open.owner, Confined: reasonSandbox}, true},
		{&Identity{Local: true, UID: open.owner, Confined: reasonSandbox}, false},
	} {
		if _, err := open.take(tc.id); (err == nil) != tc.ok {
			t.Errorf("%s %q: %v, want taken %v", tc.id, tc.id.Confined, err, tc.ok)
		}
	}
}
