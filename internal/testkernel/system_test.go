package testkernel

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// unit is the text of a oneshot unit that stays active.
func unit(exec, more string) string {
	return "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=" + exec + "\n" + more
}

// TestSystem boots systemd twice with a folder that both boots see. On uml-6.1 test/e2e does.
func TestSystem(t *testing.T) {
	RequireSystemd(t, UML73)
	var console bytes.Buffer
	kept := t.TempDir()
	binary := "\x7fELF\x00\xff\xfe\xc3\x28\xed\xa0\x80 no text at all\n"
	s := &System{
		Kernel: UML73,
		Files: map[string]string{
			"/etc/systemd/system/beside.service": unit("/opt/beside", ""),
			"/opt/beside":                        "#!/bin/sh\necho said by the unit\necho made >>/srv/kept/beside\n",
			"/opt/binary":                        binary,
		},
		Folders: map[string]string{"/srv/kept": kept},
		Start:   []string{"beside.service"},
		Output:  &console,
	}
	for _, made := range []string{"made\n", "made\nmade\n"} {
		console.Reset()
		b, err := s.Boot(t.Context(), Script{After: []string{"beside.service"}, Text: `
			step one cat /proc/1/comm
			step two sh -c 'echo wrong >&2; exit 3'
			step kept cat /srv/kept/beside
			step failed systemctl --failed --no-legend
			step rules test -e /sys/fs/smackfs/load2
			step usr touch /usr/x
			step etc ls /etc/shadow
			step binary sha256sum /opt/binary
			echo the end
			exit 7`})
		if err != nil {
			t.Fatal(err)
		}
		if b.Exit != 7 || b.Output != "the end\n" {
			t.Errorf("exit status %d, output %q", b.Exit, b.Output)
		}
		for name, want := range map[string]Step{
			"one": {Stdout: "systemd\n"}, "two": {Stderr: "wrong\n", Exit: 3}, "kept": {Stdout: made},
			"failed": {}, "rules": {}, "binary": {Stdout: fmt.Sprintf("%x  /opt/binary\n", sha256.Sum256([]byte(binary)))},
		} {
			if got := b.Steps[name]; got != want {
				t.Errorf("step %s: %v\nwant %v", name, got, want)
			}
		}
		if got := b.Steps["usr"]; got.Exit == 0 || !strings.Contains(got.Stderr, "Read-only") {
			t.Errorf("writes to /usr: %v", got)
		}
		if got := b.Steps["etc"]; got.Exit == 0 {
			t.Errorf("the host's /etc is in the guest: %v", got)
		}
		for _, want := range []string{"said by the unit", "Finished beside.service", "Stopped beside.service", "reboot: "} {
			if !strings.Contains(console.String(), want) {
				t.Errorf("the console lacks %q:\n%s", want, console.String())
			}
		}
	}
	if got, err := os.ReadFile(filepath.Join(kept, "beside")); err != nil || string(got) != "made\nmade\n" {
		t.Errorf("kept: %q, %v", got, err)
	}
}

func TestSystemErrors(t *testing.T) {
	RequireSystemd(t, UML73)
	adoptOrphans(t)
	for _, tc := range []struct {
		name   string
		system System
		script Script
		want   []string
	}{
		{name: "unknown kernel", system: System{Kernel: "uml-0"}, want: []string{"no kernel named"}},
		{
			name: "missing folder", system: System{Kernel: UML73, Folders: map[string]string{"/srv": "/nonexistent"}},
			want: []string{"its init failed", "mount the host's /nonexistent on /srv"},
		},
		{
			name: "file in the host's", system: System{Kernel: UML73, Files: map[string]string{"/usr/x": ""}},
			want: []string{"its init failed", "/usr/x: read-only file system"},
		},
		{
			name: "reboots", system: System{Kernel: UML73}, script: Script{Text: "reboot -ff; sleep 1000"},
			want: []string{"no exit status of the program was seen"},
		},
		{
			name: "hangs",
			system: System{
				Kernel: UML73, Start: []string{"hangs.service"},
				Files: map[string]string{"/etc/systemd/system/hangs.service": unit("/bin/sh -c 'echo hanging; sleep 1000'", "")},
			},
			script: Script{After: []string{"hangs.service"}}, want: []string{"killed: context canceled", "]: hanging"},
		},
		{
			name: "does not stop",
			system: System{
				Kernel: UML73, Start: []string{"stays.service"}, grace: 2 * time.Second,
				Files: map[string]string{"/etc/systemd/system/stays.service": unit("/bin/true", "ExecStop=/bin/sleep 1000\n")},
			},
			script: Script{After: []string{"stays.service"}}, want: []string{"it was not shut down within 2s", "Stopping stays.service"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			out := &onWrite{}
			out.f = func() {
				if strings.Contains(out.String(), "]: hanging") {
					cancel()
				}
			}
			tc.system.Output = out
			_, err := tc.system.Boot(ctx, tc.script)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error lacks %q:\n%v", want, err)
				}
			}
			waitNoDescendants(t)
		})
	}
	t.Setenv("POLICYD_KERNEL_CACHE", t.TempDir())
	if _, err := (&System{Kernel: UML73}).Boot(t.Context(), Script{}); !errors.Is(err, ErrNoKernel) {
		t.Errorf("empty cache: %v, want ErrNoKernel", err)
	}
}
