package profile

import (
	"reflect"
	"testing"
)

func TestComparePortsAndScopes(t *testing.T) {
	ports := func(net, scope Access, first, last uint16) *Profile {
		b := NewBuilder([]Layer{{Name: "n", Net: net, Scope: scope}})
		if first > 0 {
			b.AddPorts(0, first, last, NetBindTCP, false)
		}
		return mustBuild(t, b)
	}
	a, b := ports(NetBindTCP, ScopeSignal, 80, 90), ports(NetBindTCP|NetConnectTCP, ScopeAbstractUnixSocket, 85, 100)
	c := mustCompare(t, a, b, 0)
	want := []PortChange{
		{0, 79, Change{Lost: NetConnectTCP}},
		{80, 84, Change{Lost: NetConnectTCP | NetBindTCP}},
		{85, 90, Change{Lost: NetConnectTCP}},
		{91, 100, Change{Lost: NetConnectTCP, Gained: NetBindTCP}},
		{101, 65535, Change{Lost: NetConnectTCP}},
	}
	if !reflect.DeepEqual(c.Ports, want) {
		t.Errorf("got %+v", c.Ports)
	}
	if got, want := c.PortReasons(3), []Reason{
		{false, Refuses, 0, -1, NetBindTCP},
		{true, Grants, 0, 0, NetBindTCP},
		{false, Unhandled, -1, -1, NetConnectTCP},
		{true, Refuses, 0, -1, NetConnectTCP},
	}; !reflect.DeepEqual(got, want) {
		t.Errorf("reasons %+v", got)
	}
	if want := (Change{Gained: ScopeSignal, Lost: ScopeAbstractUnixSocket}); c.Scope != want {
		t.Errorf("scope %+v", c.Scope)
	}
	if got, want := c.ScopeReasons(), []Reason{
		{false, Refuses, 0, -1, ScopeSignal},
		{true, Unhandled, -1, -1, ScopeSignal},
		{false, Unhandled, -1, -1, ScopeAbstractUnixSocket},
		{true, Refuses, 0, -1, ScopeAbstractUnixSocket},
	}; !reflect.DeepEqual(got, want) {
		t.Errorf("reasons %+v", got)
	}
}

// What a profile says besides rights is told apart from them.
func TestCompareSettings(t *testing.T) {
	make := func(m Missing, within int, log LogFlags) *Profile {
		b := NewBuilder([]Layer{{Name: "l", FS: ro, Log: log}})
		b.AddPath(0, "/srv/a", ro, false, m)
		b.KeepWithin("/srv/a", within)
		b.AddPath(0, "/srv/a/b", FSReadFile, false, m)
		return mustBuild(t, b)
	}
	a, b := make(Fail, 4, 0), make(Skip, 1, LogSubdomainsOff)
	b.Degrade, b.AcceptSharedInode, b.AcceptReferFlatten, b.Flatten = true, true, true, true
	c := mustCompare(t, a, b, 0)
	want := []Setting{
		{"enforcement", "", "required", "degrade"},
		{"flatten", "", "no", "yes"},
		{"accept shared inodes", "", "no", "yes"},
		{"accept flattened refer", "", "no", "yes"},
		{"subdomains_off", "", "no", "yes"},
		{"missing", "/srv/a", "fail", "skip"},
		{"within", "/srv/a", "/srv", ""},
		{"missing", "/srv/a/b", "fail", "skip"},
	}
	if !reflect.DeepEqual(c.Settings, want) {
		t.Errorf("got %+v", c.Settings)
	}
	if c.Gains() || c.Loses() || c.Equal() {
		t.Errorf("gains %v, loses %v, equal %v", c.Gains(), c.Loses(), c.Equal())
	}
}

func TestCompareBadABI(t *testing.T) {
	p := build(t, []Access{ro})
	for _, abi := range []int{-1, MaxABI + 1} {
		if _, err := Compare(p, p, abi); err == nil {
			t.Errorf("no error for ABI %d", abi)
		}
	}
}
