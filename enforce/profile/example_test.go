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

// What a kernel answers to whole operations, and why: the walk from the object
// to the root with what each row met grants.
func ExampleProfile_Decide() {
	b := profile.NewBuilder([]profile.Layer{
		{Name: "host", FS: profile.Handled(profile.FS, 5)},
		{Name: "app", FS: profile.FSWriteFile | profile.FSTruncate},
	})
	modify, _ := profile.ExpandGroup(profile.FS, "modify", 5)
	b.AddPath(0, "/srv", profile.FSReadFile|modify, false, profile.Fail)
	b.AddPath(1, "/srv/data", profile.FSWriteFile, false, profile.Fail)
	p, err := b.Build()
	if err != nil {
		fmt.Println(err)
		return
	}

	file := profile.Facts{Type: profile.RegularFile}
	for _, op := range []profile.Operation{
		{Kind: profile.OpOpen, Path: "/srv/data/log", Open: profile.OpenRead | profile.OpenWrite},
		{Kind: profile.OpOpen, Path: "/srv/data/log", Open: profile.OpenWrite | profile.OpenTruncate},
		{Kind: profile.OpRename, Path: "/srv/a/x", NewPath: "/srv/b/x"},
		{Kind: profile.OpStat, Path: "/etc/shadow"},
	} {
		a := p.Decide(op, file)
		fmt.Println(op.Kind, op.Path, a.Verdict)
		for _, q := range a.Questions[:a.Asked] {
			for _, l := range q.Decision.Unfulfilled.Layers() {
				fmt.Printf("  %v: layer %s refuses %s\n", a.Errno, p.Layers[l].Name, profile.FS.Format(q.Decision.Unfulfilled.At(l)))
			}
		}
		for _, l := range a.Move.OldParent.Layers() {
			fmt.Printf("  %v: layer %s refuses %s in the old folder\n", a.Errno, p.Layers[l].Name, profile.FS.Format(a.Move.OldParent.At(l)))
		}
	}

	fmt.Println("why truncate is refused:")
	p.ExplainPath("/srv/data/log", profile.FSWriteFile|profile.FSTruncate, func(row *profile.PathRow, cleared []profile.Access) {
		for l, a := range cleared {
			fmt.Printf("  %s grants %s in layer %s\n", row.Path, profile.FS.Format(a), p.Layers[l].Name)
		}
	})
	// Output:
	// open /srv/data/log allow
	// open /srv/data/log deny
	//   permission denied: layer app refuses truncate
	// rename /srv/a/x deny
	//   invalid cross-device link: layer app refuses refer in the old folder
	// stat /etc/shadow not_mediated
	// why truncate is refused:
	//   /srv/data grants none in layer host
	//   /srv/data grants write_file in layer app
	//   /srv grants write_file|truncate in layer host
	//   /srv grants none in layer app
}

// Locate once, decide many times: neither the length of the path nor the number
// of rules or layers matters then.
func ExampleIndex() {
	b := profile.NewBuilder([]profile.Layer{{Name: "host", FS: profile.Handled(profile.FS, 5)}})
	b.AddPath(0, "/usr", profile.FSReadFile|profile.FSExecute, false, profile.Fail)
	b.AddPath(0, "/usr/share", profile.FSReadDir, false, profile.Fail)
	p, err := b.Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	index := profile.NewIndex(p)
	at, ok := index.Locate("/usr/share/doc/policyd/README.gz")
	fmt.Println(ok, index.AllowedAt(at, profile.FSReadFile|profile.FSReadDir), index.AllowedAt(at, profile.FSWriteFile))
	// Output:
	// true true false
}

// On a live host rules bind to inodes. Here /home/app is a bind mount of
// /srv/app, so the rule on /srv/app holds for it, and the one on /srv does not.
func ExampleTree() {
	b := profile.NewBuilder([]profile.Layer{{Name: "host", FS: profile.FSReadFile | profile.FSWriteFile}})
	b.AddPath(0, "/srv", profile.FSReadFile, false, profile.Fail)
	b.AddPath(0, "/srv/app", profile.FSWriteFile, false, profile.Fail)
	p, err := b.Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	srv, app := p.Paths[0].Access, p.Paths[1].Access

	tree := profile.NewTree(p)
	root, _ := tree.Add(profile.Nowhere, profile.Directory)
	srvAt, _ := tree.Add(root, profile.Directory, srv)
	appAt, _ := tree.Add(srvAt, profile.Directory, app)
	home, _ := tree.Add(root, profile.Directory)
	mount, _ := tree.Add(home, profile.Directory, app)

	open := profile.Operation{Kind: profile.OpOpen, Path: "file", Open: profile.OpenRead | profile.OpenWrite}
	for _, parent := range []profile.Place{appAt, mount} {
		a := tree.Decide(open, profile.Facts{Type: profile.RegularFile}, profile.Where{Parent: parent})
		fmt.Println(a.Verdict, profile.FS.Format(a.Questions[0].Decision.Unfulfilled.At(0)))
	}
	// Output:
	// allow none
	// deny read_file
}
