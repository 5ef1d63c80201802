package journal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// kept is a handler that keeps what it is given.
type kept struct {
	slog.Handler
	message string
	fields  map[string]string
}

func (k *kept) Handle(_ context.Context, r slog.Record) error {
	k.message, k.fields = r.Message, map[string]string{}
	r.Attrs(func(a slog.Attr) bool {
		k.fields[a.Key] = a.Value.String()
		return true
	})
	return nil
}

func TestFields(t *testing.T) {
	k := &kept{Handler: slog.DiscardHandler}
	log := func(h slog.Handler, message string, args ...any) {
		r := slog.NewRecord(time.Now(), slog.LevelInfo, message, 0)
		r.Add(args...)
		if err := h.Handle(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	h := &Handler{to: k}
	for _, tc := range []struct {
		handler slog.Handler
		message string
		args    []any
		line    string
		fields  map[string]string
	}{
		{
			h, "request",
			[]any{"request_id", "r1", "caller", "uid:0", "took", time.Second},
			"request: request_id=r1 caller=uid:0 took=1s",
			map[string]string{"REQUEST_ID": "r1", "CALLER": "uid:0", "POLICYD_TOOK": "1s"},
		},
		{
			h, "smack policy is in force",
			[]any{"policy", "web@3", "rules", 2},
			"smack policy is in force: policy=web@3 rules=2",
			map[string]string{"POLICY": "web", "VERSION": "3", "POLICYD_RULES": "2", "MESSAGE_ID": "a0ed69a893b844358816773c3b0aa8e0"},
		},
		{
			h, "odd",
			[]any{"policy", "web", "error", errors.New("a\nb"), "message", "", "CODE_FILE", "x", "_pid", 1, "é", 2},
			`odd: policy=web error="a\nb" message="" CODE_FILE=x _pid=1 é=2`,
			map[string]string{"POLICY": "web", "POLICYD_ERROR": "a\nb", "POLICYD_MESSAGE": "", "POLICYD_CODE_FILE": "x", "POLICYD__PID": "1", "POLICYD__": "2"},
		},
		{
			h.WithAttrs([]slog.Attr{slog.String("sandbox", "s1")}).WithGroup("g"), "grouped",
			[]any{"a", 1, slog.Group("h", "b", 2), slog.Attr{}},
			"grouped: sandbox=s1 g.a=1 g.h.b=2",
			map[string]string{"SANDBOX": "s1", "POLICYD_G_A": "1", "POLICYD_G_H_B": "2"},
		},
		{h.OfUnit("a.service").WithAttrs(nil), "of a unit", nil, "of a unit", map[string]string{"OBJECT_SYSTEMD_UNIT": "a.service"}},
		{h.WithGroup(""), "bare", nil, "bare", map[string]string{}},
	} {
		log(tc.handler, tc.message, tc.args...)
		if diff := cmp.Diff(tc.fields, k.fields); diff != "" || k.message != tc.line {
			t.Errorf("%s: line %q, want %q\n%s", tc.message, k.message, tc.line, diff)
		}
	}
}

func TestConnected(t *testing.T) {
	f, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	st := info.Sys().(*syscall.Stat_t)
	for value, want := range map[string]bool{
		"": false, "1": false, "x:1": false, "1:x": false,
		fmt.Sprintf("%d:%d", st.Dev, st.Ino):   true,
		fmt.Sprintf("%d:%d", st.Dev, st.Ino+1): false,
	} {
		t.Setenv(StreamEnv, value)
		if got := Connected(f); got != want {
			t.Errorf("%q: %v", value, got)
		}
	}
}
