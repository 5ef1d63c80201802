package exchange

import (
	"testing"

	"policyd.dev/policyd/internal/policy"
)

// FuzzRead wants of every reader: no panic; and what it accepts is printed as a policy that is read again and
// restricts something.
func FuzzRead(f *testing.F) {
	for name, text := range shapes {
		f.Add(uint8(0), name, []byte(text))
	}
	for i, format := range formats {
		for _, text := range []string{
			"landrun --rox /usr,/bin --bind-tcp 80 --env A=b --best-effort ls", podlockText, "rx:/bin\n\"r:/etc\",",
			"setpriv --landlock-access fs:execute,read-file --landlock-rule path-beneath::/usr ls",
			"LL_FS_RO=/usr LL_FS_RW= LL_TCP_BIND=80 LL_SCOPED=a:s x",
		} {
			f.Add(uint8(i), format.Name, []byte(text))
		}
	}
	f.Fuzz(func(t *testing.T, n uint8, name string, text []byte) {
		format := formats[int(n)%len(formats)]
		if len(text) > 1<<14 {
			return
		}
		files := []File{{name, text}}
		if format.Name == "island" {
			files = []File{{"p/profile.toml", []byte("workspace = false\n")}, {"p/landlock/a.toml", text}}
		}
		im, err := Read(format.Name, files, Options{Base: "/base", ABI: 6})
		if err != nil {
			return
		}
		out, err := im.Text("fuzzed")
		if err != nil {
			t.Fatalf("%v\n%q", err, text)
		}
		docs, err := policy.Parse("x", out)
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, d := range docs {
			c, err := policy.Compile(d.Resource.GetLandlockPolicy(), policy.CompileOptions{Document: d})
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, l := range c.Profile.Layers {
				if l.FS|l.Net|l.Scope == 0 {
					t.Fatalf("layer %s restricts nothing\n%s", l.Name, out)
				}
			}
			e, err := ExportConfig(d.Resource.GetLandlockPolicy(), c.Profile, nil)
			if err != nil {
				continue // a right that the format does not have
			}
			for _, c := range e.Configs {
				for _, back := range []File{{"x.json", c.JSON()}, {"x.toml", c.TOML("x")}} {
					if _, err := Read("landlockconfig", []File{back}, Options{}); err != nil {
						t.Fatalf("%v\n%s", err, back.Data)
					}
				}
			}
		}
	})
}
