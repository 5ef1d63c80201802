package fleettest

import (
	"bufio"
	"context"
	"encoding/json"
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

// crowd is many nodes in a process of its own: agents as policyd has them, with policyd's own times, each with a
// connection to etcd, a host that compiles, and a store on a tmpfs. What is not there is the rest of policyd: no sandboxes,
// no Smack, and the nodes share this machine's processors.
type crowd struct {
	size int
	cmd  *exec.Cmd
}

// crowdConfig is what the process is told. Nodes are n0, n1 and so on.
type crowdConfig struct {
	URL              string
	Content, Rollout string // verifier keys
	Nodes            int
	Stores           string // folder
	Certificates     string // folder with ca.pem, n0.pem, n0-key.pem and so on; "": without TLS
}

func startCrowd(t testing.TB, p *publisher, c crowdConfig) *crowd {
	t.Helper()
	c.Content, c.Rollout = p.content.verifier, p.rollout.verifier
	parent := "/dev/shm"
	if _, err := os.Stat(parent); err != nil {
		parent = ""
	}
	var err error
	//nolint:usetesting // a disk that all nodes share is none that a node has
	if c.Stores, err = os.MkdirTemp(parent, "policyd-fleet-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(c.Stores) })
	arg, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, string(arg))
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
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("%q %v", line, err)
	}
	return &crowd{c.Nodes, cmd}
}

