package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"policyd.dev/policyd/internal/testkernel"
)

const labelled = `apiVersion: policyd/v1
kind: LandlockPolicy
metadata: {name: box}
spec:
  abi: 3
  layers:
    - paths:
        - {allow: [read, execute], at: [/bin]}
        - {allow: [all], at: [/proc, /dev, /tmp]}
  process: {smackLabel: Web}
`

// smackScript runs in a guest, in a folder with programs and files: policyd with a policy that gives a Smack label, and
// a real runc behind policyd-runc. What it finds are lines "== NAME ...".
const smackScript = `
set -u
say() { echo "== $*"; }
P=$PWD
mkdir -p /tmp/b/rootfs/bin /tmp/b/rootfs/proc /tmp/b/rootfs/dev /tmp/b/rootfs/sys /tmp/b/rootfs/tmp
cp "$BUSYBOX" /tmp/b/rootfs/bin/busybox
cp $P/policyctl /tmp/b/rootfs/bin/policyctl
echo told >/tmp/b/rootfs/secret
for a in sh cat sleep id; do ln -s busybox /tmp/b/rootfs/bin/$a; done
echo "Web _ rwxatl
_ Web rwxatl
Other _ rwxatl" >/sys/fs/smackfs/load2
$P/policyd --config $P/policyd.yaml --state-dir /tmp/s >/tmp/log 2>&1 &
export POLICYD_SOCKET=unix:///tmp/s/run/policyd.sock
$P/policyctl status --wait=60 -q || cat /tmp/log
$P/policyctl apply -q -f $P/policy.yaml
printf 'runtime: %s\nsocket: /tmp/s/run/policyd.sock\nstate: /tmp/st\nrecords: /tmp/s/run/oci/containers\n' "$RUNC" >/tmp/runc.yaml
export POLICYD_RUNC_CONFIG=/tmp/runc.yaml
R="$P/policyd-runc --root /tmp/root"
run() {
	cp $P/$1.json /tmp/b/config.json
	$R run --bundle /tmp/b $1 >/tmp/out 2>&1 </dev/null
	say "$1 $? $(cat /tmp/out)"
}
run root
run user
run admin
cp $P/sleep.json /tmp/b/config.json
$R create --pid-file /tmp/pid --bundle /tmp/b c1 >/tmp/out 2>&1 </dev/null || { say "create $?"; cat /tmp/out; }
$R start c1
pid=$(cat /tmp/pid)
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do [ "$(cat /proc/$pid/comm)" = sleep ] && break; sleep 0.1; done
say "outside $(cat /proc/$pid/attr/smack/current | tr -d '\0')"
exec_() {
	name=$1; shift
	$R exec "$@" >/tmp/out 2>&1 </dev/null
	say "$name $? $(head -c 1000 /tmp/out)"
}
exec_ exec c1 cat /proc/self/attr/smack/current
exec_ again c1 sh -c 'exec 2>&1; for l in Other Web _; do echo $l >/proc/self/attr/smack/current; done; cat /proc/self/attr/smack/current'
exec_ exec-admin --cap CAP_MAC_ADMIN c1 id
exec_ landlock c1 cat /secret
exec_ peer --user 1000:1000 c1 policyctl --socket unix:///tmp/p/policyd.sock get policies -o name
say "ps $($P/policyctl ps --containers | tail -1)"
chmod 755 /tmp/s /tmp/s/run
setpriv --reuid 1000 --regid 1000 --clear-groups $P/policyctl get policies -o name >/tmp/out 2>&1
say "stranger $? $(cat /tmp/out)"
# With onlycap the label may not be handed on, and then nothing starts.
echo Other >/sys/fs/smackfs/onlycap
exec_ onlycap c1 id
run root
$R delete --force c1
`

