package label

import (
	"errors"
	"strings"
	"testing"
)

// Every byte alone: what may stand in a label, and what the error says of the rest. Package smack has the cases.
func TestCheck(t *testing.T) {
	for c := range 256 {
		s := "a" + string([]byte{byte(c)}) + "b"
		err := Check(s)
		want := c > ' ' && c <= '~' && !strings.ContainsRune(`/"'\`, rune(c))
		if (err == nil) != want {
			t.Errorf("%q: %v", s, err)
		}
		if e, ok := errors.AsType[*Error](err); err != nil && (!ok || e.Offset != 1 || !errors.Is(err, ErrLabel)) {
			t.Errorf("%q: %#v", s, err)
		}
	}
	for s, ok := range map[string]bool{"": false, "-a": false, "a-": true, strings.Repeat("x", Max): true, strings.Repeat("x", Max+1): false} {
		if err := Check(s); (err == nil) != ok || err != nil && err.Error() == "" {
			t.Errorf("%.20q: %v", s, err)
		}
	}
	for _, s := range []string{Floor, Hat, Star, Huh, Web} {
		if !BuiltIn(s) || BuiltIn(s+s) {
			t.Error(s)
		}
	}
}
