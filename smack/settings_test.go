package smack

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// everySetting has something in every field.
func everySetting() Settings {
	return Settings{
		DOI: 3, Direct: new(uint8(250)), Mapped: new(uint8(0)),
		Cipso:       []Cipso{{"TS:A,B", 7, []int{2, 1}}, {"Low", 0, nil}},
		Netlabel:    []Netlabel{{netip.MustParsePrefix("127.0.0.1/32"), NetlabelCIPSO}, {netip.MustParsePrefix("10.0.0.0/8"), "Intern"}},
		IPv6Host:    []IPv6Host{{netip.MustParsePrefix("fe80::/16"), "Link"}, {netip.MustParsePrefix("::1/128"), IPv6Delete}},
		Ambient:     "Net",
		Syslog:      "*",
		PTrace:      new(uint8(2)),
		Logging:     new(uint8(3)),
		RelabelSelf: []string{"B", "A"},
		Unconfined:  "Lab",
		Onlycap:     []string{"System", "_"},
	}
}

func TestSettingsWrites(t *testing.T) {
	s := everySetting()
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range s.Writes() {
		got = append(got, fmt.Sprintf("%s %q", w.File, w.Data))
	}
	want := []string{
		`doi "3"`, `direct "250"`, `mapped "0"`,
		`cipso2 "TS:A,B 7   2   1   2   "`, `cipso2 "Low 0   0   "`,
		`netlabel "127.0.0.1/32 -CIPSO"`, `netlabel "10.0.0.0/8 Intern"`,
		`ipv6host "fe80:0:0:0:0:0:0:0/16 Link"`, `ipv6host "0:0:0:0:0:0:0:1/128 -DELETE"`,
		`ambient "Net"`, `syslog "*"`, `ptrace "2"`, `logging "3"`,
		`relabel-self "B A"`, `unconfined "Lab"`, `onlycap "System _"`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("writes\n%s, want\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	empty := Settings{}
	if w := empty.Writes(); len(w) != 0 {
		t.Errorf("nothing is set and %v is written", w)
	}
	emptied := Settings{ClearOnlycap: true, ClearUnconfined: true, ClearRelabelSelf: true}
	got = nil
	for _, w := range emptied.Writes() {
		got = append(got, w.File+" "+string(w.Data))
	}
	if want := []string{"relabel-self -", "unconfined -", "onlycap -"}; !slices.Equal(got, want) || emptied.Validate() != nil {
		t.Errorf("writes %q, want %q", got, want)
	}
}

func TestSettingsValidate(t *testing.T) {
	many := make([]string, 17)
	for i := range many {
		many[i] = strings.Repeat("x", 250) + fmt.Sprint(i)
	}
	tooMany := []int{}
	for i := range maxCipsoCategory {
		tooMany = append(tooMany, i+1)
	}
	p4, p6 := netip.MustParsePrefix, netip.MustParsePrefix
	for name, c := range map[string]struct {
		s    Settings
		want error
		text string
	}{
		"ptrace":                  {Settings{PTrace: new(uint8(3))}, ErrInvalid, "ptrace 3, at most 2"},
		"logging":                 {Settings{Logging: new(uint8(4))}, ErrInvalid, "logging 4"},
		"ambient":                 {Settings{Ambient: "x/y"}, ErrLabel, "ambient: "},
		"syslog":                  {Settings{Syslog: "-"}, ErrLabel, "syslog: "},
		"unconfined":              {Settings{Unconfined: "-typo"}, ErrLabel, "unconfined: "},
		"unconfined both":         {Settings{Unconfined: "A", ClearUnconfined: true}, ErrInvalid, "set and cleared"},
		"onlycap dash":            {Settings{Onlycap: []string{"-typo"}}, ErrLabel, "onlycap: "},
		"onlycap slash":           {Settings{Onlycap: []string{"/x"}}, ErrLabel, "onlycap: "},
		"onlycap empty label":     {Settings{Onlycap: []string{""}}, ErrLabel, "empty label"},
		"onlycap two in one":      {Settings{Onlycap: []string{"System _"}}, ErrLabel, "space (0x20)"},
		"onlycap newline":         {Settings{Onlycap: []string{"_\nSystem"}}, ErrLabel, "onlycap: "},
		"onlycap twice":           {Settings{Onlycap: []string{"A", "A"}}, ErrInvalid, "A twice"},
		"onlycap long":            {Settings{Onlycap: many}, ErrLimit, "bytes, at most 4095"},
		"onlycap both":            {Settings{Onlycap: []string{"A"}, ClearOnlycap: true}, ErrInvalid, "set and cleared"},
		"relabel":                 {Settings{RelabelSelf: []string{"a'b"}}, ErrLabel, "relabel-self: "},
		"cipso label":             {Settings{Cipso: []Cipso{{"a b", 1, nil}}}, ErrLabel, "cipso: "},
		"cipso level":             {Settings{Cipso: []Cipso{{"A", 256, nil}}}, ErrInvalid, "level 256"},
		"cipso negative":          {Settings{Cipso: []Cipso{{"A", -1, nil}}}, ErrInvalid, "level -1"},
		"cipso category 0":        {Settings{Cipso: []Cipso{{"A", 1, []int{0}}}}, ErrInvalid, "drops"},
		"cipso category 185":      {Settings{Cipso: []Cipso{{"A", 1, []int{185}}}}, ErrInvalid, "category 185"},
		"cipso category twice":    {Settings{Cipso: []Cipso{{"A", 1, []int{1, 1}}}}, ErrInvalid, "category 1 twice"},
		"cipso twice":             {Settings{Cipso: []Cipso{{"A", 1, nil}, {"A", 2, nil}}}, ErrInvalid, "A twice"},
		"netlabel delete":         {Settings{Netlabel: []Netlabel{{p4("10.0.0.0/8"), "-DELETE"}}}, ErrInvalid, "no option"},
		"netlabel label":          {Settings{Netlabel: []Netlabel{{p4("10.0.0.0/8"), "a/b"}}}, ErrLabel, "netlabel: "},
		"netlabel bits":           {Settings{Netlabel: []Netlabel{{p4("10.1.0.0/8"), "A"}}}, ErrInvalid, "no IPv4 network"},
		"netlabel six":            {Settings{Netlabel: []Netlabel{{p6("fe80::/16"), "A"}}}, ErrInvalid, "no IPv4 network"},
		"netlabel zero":           {Settings{Netlabel: []Netlabel{{Label: "A"}}}, ErrInvalid, "no IPv4 network"},
		"netlabel twice":          {Settings{Netlabel: []Netlabel{{p4("10.0.0.0/8"), "A"}, {p4("10.0.0.0/8"), "B"}}}, ErrInvalid, "twice"},
		"ipv6 mask":               {Settings{IPv6Host: []IPv6Host{{p6("fe80::/10"), "A"}}}, ErrInvalid, "multiple of 16"},
		"ipv6 four":               {Settings{IPv6Host: []IPv6Host{{p4("10.0.0.0/16"), "A"}}}, ErrInvalid, "no IPv6 network"},
		"ipv6 cipso":              {Settings{IPv6Host: []IPv6Host{{p6("fe80::/16"), "-CIPSO"}}}, ErrInvalid, "no option"},
		"ipv6 twice":              {Settings{IPv6Host: []IPv6Host{{p6("::/0"), "A"}, {p6("::/0"), "A"}}}, ErrInvalid, "twice"},
		"all 184 categories":      {Settings{Cipso: []Cipso{{"A", 255, tooMany}}}, nil, ""},
		"nothing":                 {Settings{}, nil, ""},
		"a mask of 0 and of 128":  {Settings{IPv6Host: []IPv6Host{{p6("::/0"), "A"}, {p6("::1/128"), "A"}}}, nil, ""},
		"everything that is read": {everySetting(), nil, ""},
	} {
		err := c.s.Validate()
		if !errors.Is(err, c.want) || err != nil && !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v, want %v with %q", name, err, c.want, c.text)
		}
	}
}

func TestSettingsDifference(t *testing.T) {
	from, to := everySetting(), everySetting()
	slices.Reverse(to.Cipso)
	slices.Reverse(to.Onlycap)
	if d := to.Difference(&from); len(d) != 0 {
		t.Errorf("the order of lists is a difference: %v", d)
	}
	to.Onlycap = to.Onlycap[:1]
	to.DOI = 0
	to.Cipso[0].Level = 9
	to.Netlabel = to.Netlabel[1:]
	to.IPv6Host[0].Label = "Other"
	var got []string
	for _, c := range to.Difference(&from) {
		got = append(got, fmt.Sprintf("%s: %q %q", c.Name, c.Old, c.New))
	}
	want := []string{
		`cipso Low: "level 0" "level 9"`, `doi: "3" ""`, `ipv6host fe80::/16: "Link" "Other"`,
		`netlabel 127.0.0.1/32: "-CIPSO" ""`, `onlycap: "System _" "_"`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("difference %q, want %q", got, want)
	}
}

func TestNewNetlabel(t *testing.T) {
	for _, c := range []struct{ address, label, want string }{
		{"10.0.0.0/8", "A", "10.0.0.0/8 A"},
		{"10.1.2.3/8", "A", "10.0.0.0/8 A"},
		{"127.0.0.1", "-CIPSO", "127.0.0.1/32 -CIPSO"},
		{"0.0.0.0/0", "A", "0.0.0.0/0 A"},
		{"300.1.1.1", "A", "error"},
		{"1.2.3", "A", "error"},
		{"1.2.3.4.5", "A", "error"},
		{"01.2.3.4", "A", "error"},
		{"1.2.3.4/33", "A", "error"},
		{"1.2.3.4/", "A", "error"},
		{"1.2.3.4/-1", "A", "error"},
		{"1.2.3.4/08", "A", "error"},
		{"1.2.3.4/8", "", "error"},
		{"1.2.3.4/8", "-DELETE", "error"},
		{"1.2.3.4/8", "a/b", "error"},
		{"::1", "A", "error"},
	} {
		n, err := NewNetlabel(c.address, c.label)
		if got := string(n.Append(nil)); err != nil && c.want != "error" || err == nil && got != c.want {
			t.Errorf("%s %s: %s, %v; want %s", c.address, c.label, got, err, c.want)
		}
	}
}

func TestNewIPv6Host(t *testing.T) {
	for _, c := range []struct {
		address, label, first, last string
		n                           int
	}{
		{"::1", "A", "0:0:0:0:0:0:0:1/128 A", "0:0:0:0:0:0:0:1/128 A", 1},
		{"2001:db8::/32", "A", "2001:db8:0:0:0:0:0:0/32 A", "2001:db8:0:0:0:0:0:0/32 A", 1},
		{"2001:DB8::1/32", "-DELETE", "2001:db8:0:0:0:0:0:0/32 -DELETE", "2001:db8:0:0:0:0:0:0/32 -DELETE", 1},
		{"fe80::1/10", "A", "fe80:0:0:0:0:0:0:0/16 A", "febf:0:0:0:0:0:0:0/16 A", 64},
		{"2001:db8:ff00::/40", "A", "2001:db8:ff00:0:0:0:0:0/48 A", "2001:db8:ffff:0:0:0:0:0/48 A", 256},
		{"fe80::/7", "A", "", "", 0},
		{"::/1", "A", "", "", 0},
		{"::/129", "A", "", "", 0},
		{"fffff::/16", "A", "", "", 0},
		{"1:2:3:4:5:6:7", "A", "", "", 0},
		{"fe80::1%eth0", "A", "", "", 0},
		{"1.2.3.4", "A", "", "", 0},
		{"::/0", "-CIPSO", "", "", 0},
	} {
		hosts, err := NewIPv6Host(c.address, c.label)
		if c.n == 0 {
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%s %s: %v", c.address, c.label, err)
			}
			continue
		}
		if err != nil || len(hosts) != c.n || string(hosts[0].Append(nil)) != c.first || string(hosts[len(hosts)-1].Append(nil)) != c.last {
			t.Errorf("%s %s: %v, %v", c.address, c.label, hosts, err)
			continue
		}
		s := Settings{IPv6Host: hosts}
		if err := s.Validate(); err != nil {
			t.Errorf("%s: %v", c.address, err)
		}
	}
}

