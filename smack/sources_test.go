package smack

import (
	"reflect"
	"testing"
)

func TestSources(t *testing.T) {
	b := NewBuilder("p")
	low, high := b.Layer("low", AllAccess), b.Layer("high", Read|Write)
	if err := low.Text("low.rules", []byte("A B rwx\n\nC B r\nA B a x\n")); err != nil {
		t.Fatal(err)
	}
	if err := high.Set(Place{File: "high", Line: 7}, "A", "B", Read); err != nil {
		t.Fatal(err)
	}
	want := []Source{
		{Layer: 0, At: Place{"low.rules", 1, 1}, Allow: Read | Write | Execute},
		{Layer: 0, At: Place{"low.rules", 4, 1}, Modify: true, Allow: Append, Deny: Execute},
		{Layer: 1, At: Place{"high", 7, 0}, Allow: Read},
	}
	if got := b.Sources("A", "B"); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for _, pair := range [][2]string{{"B", "A"}, {"A", "X"}, {"X", "B"}} {
		if got := b.Sources(pair[0], pair[1]); got != nil {
			t.Errorf("%v: got %+v", pair, got)
		}
	}
}
