package graph

import (
	"crypto/sha256"
	_ "embed" // of the template
	"encoding/base64"
	"html/template"
	"io"
	"strings"
)

//go:embed page.html.tmpl
var page string

// searchScript hides what does not match and opens what leads to what does.
const searchScript = `const q=document.getElementById("q"),all=[...document.querySelectorAll(".n")];
q.addEventListener("input",()=>{const s=q.value.toLowerCase();
all.forEach(n=>{n.hidden=s!=="";n.classList.remove("hit")});
if(s!=="")all.forEach(n=>{if(!n.dataset.s.toLowerCase().includes(s))return;n.classList.add("hit");
for(let e=n;e&&e.classList.contains("n");e=e.parentElement){e.hidden=false;if(e!==n&&e.tagName==="DETAILS")e.open=true}})});`

// openAll is up to how many nodes a tree begins unfolded.
const openAll = 150

// HTML writes a self-contained page: a tree to fold and unfold with a column for
// what all layers together allow and one for each layer, and a box to search.
// It loads nothing and, by its own policy, may run no script but its own.
func (g *Graph) HTML(w io.Writer) error {
	sum := sha256.Sum256([]byte(searchScript))
	t, err := template.New("page").Funcs(template.FuncMap{
		"open":      func(n *Node) bool { return g.Nodes <= openAll || n.Depth < 2 },
		"orNothing": orNothing,
		"class": func(t Text) string {
			switch {
			case allowedStyle(t) == Nothing:
				return "no"
			case t.Changes:
				return "ch"
			}
			return "ok"
		},
		"inherited": func(c Cell) bool { return allowedStyle(c.Own) != Allowed },
		"counted":   counted,
		"search": func(r Row) string {
			words := []string{r.What, r.Allowed.Full}
			for _, c := range r.Cells {
				words = append(words, c.Place)
			}
			return strings.Join(words, " ")
		},
	}).Parse(strings.Replace(page, "SCRIPT", searchScript, 1))
	if err != nil {
		return err
	}
	return t.Execute(w, map[string]any{
		"Graph":   g,
		"Columns": 1 + len(g.Layers),
		"Script":  base64.StdEncoding.EncodeToString(sum[:]),
	})
}
