package main

import (
	"fmt"
	"strings"
	"time"

	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/internal/buildinfo"
	"policyd.dev/policyd/smack/smackfs"
)

// statusEvery is how often the text of the service manager is made anew; it is told only when it has changed.
const statusEvery = 5 * time.Second

// maxStatus bounds the text: one line of systemctl status.
const maxStatus = 600

// text is what the service manager shows: the version, the sandboxes, and everything that is not as it should be.
func (d *daemon) text() string {
	parts := []string{buildinfo.Version}
	if s, err := d.server.Summary(); err != nil {
		parts = append(parts, "sandboxes cannot be read: "+err.Error())
	} else {
		text := fmt.Sprintf("%d sandboxes", s.Sandboxes)
		if s.Sandboxes == 1 {
			text = "1 sandbox"
		}
		for _, n := range []struct {
			n    int
			what string
		}{{s.Degraded, "degraded"}, {s.Outdated, "on an older version"}} {
			if n.n > 0 {
				text += fmt.Sprintf(", %d %s", n.n, n.what)
			}
		}
		parts = append(parts, text)
	}
	if d.support.State == landlock.Available {
		parts = append(parts, fmt.Sprintf("Landlock ABI %d", d.support.ABI))
	} else {
		parts = append(parts, fmt.Sprintf("NO LANDLOCK: %v", d.support.Err))
	}
	switch st, err := d.records.SmackState(); {
	case d.smack.Failed() != nil:
		parts = append(parts, "SMACK POLICY NOT IN FORCE: "+d.smack.Failed().Error())
	case err == nil && st.GetPolicy() != "" && st.GetBootId() == smackfs.BootID():
		parts = append(parts, fmt.Sprintf("Smack policy %s@%d", st.GetPolicy(), st.GetVersion()))
	}
	if d.unwell != nil {
		parts = append(parts, "STUCK: "+d.unwell.Error())
	}
	if e := d.configuration.GetError(); e != "" {
		parts = append(parts, "CONFIGURATION NOT READ AGAIN: "+e)
	}
	if keys := d.configuration.GetRestart(); len(keys) > 0 {
		parts = append(parts, "waits for a restart: "+strings.Join(keys, ", "))
	}
	text := strings.Join(strings.Fields(strings.Join(parts, "; ")), " ")
	if len(text) > maxStatus {
		text = strings.ToValidUTF8(text[:maxStatus], "") + "..."
	}
	return text
}

// show tells the service manager the text when it is another one than before.
func (d *daemon) show() {
	if text := d.text(); text != d.shown {
		d.shown = text
		d.tell("STATUS=" + text)
	}
}
