package fleet

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"policyd.dev/policyd/internal/errs"
)

func TestSummary(t *testing.T) {
	node := func(s State, alive bool) Node {
		return Node{Name: "n", Alive: alive, Status: &Status{Node: "n", State: s}}
	}
	for name, tc := range map[string]struct {
		nodes []Node
		want  State
	}{
		"none":               {nil, Pending},
		"all loaded":         {[]Node{node(Loaded, true), node(Loaded, true)}, Loaded},
		"some not reached":   {[]Node{node(Skipped, true), node(Loaded, true)}, Loaded},
		"one compiles":       {[]Node{node(Loaded, true), node(Compiling, true)}, Compiling},
		"one failed":         {[]Node{node(Failed, true), node(Degraded, true), node(Stale, true)}, Failed},
		"degraded":           {[]Node{node(Loaded, true), node(Degraded, true)}, Degraded},
		"lease gone":         {[]Node{node(Loaded, true), node(Loaded, false)}, Stale},
		"failed, lease gone": {[]Node{node(Failed, false)}, Failed},
		"never heard of":     {[]Node{node(Loaded, true), {Name: "new"}}, Pending},
		"halted":             {[]Node{node(Halted, true), node(Loaded, true)}, Halted},
	} {
		if got := Summary(tc.nodes); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

func TestRecords(t *testing.T) {
	spec := &Spec{Channel: "stable", Labels: map[string]string{"zone": "eu"}, Enrolled: testTime}
	raw, err := Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	got := &Spec{}
	if err := Unmarshal(raw, got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(spec, got); diff != "" {
		t.Error(diff)
	}
	for name, in := range map[string]string{
		"not JSON":      "x",
		"empty":         "",
		"no channel":    "{}",
		"bad channel":   `{"channel":"../x"}`,
		"bad label":     `{"channel":"a","labels":{"a/b":"c"}}`,
		"bad value":     `{"channel":"a","labels":{"a":"c d"}}`,
		"two values":    `{"channel":"a"}{"channel":"b"}`,
		"channel twice": `{"channel":"a","channel":"b c"}`,
	} {
		if err := Unmarshal([]byte(in), &Spec{}); !errors.Is(err, errs.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := Unmarshal([]byte(`{"channel":"a","later":1}`), &Spec{}); err != nil {
		t.Errorf("a field of a newer member: %v", err)
	}
	if err := Unmarshal(make([]byte, MaxRecordBytes+1), &Spec{}); !errors.Is(err, errs.ErrTooLarge) {
		t.Error(err)
	}
	if _, err := Marshal(&Status{Node: "n", State: Failed, Message: strings.Repeat("x", MaxRecordBytes)}); !errors.Is(err, errs.ErrTooLarge) {
		t.Error(err)
	}
	for _, v := range []interface{ Check() error }{&Status{Node: "n", State: "Fine"}, &Status{State: Loaded}, &Hold{Kind: "stop"}} {
		if _, err := Marshal(v); !errors.Is(err, errs.ErrInvalid) {
			t.Errorf("%+v: %v", v, err)
		}
	}
}

func TestLayout(t *testing.T) {
	l := Layout{"prod"}
	digest := digestOf("x")
	for got, want := range map[string]string{
		l.Blob(digest):     "/policyd/v1/prod/pub/blob/" + digest[7:],
		l.Channel("a"):     "/policyd/v1/prod/pub/channel/a",
		l.Halt(""):         "/policyd/v1/prod/pub/halt",
		l.Halt("a"):        "/policyd/v1/prod/pub/halt/a",
		l.Spec("n1"):       "/policyd/v1/prod/nodes/n1/spec",
		l.Status("n1"):     "/policyd/v1/prod/nodes/n1/status",
		l.Last("n1"):       "/policyd/v1/prod/nodes/n1/last",
		l.Leader():         "/policyd/v1/prod/ctl/leader",
		l.Event("channel"): "/policyd/v1/prod/ctl/event/channel",
		l.Resumed(""):      "/policyd/v1/prod/ctl/resumed",
		l.Resumed("a"):     "/policyd/v1/prod/ctl/resumed/a",
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if node, what, ok := l.SplitNode(l.Last("n1")); node != "n1" || what != "last" || !ok {
		t.Error(node, what, ok)
	}
	for _, key := range []string{"", l.Nodes(), l.Nodes() + "n1", l.Channel("a"), l.Nodes() + "/status"} {
		if _, _, ok := l.SplitNode(key); ok {
			t.Errorf("%s is a node's", key)
		}
	}
	for _, bad := range []string{"", "a/b", "..", ".a", "a.", "-a", "a b", "a\n", "ä", strings.Repeat("x", 64)} {
		if err := ValidName(bad); !errors.Is(err, errs.ErrInvalid) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	for _, good := range []string{"a", "n1.example.org", "A-b_c", strings.Repeat("x", 63)} {
		if err := ValidName(good); err != nil {
			t.Error(err)
		}
	}
}
