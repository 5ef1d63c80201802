package smack

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"policyd.dev/policyd/smack/smacktest"
)

func lintOf(t *testing.T, text string, o LintOptions) []string {
	t.Helper()
	b := NewBuilder("p")
	if err := b.Layer("l", AllAccess).Text("f", []byte(text)); err != nil {
		t.Fatal(err)
	}
	p, _, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range Lint(p, o) {
		if f.Text == "" {
			t.Errorf("%v says nothing", f)
		}
		out = append(out, string(f.Code)+" "+f.Label)
	}
	return out
}

func TestLint(t *testing.T) {
	var used strings.Builder
	for i := range 5 {
		fmt.Fprintf(&used, "System::Run Obj%d r\nUser Obj%d r\n", i, i)
	}
	for _, c := range []struct {
		name, text string
		o          LintOptions
		want       []string
	}{
		{"nothing odd", used.String(), LintOptions{}, nil},
		{"another byte", used.String() + "System:.Run Other r\n", LintOptions{}, []string{"near-label System:.Run"}},
		{"a byte less", used.String() + "System:Run Other r\n", LintOptions{}, []string{"near-label System:Run"}},
		{"a byte more", used.String() + "System::Runn Other r\n", LintOptions{}, []string{"near-label System::Runn"}},
		{"case", used.String() + "system::run Other r\n", LintOptions{}, []string{"near-label system::run"}},
		{"a number", used.String() + "User1 Other r\n", LintOptions{}, nil},
		{"both in use", used.String() + strings.ReplaceAll(used.String(), "User", "Usar"), LintOptions{}, nil},
		{"seldom both, a byte less", "User::Dat Obj r\nUser::Data Obj r\n", LintOptions{}, []string{"near-label User::Dat"}},
		{"seldom both, a letter more at the end", "Logger Obj r\nLoggers Obj r\nLoggers Other r\n", LintOptions{}, []string{"near-label Logger"}},
		{"seldom both, exchanged", "Obj App::mial r\nObj App::mail r\n", LintOptions{}, []string{"near-label App::mail"}},
		{"exchanged", used.String() + "Sytsem::Run Other r\n", LintOptions{}, []string{"near-label Sytsem::Run"}},
		{"seldom both, another byte", "Svc::a Obj r\nSvc::b Obj r\nSvc::b Other r\n", LintOptions{}, nil},
		{"exchanged digits", "App12 Obj r\nApp21 Obj r\nApp1 Obj r\n", LintOptions{}, nil},
		{"exchanged, both in use", used.String() + strings.ReplaceAll(used.String(), "User", "Usre"), LintOptions{}, nil},
		{"short labels", "A B r\nA C r\nA D r\nAB X r\n", LintOptions{}, nil},
		{"budget", used.String(), LintOptions{Labels: 6}, []string{"label-budget "}},
		{"objects", used.String(), LintOptions{Objects: 4}, []string{"many-objects System::Run", "many-objects User"}},
		{"floor", "C _ w\n_ B wa\nA _ rl\n? B r\nA ^ r\n^ A w\nA ? x\n", LintOptions{}, []string{"built-in-label C", "built-in-label B", "built-in-label B", "built-in-label A", "built-in-label A", "built-in-label A", "built-in-label A"}},
		{"dead", "A * r\n* A r\nA _ rx\n^ A l\n", LintOptions{}, nil},
	} {
		got := lintOf(t, c.text, c.o)
		slices.Sort(got)
		slices.Sort(c.want)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	var wide strings.Builder
	for i := range 20000 {
		fmt.Fprintf(&wide, "Subject object%d r\n", i)
	}
	if got := lintOf(t, wide.String(), LintOptions{Labels: 30000}); !slices.Equal(got, []string{"many-objects Subject"}) {
		t.Errorf("20000 objects of one subject: %q", got)
	}
	if got := lintOf(t, string(smacktest.Platform.Text()), LintOptions{}); len(got) != 0 {
		t.Errorf("the platform's rules are odd: %q", got)
	}
}

// TestLintWords: one rule is no rules.
func TestLintWords(t *testing.T) {
	b := NewBuilder("p")
	if err := b.Layer("l", AllAccess).Text("f", []byte("User::Dat Obj r\nUser::Data Obj r\nCase Obj r\ncase Obj r\n")); err != nil {
		t.Fatal(err)
	}
	p, _, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	got := Lint(p, LintOptions{})
	if len(got) != 2 {
		t.Errorf("%v", got)
	}
	for _, f := range got {
		if strings.Contains(f.Text, "1 rules") || !strings.Contains(f.Text, "1 rule") {
			t.Error(f.Text)
		}
	}
}
