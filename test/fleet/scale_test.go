package fleettest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/internal/fleet"
	"policyd.dev/policyd/internal/fleet/agent"
	"policyd.dev/policyd/internal/fleet/host"
	"policyd.dev/policyd/internal/fleet/kv"
	"policyd.dev/policyd/internal/smackhost"
	"policyd.dev/policyd/store"
)

// childAgents is many nodes: agents with policyd's own times, each with a connection to etcd and a store of its own. Its
// arguments are etcd's address, the verifier keys, how many, and a folder. It ends with its standard input.
func childAgents(args []string) error {
	n, err := strconv.Atoi(args[3])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for i := range n {
		st, err := store.Open(filepath.Join(args[4], fmt.Sprint(i, ".db")), store.Options{NoSync: true})
		if err != nil {
			return err
		}
		a, err := agent.New(agent.Config{
			Fleet: fleetName, Node: fmt.Sprint("n", i), Channel: "stable", Log: slog.New(slog.DiscardHandler),
			Trust: fleet.Trust{
				Content: fleet.Signers{Threshold: 1, Keys: []string{args[1]}}, Rollout: fleet.Signers{Threshold: 1, Keys: []string{args[2]}},
			},
			Host: host.New(host.Config{
				Store: st, Smack: smackhost.New(smackhost.Config{Store: st, Find: noSmack}), Support: landlock.Support{State: landlock.Available, ABI: 7},
			}),
			Client: func() (*clientv3.Client, error) { return kv.Dial(kv.Endpoint{URLs: []string{args[0]}}) },
		})
		if err != nil {
			return err
		}
		go a.Run(ctx)
	}
	fmt.Println("started")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// counters reads etcd's own: requests by method, bytes to and from clients.
func counters(t *testing.T, e *etcd) map[string]float64 {
	t.Helper()
	r, err := http.Get(e.url() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	got := map[string]float64{}
	for lines := bufio.NewScanner(r.Body); lines.Scan(); {
		name, value, ok := strings.Cut(lines.Text(), " ")
		v, err := strconv.ParseFloat(value, 64)
		if !ok || err != nil {
			continue
		}
		switch {
		case strings.HasPrefix(name, "etcd_network_client_grpc_sent_bytes_total"):
			got["sent"] += v
		case strings.HasPrefix(name, "etcd_network_client_grpc_received_bytes_total"):
			got["received"] += v
		case strings.HasPrefix(name, "grpc_server_msg_received_total"):
			got["messages"] += v
		case name == "process_resident_memory_bytes":
			got["memory"] = v
		case name == "process_cpu_seconds_total":
			got["cpu"] = v
		}
	}
	return got
}

// TestScale measures a rollout to many nodes on one etcd: POLICYD_FLEET_SCALE is how many, 50,100,250,500. It tells numbers
// and judges none of them but that all arrive.
func TestScale(t *testing.T) {
	sizes := os.Getenv("POLICYD_FLEET_SCALE")
	if sizes == "" {
		t.Skip("a measurement: POLICYD_FLEET_SCALE=50,100,250,500")
	}
	for size := range strings.SplitSeq(sizes, ",") {
		n, err := strconv.Atoi(size)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(size, func(t *testing.T) { scale(t, n) })
	}
}

func scale(t *testing.T, n int) {
	e, p := setUp(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, e.url(), p.content.verifier, p.rollout.verifier, strconv.Itoa(n), t.TempDir())
	cmd.Env = append(os.Environ(), childEnv+"=agents")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("%q %v", line, err)
	}
	watch := p.store.Client.Watch(t.Context(), p.store.Layout.Nodes(), clientv3.WithPrefix())
	// arrive waits until every node says something that is wanted.
	arrive := func(wanted func(*fleet.Status) bool) {
		t.Helper()
		there := map[string]bool{}
		for end := time.After(2 * time.Minute); len(there) < n; {
			select {
			case r := <-watch:
				if r.Err() != nil {
					t.Fatal(r.Err())
				}
				for _, ev := range r.Events {
					var s fleet.Status
					if ev.IsCreate() || ev.IsModify() {
						if fleet.Unmarshal(ev.Kv.Value, &s) == nil && wanted(&s) {
							there[s.Node] = true
						}
					}
				}
			case <-end:
				t.Fatalf("%d of %d nodes", len(there), n)
			}
		}
	}
	var texts []string
	for i := range 20 {
		texts = append(texts, webPolicy(fmt.Sprint("web-", i), "/srv/one"))
	}
	first := p.publish(texts...)
	p.rollOut(first)
	arrive(func(s *fleet.Status) bool { return s.State == fleet.Loaded && s.LoadedDigest == first })
	time.Sleep(2 * time.Second) // what is left of the start
	texts[0] = webPolicy("web-0", "/srv/two")
	second := p.publish(texts...)
	before, began := counters(t, e), time.Now()
	p.rollOut(second)
	arrive(func(s *fleet.Status) bool { return s.State == fleet.Loaded && s.LoadedDigest == second })
	took := time.Since(began)
	after := counters(t, e)
	each := func(what string) float64 { return (after[what] - before[what]) / float64(n) }
	t.Logf("%4d nodes: all loaded after %5.2f s; a node: %.1f messages, %.0f bytes sent and %.0f received by etcd; etcd: %.2f s of a processor, %.0f MiB",
		n, took.Seconds(), each("messages"), each("sent"), each("received"), after["cpu"]-before["cpu"], after["memory"]/(1<<20))
	idle := counters(t, e)
	time.Sleep(20 * time.Second)
	rest := counters(t, e)
	t.Logf("%4d nodes at rest: a node and minute: %.1f messages, %.0f bytes sent and %.0f received; etcd: %.3f of a processor", n,
		(rest["messages"]-idle["messages"])/float64(n)*3, (rest["sent"]-idle["sent"])/float64(n)*3, (rest["received"]-idle["received"])/float64(n)*3, (rest["cpu"]-idle["cpu"])/20)
}