func TestReadCipso(t *testing.T) {
	for _, c := range []struct {
		line string
		want Cipso
		form CipsoForm
		err  string
	}{
		{"TopSecret 7", Cipso{"TopSecret", 7, nil}, CipsoWords, ""},
		{"TS:A,B 7 1 2", Cipso{"TS:A,B", 7, []int{1, 2}}, CipsoWords, ""},
		{"X 7   2   1   2   ", Cipso{"X", 7, []int{1, 2}}, CipsoColumns, ""},
		{"X 7   2   1   2", Cipso{"X", 7, []int{1, 2}}, CipsoColumns, ""},
		{"X 7   0   ", Cipso{"X", 7, nil}, CipsoColumns, ""},
		{"X 7 3 1 2", Cipso{"X", 7, []int{3, 1, 2}}, CipsoWords, ""},
		{"X 250 100 101", Cipso{"X", 250, []int{100, 101}}, CipsoWords, ""},
		{"X 250 2   100 101", Cipso{"X", 250, []int{100, 101}}, CipsoColumns, ""},
		{"X\t7\t1", Cipso{"X", 7, []int{1}}, CipsoWords, ""},
		{"X", Cipso{}, 0, "f:1:1: syntax error: no level"},
		{"X ", Cipso{}, 0, "no level"},
		{"a/b 7", Cipso{}, 0, "'/' (0x2f)"},
		{"X 256", Cipso{}, 0, "level 256"},
		{"X 7 0", Cipso{}, 0, "category 0"},
		{"X 7 185", Cipso{}, 0, "category 185"},
		{"X 7 1 1", Cipso{}, 0, "category 1 twice"},
		{"X 7 x", Cipso{}, 0, `"x" is no number`},
		{"X 07", Cipso{}, 0, `"07" is no number`},
		{"X -1", Cipso{}, 0, `"-1" is no number`},
		{"X 7" + strings.Repeat(" 1", 200), Cipso{}, 0, "more than 184"},
	} {
		list, forms, err := ReadCipso("f", []byte(c.line+"\n"))
		if c.err != "" {
			var ps Problems
			if !errors.As(err, &ps) || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%q: %v, want %q", c.line, err, c.err)
			}
			continue
		}
		if err != nil || len(list) != 1 || forms[c.form] != 1 || list[0].Label != c.want.Label || list[0].Level != c.want.Level || !slices.Equal(list[0].Categories, c.want.Categories) {
			t.Errorf("%q: %v %v %v", c.line, list, forms, err)
			continue
		}
		// What is written for the kernel is read as such.
		again, forms, err := ReadCipso("f", list[0].Append(nil))
		if err != nil || forms[CipsoColumns] != 1 || len(again) != 1 || again[0].Level != c.want.Level {
			t.Errorf("%q is written as %q and read as %v, %v", c.line, list[0].Append(nil), again, err)
		}
	}
	list, forms, err := ReadCipso("f", []byte("# c\n\nA 1\r\n B 2   1   3   \nA 3\n"))
	if err == nil || !strings.HasPrefix(err.Error(), "f:5:1: invalid: A has an entry at f:3:1 already") || len(list) != 2 || forms != [2]int{1, 1} {
		t.Errorf("%v %v %v", list, forms, err)
	}
}

