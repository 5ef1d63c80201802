package units

import (
	"path"
	"strings"
)

// identifier keeps the name under which the journal and syslog know what the service prints: systemd takes that of the
// program it executes (setup_output of its src/core/exec-invoke.c), which is the launcher's now. SyslogIdentifier= is one
// for all commands, so it is the program of the first.
func (d *draft) identifier() error {
	if d.s.Identifier == "" && len(d.s.Commands["ExecStart"]) > 0 {
		if name := path.Base(d.s.Commands["ExecStart"][0].Program); asValue(name) {
			d.settings = append(d.settings, "SyslogIdentifier="+name)
		}
	}
	return nil
}

// plainSpecifiers are those whose value holds no slash (systemd.unit(5)), and %%.
const plainSpecifiers = "%abBglmnNpuUGijvwW"

// asValue tells that a setting which is taken as it stands but for specifiers can be s, and that its last slash stays where
// it was once they are expanded.
func asValue(s string) bool {
	for rest := s; ; {
		_, after, ok := strings.Cut(rest, "%")
		if !ok {
			break
		}
		if after == "" || !strings.Contains(plainSpecifiers, after[:1]) {
			return false
		}
		rest = after[1:]
	}
	return strings.Trim(s, space) == s && !strings.HasSuffix(s, `\`)
}

// lastOf is the value that a setting of a service has in the end.
func lastOf(settings []Setting, key string) (value string) {
	for _, s := range settings {
		if s.Section == "Service" && s.Key == key {
			value = s.Value
		}
	}
	return value
}
