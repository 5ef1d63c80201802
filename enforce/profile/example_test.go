package profile_test

import (
	"fmt"

	"policyd.dev/policyd/enforce/profile"
)

// Two layers: the second takes writing away again, and handles no ports.
func Example() {
	all := profile.Handled(profile.FS, 3)
	read, _ := profile.ExpandGroup(profile.FS, "read", 3)
	write, _ := profile.ExpandGroup(profile.FS, "write", 3)

	b := profile.NewBuilder([]profile.Layer{
		{Name: "host", FS: all, Net: profile.NetBindTCP},
		{Name: "app", FS: write},
	})
	b.AddPath(0, "/srv", read|write, false, profile.Fail)
	b.AddPath(1, "/srv/data", write, false, profile.Fail)
	b.AddPorts(0, 8000, 8010, profile.NetBindTCP, false)
	p, err := b.Build()
	if err != nil {
		fmt.Println(err)
		return
	}

	d := p.DecidePath("/srv/www/index.html", profile.FSReadFile|profile.FSWriteFile)
	for _, l := range d.Unfulfilled.Layers() {
		fmt.Printf("%v: layer %s refuses %s\n", d.Errno, p.Layers[l].Name, profile.FS.Format(d.Unfulfilled.At(l)))
	}
	_, lost := p.Reduce(2)
	for _, need := range lost {
		fmt.Println(need)
	}
	// Output:
	// permission denied: layer app refuses write_file
	// layer "host": fs right truncate needs ABI 3 (linux 6.2)
	// layer "host": net right bind_tcp needs ABI 4 (linux 6.7)
	// layer "app": fs right truncate needs ABI 3 (linux 6.2)
}