func TestReadNetlabel(t *testing.T) {
	v4, v6, warnings, err := ReadNetlabel("f", []byte("# c\n10.1.2.3/8 Intern\n127.0.0.1 -CIPSO\nfe80::/10 Link\n::1 Self"))
	if err != nil || len(v4) != 2 || len(v6) != 65 {
		t.Fatal(v4, len(v6), err)
	}
	if got := warned(warnings); !slices.Equal(got, []string{"2:1 prefix", "4:1 prefix"}) {
		t.Errorf("warnings %q", got)
	}
	_, _, _, err = ReadNetlabel("f", []byte("300.1.1.1 X\n10.0.0.1\n10.0.0.0/8 A\n10.9.9.9/8 B\n10.0.0.0/8 a'b\n1.1.1.1 X\x00\n"))
	var ps Problems
	if !errors.As(err, &ps) || len(ps) != 5 || ps[3].Err == nil || !errors.Is(err, ErrLabel) {
		t.Fatalf("%d errors: %v", len(ps), err)
	}
	if want := "f:4:1: invalid: 10.0.0.0/8 has an entry at f:3:1 already"; ps[2].Error() != want {
		t.Errorf("%q, want %q", ps[2].Error(), want)
	}
}

func TestReadLabels(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string
		err  string
	}{
		{"System _", []string{"System", "_"}, ""},
		{"_\nSystem\n", []string{"_", "System"}, ""},
		{"# webOS\n  System\t_\r\n", []string{"System", "_"}, ""},
		{"", nil, ""},
		{"-typo\n", nil, "f:1:1: label \"-typo\""},
		{"A /x\n", nil, "f:1:1: label \"/x\""},
		{"A\nB A\n", nil, "f:2:1: invalid: A stands at f:1:1 already"},
		{"\xef\xbb\xbfA", nil, "byte order mark"},
		{"A\x00B", nil, "f:1:2: syntax error: NUL (0x00)"},
		{strings.Repeat("x", MaxLine+5) + "\n", nil, "f:1:4096: "},
	} {
		got, err := ReadLabels("f", []byte(c.text))
		if c.err == "" && (err != nil || !slices.Equal(got, c.want)) || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%q: %q, %v; want %q %s", c.text, got, err, c.want, c.err)
		}
	}
}

