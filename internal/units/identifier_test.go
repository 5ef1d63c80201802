package units

import (
	"strings"
	"testing"
)

// What an attached service prints keeps its name.
func TestIdentifier(t *testing.T) {
	for text, want := range map[string]string{
		"ExecStart=/usr/sbin/nginx -g x":                             "nginx",
		"ExecStart=@/bin/sh other-name":                              "sh",
		"ExecStart=-!/opt/a b\nExecStart=/opt/c":                     "a",
		"ExecStart=prog":                                             "prog",
		"ExecStart=%h/bin/x-%i":                                      "x-%i",
		"ExecStart=/opt/100%%":                                       "100%%",
		"ExecStart=%f":                                               "",
		"ExecStart=/opt/%I":                                          "",
		"ExecStart=\"/opt/a b\"":                                     "a b",
		"ExecStart=\"/opt/a \"":                                      "",
		"ExecStart=\"/opt/a\\\\\"":                                   "",
		"ExecStart=/bin/x\nSyslogIdentifier=mine":                    "",
		"ExecStart=/bin/x\nSyslogIdentifier=mine\nSyslogIdentifier=": "x",
	} {
		s := service(t, "x.service", "[Service]\n"+text+"\n", "NoNewPrivileges=yes\n")
		made, _, err := Text(Attachment{Unit: "x.service", Policy: "web"}, s, Files{Launcher: launcher, Profile: "/x"}, false, false)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		settings, err := ParseFile(DropIn, made)
		if got := lastOf(settings, "SyslogIdentifier"); err != nil || got != want || strings.Contains(made, "SyslogIdentifier=\n") {
			t.Errorf("%s: SyslogIdentifier=%q, want %q; %v", text, got, want, err)
		}
	}
	one := service(t, "x.service", "[Service]\nExecStart=/bin/x\n", "")
	other := service(t, "x.service", "[Service]\nExecStart=/bin/x\nSyslogIdentifier=mine\n", "")
	if one.Source(false) == other.Source(false) {
		t.Error("an identifier of the service's own is no change of it")
	}
}
