package decide

import (
	"slices"

	"policyd.dev/policyd/enforce/profile"
)

// order brings what several looks of the kernel found into the order of the
// policy's layers and of the table of rights. Of a layer some rule of which was
// met in one look, it is not told that none was in another.
func (x *inquiry) order() {
	if x.a.Verdict != Deny {
		return
	}
	place := make(map[string]int, len(x.d.p.Layers))
	for i := range x.d.p.Layers {
		place[x.d.p.Layers[i].Name] = i
	}
	slices.SortStableFunc(x.a.Layers, func(a, b Layer) int { return place[a.Name] - place[b.Name] })
	for _, l := range x.a.Layers {
		slices.SortFunc(l.Missing, func(a, b string) int { return rightPlaces[a] - rightPlaces[b] })
	}
	slices.SortStableFunc(x.a.DecidedBy, func(a, b Rule) int { return place[a.Layer] - place[b.Layer] })
	met := map[string]bool{}
	for _, r := range x.a.DecidedBy {
		met[r.Layer] = met[r.Layer] || r.Rule != ""
	}
	x.a.DecidedBy = slices.DeleteFunc(x.a.DecidedBy, func(r Rule) bool { return r.Rule == "" && met[r.Layer] })
}

// rightPlaces are the places of rights in their table, by name. Names of
// different kinds differ.
var rightPlaces = func() map[string]int {
	places := map[string]int{}
	for i, r := range profile.Rights() {
		places[r.Name] = i
	}
	return places
}()
