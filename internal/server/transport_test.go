package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/store"
)

// lines collects a log that several goroutines write.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// of gives the lines of a request.
func (l *lines) of(t *testing.T, requestID string) []map[string]any {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []map[string]any
	for line := range strings.Lines(l.buf.String()) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		if m["request_id"] == requestID {
			out = append(out, m)
		}
	}
	return out
}

// Every call leaves one line that says who asked for what and what came of it, found by the id the client has.
func TestRequestLog(t *testing.T) {
	var log lines
	e := start(t, func(c *Config) {
		c.Log = slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	calls := []struct {
		name, id             string // id "": the server makes one
		call                 func(id string) (metadata.MD, error)
		level, method, code  string
		message, errContains string
	}{
		{name: "write", id: "write-1", level: "INFO", method: "PolicyService/Apply", code: "OK", message: "request", call: func(id string) (trailer metadata.MD, err error) {
			_, err = e.policy.Apply(metadata.AppendToOutgoingContext(e.ctx(), RequestIDKey, id), &apiv1.ApplyRequest{Files: files(echoPolicy("web"))}, grpc.Trailer(&trailer))
			return trailer, err
		}},
		{name: "read", id: "read-1", level: "DEBUG", method: "AdminService/Status", code: "OK", message: "request", call: func(id string) (trailer metadata.MD, err error) {
			_, err = e.admin.Status(metadata.AppendToOutgoingContext(e.ctx(), RequestIDKey, id), &apiv1.StatusRequest{}, grpc.Trailer(&trailer))
			return trailer, err
		}},
		{name: "refused", id: "refused-1", level: "INFO", method: "PolicyService/Rollback", code: "NotFound", message: "request refused", errContains: "none", call: func(id string) (trailer metadata.MD, err error) {
			_, err = e.policy.Rollback(metadata.AppendToOutgoingContext(e.ctx(), RequestIDKey, id), &apiv1.RollbackRequest{Kind: store.KindLandlockPolicy, Name: "none", To: 1}, grpc.Trailer(&trailer))
			return trailer, err
		}},
		{name: "refused stream, id unfit for a log", level: "INFO", method: "SandboxService/Logs", code: "NotFound", message: "request refused", errContains: "0123456789ab", call: func(string) (metadata.MD, error) {
			stream, err := e.box.Logs(metadata.AppendToOutgoingContext(e.ctx(), RequestIDKey, "two words"), &apiv1.LogsRequest{Id: "0123456789ab"})
			if err != nil {
				return nil, err
			}
			_, err = stream.Recv()
			return stream.Trailer(), err
		}},
	}
	for _, c := range calls {
		t.Run(c.name, func(t *testing.T) {
			trailer, err := c.call(c.id)
			if codeOf(err).String() != c.code {
				t.Errorf("answered with %v, want %s", err, c.code)
			}
			told := trailer.Get(RequestIDKey)
			if len(told) != 1 || told[0] == "" || told[0] == "two words" || c.id != "" && told[0] != c.id {
				t.Fatalf("the client is told the ids %q, gave %q", told, c.id)
			}
			got := log.of(t, told[0])
			if len(got) != 1 {
				t.Fatalf("lines of request %s: %v", told[0], got)
			}
			line := got[0]
			for key, want := range map[string]string{
				"level": c.level, "msg": c.message, "caller": callerName(), "method": c.method, "code": c.code,
			} {
				if line[key] != want {
					t.Errorf("%s is %v, want %s, in %v", key, line[key], want, line)
				}
			}
			for _, key := range []string{"time", "took", "pid"} {
				if !slices.Contains(slices.Collect(maps.Keys(line)), key) {
					t.Errorf("no %s in %v", key, line)
				}
			}
			if text, _ := line["error"].(string); !strings.Contains(text, c.errContains) || (text != "") != (c.code != "OK") {
				t.Errorf("error %q, want %q in it", text, c.errContains)
			}
		})
	}
}

// A client that pings too often is told to calm down and cut off; one that does not is answered.
func TestTooManyPings(t *testing.T) {
	e := start(t, nil)
	conn, err := net.Dial("unix", e.socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		t.Fatal(err)
	}
	framer := http2.NewFramer(conn, conn)
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	// next reads to the next answer to a ping or the end of the connection's use.
	next := func() (http2.Frame, error) {
		for {
			f, err := framer.ReadFrame()
			if err != nil {
				return nil, err
			}
			switch f.(type) {
			case *http2.PingFrame, *http2.GoAwayFrame:
				return f, nil
			}
		}
	}
	const patience = 3 // one ping in time, and what grpc forgives
	for i := range byte(10) {
		if err := framer.WritePing(false, [8]byte{i}); err != nil {
			t.Fatalf("ping %d: %v", i, err)
		}
		f, err := next()
		if err != nil {
			t.Fatalf("after ping %d: %v", i, err)
		}
		switch f := f.(type) {
		case *http2.PingFrame:
			if !f.IsAck() || f.Data != [8]byte{i} {
				t.Fatalf("ping %d is answered by %v", i, f)
			}
		case *http2.GoAwayFrame:
			if i < patience-1 || f.ErrCode != http2.ErrCodeEnhanceYourCalm || string(f.DebugData()) != "too_many_pings" {
				t.Fatalf("after ping %d: %v %q", i, f.ErrCode, f.DebugData())
			}
			for err = nil; err == nil; {
				_, err = next()
			}
			if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
				t.Error("the connection is not closed")
			}
			// Others are not concerned.
			if _, err := e.admin.Status(e.ctx(), &apiv1.StatusRequest{}); err != nil {
				t.Error(err)
			}
			return
		}
	}
	t.Fatal("pings without end are answered")
}
