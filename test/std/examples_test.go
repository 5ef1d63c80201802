package std

import (
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/internal/policy"
	"policyd.dev/policyd/internal/testkernel"
)

// runExample starts a program under a policy of docs/examples with these parameters.
func runExample(t *testing.T, name string, given map[string]string, dir string, argv ...string) (string, int) {
	t.Helper()
	return runChanged(t, name, given, func(*apiv1.LandlockSpec) {}, dir, argv...)
}

// runChanged is runExample with what only the test has different: a port that is free, a folder that is not a parameter.
func runChanged(t *testing.T, name string, given map[string]string, change func(*apiv1.LandlockSpec), dir string, argv ...string) (string, int) {
	t.Helper()
	src, err := os.ReadFile("../../docs/examples/" + name)
	if err != nil {
		t.Fatal(err)
	}
	docs, err := policy.Parse(name, src)
	if err != nil {
		t.Fatal(err)
	}
	p := docs[0].Resource.GetLandlockPolicy()
	// The folders that the example's parameters must lie within are not the test's.
	for _, param := range p.GetSpec().GetParameters() {
		param.Within = nil
	}
	change(p.GetSpec())
	c, err := policy.Compile(p, policy.CompileOptions{Parameters: given, Document: docs[0]})
	if err != nil {
		t.Fatal(err)
	}
	c.Profile.Degrade = true // on every kernel that has Landlock
	return start(t, c.Profile, landlock.Probe(), dir, argv...)
}

func TestExampleOneLiner(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "log"), []byte("error b\nok\nerror b\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		given := map[string]string{"folder": dir}
		out, code := runExample(t, "one-liner.yaml", given, dir, "/bin/sh", "-c", "grep -rh error . | sort | uniq -c")
		want(t, out, code, "2 error b")
		out, code = runExample(t, "one-liner.yaml", given, dir, "/bin/sh", "-c", "echo x > log")
		refused(t, out, code)
	})
}

func TestExamplePythonReport(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		python := program(t, "apt-get install python3", "/usr/bin/python3", "/usr/local/bin/python3")
		data, report := t.TempDir(), t.TempDir()
		if err := os.WriteFile(filepath.Join(data, "in.csv"), []byte("1\n2\n3\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		script := "import sys, csv\n" +
			"total = sum(int(r[0]) for r in csv.reader(open(sys.argv[1] + '/in.csv')))\n" +
			"open(sys.argv[2] + '/out.txt', 'w').write(str(total))\nprint('total', total)\n"
		given := map[string]string{"data": data, "report": report}
		out, code := runExample(t, "python-report.yaml", given, report, python, "-c", script, data, report)
		want(t, out, code, "total 6")
		out, code = runExample(t, "python-report.yaml", given, report, python, "-c", script, data, data)
		refused(t, out, code)
	})
}

func TestExampleBuildJob(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		cc := program(t, "apt-get install gcc", "/usr/bin/gcc", "/usr/bin/cc")
		dir := t.TempDir()
		source := "#include <stdio.h>\nint main(void) { return puts(\"built\") < 0; }\n"
		if err := os.WriteFile(filepath.Join(dir, "a.c"), []byte(source), 0o644); err != nil {
			t.Fatal(err)
		}
		given := map[string]string{"checkout": dir}
		out, code := runExample(t, "build-job.yaml", given, dir, "/bin/sh", "-c", cc+" -o a.tmp a.c && mkdir -p bin && mv a.tmp bin/a && ./bin/a")
		want(t, out, code, "built")
		out, code = runExample(t, "build-job.yaml", given, dir, "/bin/sh", "-c", "cat /etc/fstab")
		refused(t, out, code)
	})
}

