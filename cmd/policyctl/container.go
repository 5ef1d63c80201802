package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/spf13/cobra"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
	"policyd.dev/policyd/enforce/landlock"
	"policyd.dev/policyd/enforce/oci"
	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/cli/decide"
)

// container finds the one whose id begins so.
func (a *app) container(ctx context.Context, id string) (*apiv1.Container, error) {
	if id = strings.TrimPrefix(id, "container/"); id == "" {
		return nil, cli.Usage(errors.New("--container: the id is empty"))
	}
	ctx, c, cancel, err := a.call(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	res, err := c.Containers.ListContainers(ctx, &apiv1.ListContainersRequest{Id: id})
	if err != nil {
		return nil, err
	}
	var found []*apiv1.Container
	for _, k := range res.GetContainers() {
		if k.GetId() == id {
			found = append(found[:0], k)
			break
		}
		found = append(found, k)
	}
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("container %s: policyd knows none whose id begins so (names that podman or docker gave are not known to it); policyctl ps --containers lists them", id)
	case 1:
		return found[0], nil
	}
	return nil, cli.Usage(fmt.Errorf("container %s: %d have an id that begins so", id, len(found)))
}

// inContainer gives the profile a container was started under, with the places of its rules when policyd still has
// the version. For the answers to be those in the container, the calling goroutine is then in the container's mounts
// and root, for good; with lexical nothing is looked at, and it stays.
func (a *app) inContainer(ctx context.Context, id string, lexical bool) (*compiled, error) {
	k, err := a.container(ctx, id)
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("container %s (%s)", k.GetId(), containerPolicy(k))
	var root *inside
	if !lexical {
		if root, err = openInside(k); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	c, err := a.startedWith(ctx, k, root)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	c.name = name
	if root != nil {
		if err := root.enter(); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return c, nil
}

// startedWith gives the profile a container was started under: from policyd, as long as that still compiles to the same,
// else from the container itself, without places of rules.
func (a *app) startedWith(ctx context.Context, k *apiv1.Container, root *inside) (*compiled, error) {
	c, err := a.fetch(ctx, containerPolicy(k), k.GetParameters(), asWritten, false)
	if err == nil {
		reduced, _ := c.profile.Reduce(landlock.Probe().ABI)
		if c.digest == k.GetProfileDigest() || len(reduced.Layers) > 0 && profile.Digest(reduced.Encode()) == k.GetProfileDigest() {
			return c, nil
		}
		err = errors.New("it compiles to another profile now")
	}
	if root == nil {
		return nil, err
	}
	b, rerr := root.read(oci.ProfilePath)
	if rerr != nil {
		return nil, fmt.Errorf("its profile is not to be had, neither from policyd (%w) nor in it: %w", err, rerr)
	}
	if got := profile.Digest(b); got != k.GetProfileDigest() {
		return nil, fmt.Errorf("its profile is not to be had from policyd (%w), and what lies in it has the digest %s", err, got)
	}
	p, rerr := profile.Decode(b)
	if rerr != nil {
		return nil, rerr
	}
	a.note("policyd no longer has the version (%v): answers do not say where rules stand", err)
	return &compiled{profile: p, encoded: b, digest: k.GetProfileDigest()}, nil
}

// inside is where a container's first process is.
type inside struct{ mounts, root *os.File }

// openInside opens what the first process of a container sees, as long as it is that process.
func openInside(k *apiv1.Container) (*inside, error) {
	if k.GetPid() == 0 {
		return nil, errors.New("it does not run, so nobody can look into it; --lexical decides on the text of paths")
	}
	dir := fmt.Sprintf("/proc/%d/", k.GetPid())
	mounts, err := os.Open(dir + "ns/mnt")
	if err == nil {
		var root *os.File
		if root, err = os.OpenFile(dir+"root", unix.O_PATH|unix.O_DIRECTORY, 0); err == nil {
			if start, serr := startTicks(dir + "stat"); serr != nil || start != k.GetStartTicks() {
				return nil, errors.New("it has ended meanwhile")
			}
			return &inside{mounts, root}, nil
		}
	}
	if errors.Is(err, os.ErrPermission) {
		return nil, fmt.Errorf("%w; only root can look into it: ask as root, or with --lexical, which looks at no file", err)
	}
	return nil, err
}

// startTicks is field 22 of stat (proc(5)), in clock ticks after boot.
func startTicks(name string) (uint64, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return 0, err
	}
	text := string(b)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 20 {
		return 0, fmt.Errorf("%s: %d fields", name, len(fields))
	}
	return strconv.ParseUint(fields[19], 10, 64)
}

// read reads a file of the container, through no link out of it.
func (p *inside) read(path string) ([]byte, error) {
	fd, err := unix.Openat2(int(p.root.Fd()), path, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, maxProfile+1))
}

// ownProcIn is where a container under a profile has room for a file system that only this process sees: the mount
// that the launcher lies in.
const ownProcIn = "/dev/.policyd"

// enter moves the calling goroutine, on a thread it never leaves, into the container's root, in a copy of its mounts:
// what is mounted there reaches nobody. The process stays outside of the container's process numbers, so that nothing
// in it can see or touch this one; /proc there does not know it either, and a proc of its own is mounted aside.
func (p *inside) enter() error {
	runtime.LockOSThread()
	steps := []struct {
		what string
		do   func() error
	}{
		{"part with the other threads", func() error { return unix.Unshare(unix.CLONE_FS) }},
		{"enter its mounts", func() error { return unix.Setns(int(p.mounts.Fd()), unix.CLONE_NEWNS) }},
		{"enter its root", func() error { return errors.Join(unix.Fchdir(int(p.root.Fd())), unix.Chroot(".")) }},
		{"copy its mounts", func() error { return unix.Unshare(unix.CLONE_NEWNS) }},
		{"keep the copy apart", func() error { return unix.Mount("", ownProcIn, "", unix.MS_PRIVATE, "") }},
		{"mount a proc", func() error {
			return unix.Mount("proc", ownProcIn, "proc", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
		}},
	}
	for _, s := range steps {
		if err := s.do(); err != nil {
			return fmt.Errorf("%s: %w", s.what, err)
		}
	}
	decide.SetProc(ownProcIn)
	return nil
}

// completeContainers completes ids of containers.
func (a *app) completeContainers(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	ctx, c, cancel, ok := a.asking(cmd.Context())
	if !ok {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer cancel()
	res, err := c.Containers.ListContainers(ctx, &apiv1.ListContainersRequest{Id: typed})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for _, k := range res.GetContainers() {
		out = append(out, fmt.Sprintf("%s\t%s %s", cli.Clean(k.GetId()), containerPolicy(k), cli.Clean(clip(containerName(k)+" "+k.GetImage(), 40))))
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