// Whatever the readers take is valid but for what only the whole can tell.
func FuzzReadSettings(f *testing.F) {
	f.Add([]byte("TopSecret 7\nX 7   2   1   2   \n"))
	f.Add([]byte("10.0.0.0/8 A\nfe80::/10 B\n0.0.0.0/0 -CIPSO\n"))
	f.Add([]byte("_ System\n# x\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if list, _, err := ReadCipso("f", text); err == nil {
			s := Settings{Cipso: list}
			if err := s.Validate(); err != nil {
				t.Fatalf("cipso %q: %v", text, err)
			}
			for _, c := range list {
				again, forms, err := ReadCipso("f", c.Append(nil))
				if c.Label[0] == '#' {
					continue
				}
				if err != nil || len(again) != 1 || forms[CipsoColumns] != 1 || again[0].Label != c.Label || again[0].Level != c.Level || len(again[0].Categories) != len(c.Categories) {
					t.Fatalf("%v is written as %q and read as %v, %v", c, c.Append(nil), again, err)
				}
			}
		}
		if v4, v6, _, err := ReadNetlabel("f", text); err == nil {
			s := Settings{Netlabel: v4, IPv6Host: v6}
			if err := s.Validate(); err != nil {
				t.Fatalf("netlabel %q: %v", text, err)
			}
		}
		if list, err := ReadLabels("f", text); err == nil {
			s := Settings{Onlycap: list}
			if err := s.Validate(); err != nil && !errors.Is(err, ErrLimit) {
				t.Fatalf("labels %q: %v", text, err)
			}
		}
	})
}
