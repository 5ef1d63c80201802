package landlock

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/enforce/profile"
	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/internal/testkernel"
)

// bound makes a profile that asks for one flat layer, with a rule in layer "b"
// only on path: such a rule holds along its path, so a second path matters.
func bound(t *testing.T, root, path string, access profile.Access) *profile.Profile {
	t.Helper()
	b := profile.NewBuilder(layers("a", "b"))
	b.AddPath(0, root, access, false, profile.Fail)
	b.AddPath(1, path, access, false, profile.Fail)
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	p.Flatten = true
	return p
}

func TestFlatten(t *testing.T) {
	testkernel.Each(t, testkernel.Landlock, func(t *testing.T) {
		sup := support(t)
		leakCheck(t)
		root := tree(t, "in/file", "out/file")
		if err := os.Symlink(filepath.Join(root, "in"), filepath.Join(root, "link")); err != nil {
			t.Fatal(err)
		}
		// Through the link in one layer, by the real path above in the other.
		p := bound(t, root, filepath.Join(root, "link"), read)
		p.AcceptSharedInode = true // the guest's root may be mounted twice
		r, err := Build(p, sup)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Release()
		if !r.Flattened || len(r.Layers) != 1 || r.Layers[0] != profile.FlatLayer || len(r.Links) != 1 {
			t.Errorf("%+v", r)
		}
		restricted(t, r, func() {
			if err := canRead(filepath.Join(root, "in/file")); err != nil {
				t.Errorf("in: %v", err)
			}
			if err := canRead(filepath.Join(root, "out/file")); err != unix.EACCES {
				t.Errorf("out: %v", err)
			}
		})
	})
}

func TestFlattenManyLayers(t *testing.T) {
	sup := support(t)
	leakCheck(t)
	root := tree(t, "file")
	var names []string
	for i := range 20 {
		names = append(names, fmt.Sprint("l", i))
	}
	r, err := Build(newProfile(t, layers(names...), rule{path: root, access: read}), sup)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Layers) != 1 || !r.Flattened {
		t.Errorf("%v", r.Layers)
	}
	r.Release()
	// Nothing in common: the answer is an error, not a program that can do nothing.
	b := profile.NewBuilder(layers("a", "b"))
	b.AddPath(0, root, profile.FSReadFile, false, profile.Fail)
	b.AddPath(1, root, profile.FSReadDir, false, profile.Fail)
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	p.Flatten = true
	if _, err := Build(p, sup); !errors.Is(err, errs.ErrInvalid) {
		t.Errorf("nothing in common: %v", err)
	}
}

func TestFlattenRefusals(t *testing.T) {
	sup := support(t)
	if sup.ABI < 2 {
		testkernel.Skip(t, "Landlock ABI 2", "a newer kernel")
	}
	leakCheck(t)
	root := tree(t, "a/file", "b/x")
	file, hard := filepath.Join(root, "a/file"), filepath.Join(root, "b/hard")
	if err := os.Link(file, hard); err != nil {
		t.Fatal(err)
	}
	check := func(name string, p *profile.Profile, words string) {
		t.Helper()
		_, err := Build(p, sup)
		if !errors.Is(err, errs.ErrFlatten) || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", name, err)
		}
	}
	p := bound(t, root, file, profile.FSReadFile)
	check("hard link", p, "2 hard links")
	p.AcceptSharedInode = true
	r, err := Build(p, sup)
	if err != nil {
		t.Fatalf("accepted: %v", err)
	}
	r.Release()

	ls := layers("a", "b")
	ls[0].FS |= profile.FSRefer
	ls[1].FS |= profile.FSRefer
	p = newProfile(t, ls, rule{path: root, access: read | profile.FSRefer})
	p.Flatten = true
	check("refer", p, "refer")
	p.AcceptReferFlatten = true
	if r, err = Build(p, sup); err != nil {
		t.Fatalf("accepted: %v", err)
	}
	r.Release()
}

func TestFlattenBindMount(t *testing.T) {
	testkernel.RequireRoot(t)
	sup := support(t)
	root := tree(t, "a/file", "b/x")
	if err := unix.Mount(filepath.Join(root, "a"), filepath.Join(root, "b"), "", unix.MS_BIND, ""); err != nil {
		testkernel.Skip(t, "mount: "+err.Error(), "run as root with CAP_SYS_ADMIN")
	}
	defer unix.Unmount(filepath.Join(root, "b"), unix.MNT_DETACH)
	_, err := Build(bound(t, root, filepath.Join(root, "a"), read), sup)
	if !errors.Is(err, errs.ErrFlatten) || !strings.Contains(err.Error(), filepath.Join(root, "b")) {
		t.Errorf("error %v", err)
	}
}

func TestMountAlias(t *testing.T) {
	m, err := parseMounts(`21 1 8:1 / / rw - ext4 /dev/a rw
22 21 0:5 / /proc rw - proc proc rw
23 21 8:1 /srv/a\040b /mnt/x rw - ext4 /dev/a rw
24 21 8:2 / /data rw - ext4 /dev/b rw
`)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		path string
		id   uint64
		want string
	}{
		{"/srv/a b/c", 21, "/mnt/x/c"},
		{"/srv/a b", 21, "/mnt/x"},
		{"/srv", 21, ""},
		{"/srv/a bc", 21, ""},
		{"/", 21, ""},
		{"/mnt/x/c", 23, "/srv/a b/c"},
		{"/mnt/x", 23, "/srv/a b"},
		{"/data/x", 24, ""},
		{"/x", 99, "a mount that is gone"},
		{"/x", 24, "a mount that is hidden"},
	} {
		if got := m.alias(tt.path, tt.id); got != tt.want {
			t.Errorf("alias(%q, %d) = %q, want %q", tt.path, tt.id, got, tt.want)
		}
	}
	for _, bad := range []string{"x\n", "a b c d e\n"} {
		if _, err := parseMounts(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}
