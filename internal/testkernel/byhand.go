package testkernel

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// shellUnit gives the console to a shell; the end of the shell is that of the machine.
const shellUnit = `[Unit]
Description=A shell on the console
After=testkernel.target
SuccessAction=poweroff
FailureAction=poweroff
[Service]
ExecStart=-/bin/bash --login
WorkingDirectory=/root
Environment=HOME=/root TERM=%s PS1='policyd-vm# '
StandardInput=tty-force
StandardOutput=tty
StandardError=tty
TTYPath=/dev/tty0
TTYReset=yes
TimeoutStartSec=infinity
Type=idle
`

// ByHand boots the system for a person: its console is this process's standard input and output, on which a shell runs
// as root. It returns when the shell is left and the guest has powered off, or ctx ends.
func (s *System) ByHand(ctx context.Context) error {
	k, ok := kernelByName(s.Kernel)
	if !ok {
		return fmt.Errorf("no kernel named %q", s.Kernel)
	}
	dir, err := os.MkdirTemp("", "testkernel-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	share := filepath.Join(dir, "share")
	if err := os.MkdirAll(filepath.Join(share, "steps"), 0o755); err != nil {
		return err
	}
	in := inside{Kernel: s.Kernel, Nonce: rand.Text()}
	root, err := s.root(in, Script{})
	if err != nil {
		return err
	}
	term := os.Getenv("TERM")
	if term == "" {
		term = "dumb"
	}
	root.Folders[harnessDir] = share
	// The harness's script would power it off; the journal is for journalctl.
	root.Files["/etc/systemd/system/testkernel-script.service"] = fmt.Appendf(nil, shellUnit, term)
	root.Files["/etc/systemd/journald.conf.d/testkernel.conf"] = []byte("[Journal]\nStorage=volatile\nRateLimitBurst=0\nAudit=no\n")
	cmd, err := machine{kernel: k, memoryMiB: s.MemoryMiB, dir: dir}.command(s.job(in, root), "fd:0")
	if err != nil {
		return err
	}
	// In this process's own group: it is the terminal's.
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	return cmd.Wait()
}
