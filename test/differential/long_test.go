package differential_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/internal/testkernel"
)

// maxJobs bounds how many shares run at once: each guest takes 512 MiB at most.
const maxJobs = 8

// long is the driver of the long run (test/fuzz-kernel.sh): on each kernel in
// turn, as many shares as there are processors, each a process or a guest.
func long() int {
	seed, total, err := seedAndTotal()
	if err != nil {
		return complain(err.Error())
	}
	jobs := min(runtime.NumCPU(), maxJobs)
	if text := os.Getenv("DIFFERENTIAL_JOBS"); text != "" {
		if jobs, err = strconv.Atoi(text); err != nil || jobs < 1 || jobs > maxJobs {
			return complain(fmt.Sprintf("DIFFERENTIAL_JOBS: want 1 to %d", maxJobs))
		}
	}
	kernels := strings.Fields(os.Getenv("DIFFERENTIAL_KERNELS"))
	if len(kernels) == 0 {
		kernels = []string{"host", testkernel.UML73}
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	status := 0
	for _, k := range kernels {
		if ctx.Err() != nil {
			break
		}
		l := &longRun{kernel: k, seed: seed, total: total, shares: make([]totals, jobs)}
		status = max(status, l.run(ctx))
	}
	return status
}

// longRun is the long run on one kernel.
type longRun struct {
	kernel      string
	seed, total uint64

	mu     sync.Mutex
	shares []totals // the last that each told
	kern   string   // uname
}

func (l *longRun) sum() (sum totals) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.shares {
		sum.merge(&l.shares[i])
	}
	return sum
}

func (l *longRun) run(ctx context.Context) int {
	start := time.Now()
	fmt.Printf("%s: %d operations, seed %d, %d processes, from %s\n", l.kernel, l.total, l.seed, len(l.shares), start.UTC().Format(time.RFC3339))
	asked := ctx // to end
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make(chan error, len(l.shares))
	for i := range l.shares {
		go func() {
			err := l.share(ctx, i)
			if err != nil {
				cancel() // the others stop
			}
			errs <- err
		}()
	}
	tick := time.NewTicker(progressEvery())
	defer tick.Stop()
	var all []error
	for running := len(l.shares); running > 0; {
		select {
		case err := <-errs:
			if !errors.Is(err, context.Canceled) {
				all = append(all, err)
			}
			running--
		case <-tick.C:
			l.progress(start)
		}
	}
	return l.finish(start, errors.Join(all...), asked.Err() != nil)
}

func (l *longRun) finish(start time.Time, err error, stopped bool) int {
	sum, took := l.sum(), time.Since(start)
	if terminal() {
		fmt.Print("\r\x1b[K")
	}
	for _, f := range sum.Failures {
		fmt.Println(f)
	}
	word := "done"
	status := 0
	switch {
	case len(sum.Failures) > 0:
		word, status = "MISMATCH", 1
	case err != nil && !stopped:
		word, status = "failed", 1
		fmt.Println(err)
	case stopped || sum.Steps < l.total:
		word, status = "stopped before the end", 130
	}
	fmt.Printf("%s %s: %s after %v (%.0f a second), seed %d\n%s", l.kernel, l.kern, word, took.Round(time.Second), float64(sum.Steps)/took.Seconds(), l.seed, sum.String())
	return status
}

// progress shows how far it is, on one line of a terminal.
func (l *longRun) progress(start time.Time) {
	sum, took := l.sum(), time.Since(start).Seconds()
	rate := float64(sum.Steps) / took
	eta := "-"
	if rate > 0 {
		eta = time.Duration(float64(max(l.total, sum.Steps)-sum.Steps) / rate * float64(time.Second)).Round(time.Second).String()
	}
	line := fmt.Sprintf("%s: %d of %d operations, %.0f a second, %s to go, %d mismatches", l.kernel, sum.Steps, l.total, rate, eta, len(sum.Failures))
	if terminal() {
		fmt.Print("\r" + line + "\x1b[K")
	} else {
		fmt.Println(line)
	}
}

func terminal() bool {
	_, err := unix.IoctlGetTermios(1, unix.TCGETS)
	return err == nil
}

func progressEvery() time.Duration {
	if terminal() {
		return time.Second
	}
	return 15 * time.Second
}

// share runs one share to its end. Where ctx ends, a process is asked to tell
// its totals and to end; a guest ends at once, with the totals it told last.
func (l *longRun) share(ctx context.Context, i int) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	env := []string{
		"DIFFERENTIAL=share", fmt.Sprintf("DIFFERENTIAL_SHARE=%d/%d", i, len(l.shares)),
		fmt.Sprintf("DIFFERENTIAL_SEED=%d", l.seed), fmt.Sprintf("DIFFERENTIAL_N=%d", l.total),
	}
	r, w := io.Pipe()
	read := make(chan struct{})
	go func() {
		defer close(read)
		l.listen(i, r)
	}()
	defer func() { <-read }()
	defer w.Close()
	if l.kernel != "host" {
		g := testkernel.Guest{Kernel: l.kernel, Argv: []string{exe}, Env: env, Output: w}
		status, err := g.Run(ctx)
		if err == nil && status != 0 {
			err = fmt.Errorf("share %d: status %d", i, status)
		}
		return errors.Join(err, ctx.Err())
	}
	cmd := exec.CommandContext(ctx, exe)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = w, w
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	// Its own group, so that the terminal's Ctrl-C is this process's to pass on.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // Pdeathsig is about this thread
	defer runtime.UnlockOSThread()
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("share %d: %w", i, errors.Join(err, ctx.Err()))
	}
	return nil
}

// listen keeps the totals a share tells and shows whatever else it says.
func (l *longRun) listen(i int, r io.Reader) {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		text, told := strings.CutPrefix(line, progressMark)
		var sum totals
		switch {
		case told && json.Unmarshal([]byte(text), &sum) == nil:
			l.mu.Lock()
			l.shares[i] = sum
			l.mu.Unlock()
		case strings.HasPrefix(line, kernelMark):
			l.mu.Lock()
			l.kern = strings.TrimSpace(strings.TrimPrefix(line, kernelMark))
			l.mu.Unlock()
		case strings.TrimSpace(line) != "":
			fmt.Print(line)
		}
		if err != nil {
			return
		}
	}
}
