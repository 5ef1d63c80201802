package landlock

import "testing"

func TestProcessFolder(t *testing.T) {
	m, err := parseMounts(`20 1 0:1 / / rw - ext4 /dev/x rw
21 20 0:5 / /proc rw - proc proc rw
22 20 0:5 / /srv/17/proc rw - proc proc rw
23 20 0:5 /17 /mnt/seventeen rw - proc proc rw
24 20 0:5 /irq /mnt/irq rw - proc proc rw
25 20 0:5 /17/task/18 /mnt/task rw - proc proc rw
26 20 0:5 /sys/net/4 /mnt/99 rw - proc proc rw
`)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		path string
		id   uint64
		want string
	}{
		{"/proc", 21, ""},
		{"/proc/17", 21, "17"},
		{"/proc/17/task/18/fd", 21, "17"},
		{"/proc/irq/24", 21, ""},
		{"/proc/irq/24/node", 21, ""},
		{"/proc/sys/net/4", 21, ""},
		{"/srv/17/proc", 22, ""},
		{"/srv/17/proc/irq/24", 22, ""},
		{"/srv/17/proc/18/fd", 22, "18"},
		{"/mnt/seventeen", 23, "17"},
		{"/mnt/seventeen/status", 23, "17"},
		{"/mnt/irq/24", 24, ""},
		{"/mnt/task", 25, "17"},
		{"/mnt/task/comm", 25, "17"},
		{"/mnt/99/x", 26, ""},
	} {
		if got, err := m.process(tc.path, tc.id); err != nil || got != tc.want {
			t.Errorf("%s in mount %d: %q %v, want %q", tc.path, tc.id, got, err, tc.want)
		}
	}
	for path, id := range map[string]uint64{"/proc/irq/24": 99, "/gone": 21} {
		if got, err := m.process(path, id); err == nil {
			t.Errorf("%s in mount %d, which has no such place: %q", path, id, got)
		}
	}
}

func TestUnescapeMount(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "/plain": "/plain", `/a\040b`: "/a b", `\011\012\134`: "\t\n\\", `/end\040`: "/end ",
		`/cut\04`: `/cut\04`, `/odd\999`: `/odd\999`, `\`: `\`, `\134040`: `\040`, `\777`: `\777`,
	} {
		if got := UnescapeMount(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