func TestExampleNetworkClient(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		curl := program(t, "apt-get install curl", "/usr/bin/curl")
		web := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "the answer") })
		granted, other := httptest.NewTLSServer(web), httptest.NewTLSServer(web)
		defer granted.Close()
		defer other.Close()
		state := t.TempDir()
		authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: granted.Certificate().Raw})
		if err := os.WriteFile(filepath.Join(state, "ca.pem"), authority, 0o644); err != nil {
			t.Fatal(err)
		}
		change := func(spec *apiv1.LandlockSpec) {
			spec.GetVariables()["state"].Values = []string{state}
			layer := spec.GetLayers()[0]
			if ports := layer.GetPorts(); len(ports) != 1 || ports[0].GetPort()[0] != "443" {
				t.Fatalf("the example's ports: %v", ports)
			}
			layer.Ports[0].Port = []string{portOf(t, granted.Listener.Addr())}
		}
		get := func(url string, more ...string) (string, int) {
			argv := append([]string{curl, "-sSv", "--max-time", "30", "--cacert", "ca.pem"}, more...)
			return runChanged(t, "network-client.yaml", nil, change, state, append(argv, url)...)
		}
		out, code := get(granted.URL, "-o", "answer")
		if answer, err := os.ReadFile(filepath.Join(state, "answer")); err != nil || string(answer) != "the answer\n" {
			t.Errorf("exit code %d, answer %q, %v; output %q", code, answer, err, out)
		}
		// By a name that is looked up; the certificate is for another one.
		out, code = get("https://localhost:"+portOf(t, granted.Listener.Addr()), "--insecure")
		want(t, out, code, "the answer")
		if landlock.Probe().ABI >= 4 {
			out, code = get(other.URL)
			refused(t, out, code)
		}
		out, code = get("file:///etc/fstab")
		if code != 37 { // CURLE_FILE_COULDNT_READ_FILE
			t.Errorf("a file nobody granted: exit code %d, output %q", code, out)
		}
		elsewhere := filepath.Join(t.TempDir(), "answer")
		out, code = get(granted.URL, "-o", elsewhere)
		if _, err := os.Stat(elsewhere); code != 23 || err == nil { // CURLE_WRITE_ERROR
			t.Errorf("a file in a folder nobody granted: exit code %d, %v, output %q", code, err, out)
		}
	})
}

func TestExampleStaticWeb(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		python := program(t, "apt-get install python3", "/usr/bin/python3", "/usr/local/bin/python3")
		site := t.TempDir()
		if err := os.WriteFile(filepath.Join(site, "index.html"), []byte("<p>welcome</p>"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("/etc/fstab", filepath.Join(site, "fstab")); err != nil {
			t.Fatal(err)
		}
		port, outside := freePort(t), freePort(t)
		// A server that is no nginx: its own program and files, and a port that is free.
		change := func(spec *apiv1.LandlockSpec) {
			layer := spec.GetLayers()[0]
			layer.Include = append(layer.Include, "std/python")
			if at := layer.GetPaths()[0].GetAt(); len(at) != 1 || at[0] != "/usr/sbin/nginx" {
				t.Fatalf("the example's program: %v", at)
			}
			layer.Paths[0].At = []string{python}
			if ports := layer.GetPorts(); len(ports) != 1 || strings.Join(ports[0].GetPort(), " ") != "80 443" {
				t.Fatalf("the example's ports: %v", ports)
			}
			layer.Ports[0].Port = []string{port}
		}
		script := `import sys, socket, socketserver, http.server
site, port, outside = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
def refused(what, f):
    try:
        f()
        print(what, 'allowed')
    except PermissionError:
        print(what, 'refused')
refused('bind', lambda: socket.socket().bind(('127.0.0.1', outside)))
refused('connect', lambda: socket.create_connection(('127.0.0.1', outside)))
refused('write', lambda: open(site + '/index.html', 'a'))
socketserver.TCPServer.allow_reuse_address = True
handler = lambda *a: http.server.SimpleHTTPRequestHandler(*a, directory=site)
with socketserver.TCPServer(('127.0.0.1', port), handler) as s:
    for _ in range(2):
        s.handle_request()
print('served')
`
		answers := make(chan [2]string, 1)
		go func() {
			base := "http://127.0.0.1:" + port
			answers <- [2]string{fetch(base + "/"), fetch(base + "/fstab")}
		}()
		out, code := runChanged(t, "static-web.yaml", map[string]string{"site": site}, change, site, python, "-c", script, site, port, outside)
		want(t, out, code, "served")
		if t.Failed() {
			return
		}
		got := <-answers
		if got[0] != "200 <p>welcome</p>" || !strings.HasPrefix(got[1], "404 ") {
			t.Errorf("answers %q", got)
		}
		net := "refused"
		if landlock.Probe().ABI < 4 {
			net = "allowed"
		}
		for _, line := range []string{"bind " + net, "write refused"} {
			if !strings.Contains(out, line) {
				t.Errorf("output %q, want %q in it", out, line)
			}
		}
		if net == "refused" && !strings.Contains(out, "connect refused") {
			t.Errorf("output %q, want no connection", out)
		}
	})
}

// fetch gets a page once the server is there, as "200 text".
func fetch(url string) string {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 30 * time.Second}
	var err error
	for range 1500 {
		var resp *http.Response
		if resp, err = client.Get(url); err != nil {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		defer resp.Body.Close()
		var body []byte
		if body, err = io.ReadAll(resp.Body); err != nil {
			break
		}
		return fmt.Sprintf("%d %s", resp.StatusCode, body)
	}
	return err.Error()
}

func portOf(t *testing.T, a net.Addr) string {
	t.Helper()
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		t.Fatal(a)
	}
	return strconv.Itoa(tcp.Port)
}

// freePort is a port nobody listens on.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return portOf(t, l.Addr())
}
