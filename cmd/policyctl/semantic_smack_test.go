package main

import (
	"testing"

	"policyd.dev/policyd/smack"
)

// What a setting that differs allows: where that cannot be told, it counts as gained.
func TestSmackSettingEffect(t *testing.T) {
	num := func(n uint8) *uint8 { return &n }
	for _, c := range []struct {
		name     string
		from, to smack.Settings
		want     string
	}{
		{"onlycap shrinks", smack.Settings{Onlycap: []string{"A", "B"}}, smack.Settings{Onlycap: []string{"A"}}, "lost"},
		{"onlycap grows", smack.Settings{Onlycap: []string{"A"}}, smack.Settings{Onlycap: []string{"A", "B"}}, "gained"},
		{"onlycap is another", smack.Settings{Onlycap: []string{"A"}}, smack.Settings{Onlycap: []string{"B"}}, "gained"},
		{"onlycap is emptied", smack.Settings{Onlycap: []string{"A"}}, smack.Settings{ClearOnlycap: true}, "gained"},
		{"onlycap is filled", smack.Settings{ClearOnlycap: true}, smack.Settings{Onlycap: []string{"A"}}, "lost"},
		{"onlycap is no longer set", smack.Settings{Onlycap: []string{"A"}}, smack.Settings{}, "gained"},
		{"onlycap is set", smack.Settings{}, smack.Settings{Onlycap: []string{"A"}}, "unknown"},
		{"unconfined is set", smack.Settings{}, smack.Settings{Unconfined: "A"}, "gained"},
		{"unconfined is another", smack.Settings{Unconfined: "A"}, smack.Settings{Unconfined: "B"}, "gained"},
		{"unconfined is taken away", smack.Settings{Unconfined: "A"}, smack.Settings{ClearUnconfined: true}, "lost"},
		{"unconfined is no longer set", smack.Settings{Unconfined: "A"}, smack.Settings{}, "unknown"},
		{"ptrace is stricter", smack.Settings{PTrace: num(0)}, smack.Settings{PTrace: num(2)}, "lost"},
		{"ptrace is laxer", smack.Settings{PTrace: num(2)}, smack.Settings{PTrace: num(1)}, "gained"},
		{"ptrace is set", smack.Settings{}, smack.Settings{PTrace: num(2)}, "unknown"},
		{"logging", smack.Settings{Logging: num(1)}, smack.Settings{Logging: num(0)}, "neither"},
		{"relabel-self grows", smack.Settings{}, smack.Settings{RelabelSelf: []string{"A"}}, "gained"},
		{"relabel-self shrinks", smack.Settings{RelabelSelf: []string{"A", "B"}}, smack.Settings{RelabelSelf: []string{"A"}}, "lost"},
		{"ambient", smack.Settings{Ambient: "A"}, smack.Settings{Ambient: "B"}, "unknown"},
		{"doi", smack.Settings{DOI: 3}, smack.Settings{DOI: 4}, "unknown"},
		{"cipso", smack.Settings{}, smack.Settings{Cipso: []smack.Cipso{{Label: "A", Level: 1}}}, "unknown"},
	} {
		changes := c.to.Difference(&c.from)
		if len(changes) != 1 {
			t.Errorf("%s: %v", c.name, changes)
			continue
		}
		if got := settingEffect(changes[0], &c.from, &c.to); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}
