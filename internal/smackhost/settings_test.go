package smackhost

import (
	"errors"
	"strings"
	"testing"

	"policyd.dev/policyd/internal/errs"
	"policyd.dev/policyd/smack/smackfs"
)

// What the kernel cannot delete stays policyd's: through loads, an unload, a restart, and a load that failed.
func TestSettingsStay(t *testing.T) {
	h := newHost(t)
	a := h.apply("a", "App Data r", "{netlabel: [{address: 10.1.0.0/16, label: Net}], cipso: [{label: Net, level: 7}], ambient: Net}")
	b := h.apply("b", "App Data r")
	c := h.apply("c", "App Data r", "{netlabel: [{address: 10.1.0.0/16, label: Wire}], cipso: [{label: Net, level: 8}]}")
	h.load(a, LoadOptions{})
	res := h.load(b, LoadOptions{})
	told := strings.Join(res.GetWarnings(), "\n")
	for _, what := range []string{`netlabel 10.1.0.0/16 "Net" stays`, `cipso2 Net "7" stays`, `ambient "Net" stays`} {
		if !strings.Contains(told, what) {
			t.Errorf("%s is not told: %s", what, told)
		}
	}
	h.load(b, LoadOptions{})
	h.restart()
	h.load(c, LoadOptions{})
	if _, _, err := h.Unload(t.Context(), LoadOptions{}.Actor); err != nil {
		t.Fatal(err)
	}
	h.load(a, LoadOptions{})

	// A load that fails behind a new entry cannot take it back, and knows it.
	d := h.apply("d", "App Data r", "{netlabel: [{address: 10.2.0.0/16, label: Wire}], ambient: Wire}")
	e := h.apply("e", "App Data r", "{netlabel: [{address: 10.2.0.0/16, label: Other}]}")
	refusing := &refusingFS{FS: h.fs, file: "ambient"}
	h.Manager = New(Config{Store: h.st, Find: func() (smackfs.FS, error) { return refusing, nil }, Log: quiet()})
	if _, err := h.Load(t.Context(), d, LoadOptions{}); !errors.Is(err, errs.ErrSmackRefused) {
		t.Fatal(err)
	}
	h.restart()
	h.load(e, LoadOptions{})

	// Somebody else's is in the way.
	h.write("netlabel", "10.2.0.0/16 Theirs")
	h.load(b, LoadOptions{})
	if _, err := h.Load(t.Context(), e, LoadOptions{}); !errors.Is(err, errs.ErrSmackForeign) {
		t.Errorf("somebody else's: %v", err)
	}
}