// cpu is the processor time that all nodes have taken.
func (c *crowd) cpu(t testing.TB) time.Duration {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
	var ticks int
	for _, f := range fields[11:13] { // utime and stime, see proc_pid_stat(5)
		n, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / 100
}

// childAgents is the crowd's process. It ends with its standard input.
func childAgents(args []string) error {
	var c crowdConfig
	if err := json.Unmarshal([]byte(args[0]), &c); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for i := range c.Nodes {
		name := fmt.Sprint("n", i)
		st, err := store.Open(filepath.Join(c.Stores, name+".db"), store.Options{})
		if err != nil {
			return err
		}
		e := kv.Endpoint{URLs: []string{c.URL}}
		if in := c.Certificates; in != "" {
			e.CA, e.Cert, e.Key = filepath.Join(in, "ca.pem"), filepath.Join(in, name+".pem"), filepath.Join(in, name+"-key.pem")
		}
		a, err := agent.New(agent.Config{
			Fleet: fleetName, Node: name, Log: slog.New(slog.DiscardHandler),
			Trust: fleet.Trust{
				Content: fleet.Signers{Threshold: 1, Keys: []string{c.Content}}, Rollout: fleet.Signers{Threshold: 1, Keys: []string{c.Rollout}},
			},
			Host: host.New(host.Config{
				Store: st, Smack: smackhost.New(smackhost.Config{Store: st, Find: noSmack}), Support: landlock.Support{State: landlock.Available, ABI: 7},
			}),
			Client: func() (*clientv3.Client, error) { return kv.Dial(e) },
			Facts:  agent.Facts{BootID: "6f8e2d0a-3a53-4d0b-9f0e-111111111111", Version: "1.0.0", Kernel: "6.18.0-generic", LandlockABI: 7},
		})
		if err != nil {
			return err
		}
		go a.Run(ctx)
	}
	fmt.Println("started")
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// counters are etcd's own: requests, and what its clients have sent and got in messages, without what HTTP/2, TLS and TCP add.
type counters struct{ requests, sent, received, cpu, memory float64 }

func (e *etcd) counters(t testing.TB) (c counters) {
	t.Helper()
	r, err := http.Get("http://" + e.metrics + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	for lines := bufio.NewScanner(r.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			continue
		}
		name, _, _ = strings.Cut(name, "{")
		switch name {
		case "grpc_server_msg_received_total":
			c.requests += v
		case "etcd_network_client_grpc_sent_bytes_total":
			c.sent += v
		case "etcd_network_client_grpc_received_bytes_total":
			c.received += v
		case "process_cpu_seconds_total":
			c.cpu = v
		case "process_resident_memory_bytes":
			c.memory = v
		}
	}
	return c
}

// since gives what was counted after another look, memory as it is.
func (c counters) since(before counters) counters {
	return counters{c.requests - before.requests, c.sent - before.sent, c.received - before.received, c.cpu - before.cpu, c.memory}
}

// add sums up.
func (c *counters) add(more counters) {
	c.requests, c.sent, c.received, c.cpu, c.memory = c.requests+more.requests, c.sent+more.sent, c.received+more.received, c.cpu+more.cpu, more.memory
}

// arrivals tells when nodes say something, which is read from a watch of all their records.
type arrivals struct {
	t     testing.TB
	watch clientv3.WatchChan
	bytes int // of the events, which etcd counts as read too
}

func (p *publisher) arrivals() *arrivals {
	return &arrivals{t: p.t, watch: p.store.Client.Watch(p.t.Context(), p.store.Layout.Nodes(), clientv3.WithPrefix())}
}

// loaded waits until so many nodes say that a bundle is in force, and gives how long after a moment each did, in order.
func (a *arrivals) loaded(since time.Time, nodes int, digest string) (after []time.Duration) {
	a.t.Helper()
	there := map[string]bool{}
	for end := time.After(2 * time.Minute); len(there) < nodes; {
		select {
		case r := <-a.watch:
			if r.Err() != nil {
				a.t.Fatal(r.Err())
			}
			for _, ev := range r.Events {
				a.bytes += len(ev.Kv.Key) + len(ev.Kv.Value)
				var s fleet.Status
				if ev.Type != clientv3.EventTypePut || fleet.Unmarshal(ev.Kv.Value, &s) != nil {
					continue
				}
				if s.State == fleet.Loaded && s.LoadedDigest == digest && !there[s.Node] {
					there[s.Node] = true
					after = append(after, time.Since(since))
				}
			}
		case <-end:
			a.t.Fatalf("%d of %d nodes have it", len(there), nodes)
		}
	}
	return after
}

// fill writes the records of nodes that are all Loaded, as long as those of real ones.
func fill(t testing.TB, p *publisher, nodes int, digest string) {
	t.Helper()
	lease, err := p.store.Client.Grant(t.Context(), 3600)
	if err != nil {
		t.Fatal(err)
	}
	l := p.store.Layout
	var ops []clientv3.Op
	for i := range nodes {
		name := fmt.Sprint("n", i)
		spec, err := fleet.Marshal(&fleet.Spec{Channel: "stable", Labels: map[string]string{"zone": fmt.Sprint("z", i%3)}})
		if err != nil {
			t.Fatal(err)
		}
		status, err := json.Marshal(fleet.Status{
			Node: name, BootID: "6f8e2d0a-3a53-4d0b-9f0e-111111111111", Version: "1.0.0", Kernel: "6.18.0-generic", Landlock: 7, Channel: "stable",
			DesiredSeq: p.seq, DesiredDigest: digest, LoadedSeq: p.seq, LoadedDigest: digest, State: fleet.Loaded, Policies: 20,
			Since: time.Now().UTC().Truncate(time.Second), Reported: time.Now().UTC().Truncate(time.Second),
		})
		if err != nil {
			t.Fatal(err)
		}
		ops = append(ops, clientv3.OpPut(l.Spec(name), string(spec)), clientv3.OpPut(l.Status(name), string(status), clientv3.WithLease(lease.ID)),
			clientv3.OpPut(l.Last(name), string(status)))
		if len(ops) >= 120 || i == nodes-1 { // etcd takes 128 in one transaction
			if _, err := p.store.Client.Txn(t.Context()).Then(ops...).Commit(); err != nil {
				t.Fatal(err)
			}
			ops = nil
		}
	}
}