// Containers get the Smack label of their policy, for good, and what is executed in them too.
func TestSmackLabel(t *testing.T) {
	testkernel.RequireRoot(t)
	runc := testkernel.RequireTool(t, "runc", "apt-get install runc")
	busybox := testkernel.RequireTool(t, "busybox", "apt-get install busybox-static")
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	build := exec.Command("go", "build", "-o", dir+"/", "../policyctl")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	put := func(name string, content []byte, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), content, mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"policyd", "policyd-launch", "policyd-runc"} {
		put(name, []byte(read(t, filepath.Join(bin, name))), 0o755)
	}
	put("policy.yaml", []byte(labelled), 0o644)
	put("policyd.yaml", []byte("socket: {mode: \"0666\"}\nroles: [{role: viewer, smackLabels: [Web]}]\n"), 0o644)
	config := func(name string, change func(spec, process map[string]any), argv ...string) {
		t.Helper()
		var spec map[string]any
		if err := json.Unmarshal([]byte(read(t, "../../enforce/oci/testdata/runc-spec.json")), &spec); err != nil {
			t.Fatal(err)
		}
		process := spec["process"].(map[string]any)
		process["terminal"], process["args"] = false, argv
		delete(process, "rlimits")
		spec["annotations"] = map[string]any{"policyd.dev/profile": "box"}
		spec["mounts"] = append(spec["mounts"].([]any), map[string]any{"destination": "/tmp/p", "type": "bind", "source": "/tmp/s/run", "options": []string{"rbind"}})
		if change != nil {
			change(spec, process)
		}
		text, err := json.Marshal(spec)
		if err != nil {
			t.Fatal(err)
		}
		put(name+".json", text, 0o644)
	}
	look := []string{"sh", "-c", "id -u; cat /proc/self/attr/smack/current; cat /secret"}
	config("root", nil, look...)
	config("user", func(_, process map[string]any) { process["user"] = map[string]int{"uid": 1000, "gid": 1000} }, look...)
	config("admin", func(_, process map[string]any) {
		caps := []string{"CAP_MAC_ADMIN"}
		process["capabilities"] = map[string]any{"bounding": caps, "effective": caps, "permitted": caps}
	}, look...)
	config("sleep", nil, "sleep", "100")

	var out bytes.Buffer
	g := testkernel.Guest{
		Kernel: testkernel.UML73, Argv: []string{"/bin/sh", "-c", smackScript}, Dir: dir, Env: []string{"RUNC=" + runc, "BUSYBOX=" + busybox},
		Output: &out, MemoryMiB: 768,
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	switch code, err := g.Run(ctx); {
	case errors.Is(err, testkernel.ErrNoKernel):
		testkernel.Skip(t, "kernel "+testkernel.UML73, "make kernels")
	case err != nil || code != 0:
		t.Errorf("exit %d, %v", code, err)
	}
	found := map[string][]string{}
	for part := range strings.SplitSeq("\n"+out.String(), "\n== ") {
		name, rest, _ := strings.Cut(part, " ")
		found[name] = append(found[name], strings.TrimSpace(rest))
	}
	for name, want := range map[string][]string{
		"root":       {"1 0\nWeb", "CAP_MAC_ADMIN is missing, or onlycap"},
		"user":       {"1 1000\nWeb"},
		"admin":      {"125 "},
		"outside":    {"Web"},
		"exec":       {"0 Web"},
		"again":      {"0 "},
		"exec-admin": {"125 "},
		"landlock":   {"1 "},
		"peer":       {"0 policy/box@1"},
		"stranger":   {"4 "},
		"ps":         {"container  c1"},
		"onlycap":    {"1 policyd-runc: the container cannot get its Smack label"},
	} {
		if len(found[name]) != len(want) {
			t.Errorf("%s: %q, want %q", name, found[name], want)
			continue
		}
		for i, w := range want {
			if !strings.Contains(found[name][i], w) {
				t.Errorf("%s: %q, want %q", name, found[name][i], w)
			}
		}
	}
	for name, text := range map[string]string{
		"root": "Permission denied", "admin": "CAP_MAC_ADMIN", "exec-admin": "CAP_MAC_ADMIN", "again": "Operation not permitted", "landlock": "Permission denied", "ps": "label Web",
	} {
		if !strings.Contains(strings.Join(found[name], " "), text) {
			t.Errorf("%s: %q, want %q", name, found[name], text)
		}
	}
	if !strings.HasSuffix(strings.Join(found["again"], " "), "Web") {
		t.Errorf("again: %q: the label is another one now", found["again"])
	}
	if t.Failed() {
		t.Log(out.String())
	}
}
