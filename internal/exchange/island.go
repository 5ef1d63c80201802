package exchange

import (
	"path"
	"strings"
)

// island reads a profile of island: its profile.toml and the landlockconfig files in its folder landlock, which island
// composes.
func (r *report) island(files []File, o Options) []*draft {
	var configs []File
	var settings *source
	for _, f := range files {
		switch {
		case path.Base(f.Name) == "profile.toml" && path.Base(path.Dir(f.Name)) != "landlock":
			settings = newSource(f)
		default:
			configs = append(configs, f)
		}
	}
	if settings == nil || len(configs) == 0 {
		r.errorf(spot{}, codeMissingKey, "an island profile has a profile.toml and files landlock/*.toml")
		return nil
	}
	o.TOML, o.Compose = true, ComposeUnion
	drafts := r.landlockconfig(configs, o)
	if len(drafts) == 0 {
		return nil
	}
	drafts[0].name = nameOf(path.Base(path.Dir(settings.Name)))
	r.islandSettings(drafts[0], settings)
	return drafts
}

// islandSettings reads profile.toml.
func (r *report) islandSettings(d *draft, s *source) {
	root := r.toml(s)
	if root == nil {
		return
	}
	keys, ok := r.keys(root, "the profile", "workspace", "context", "env")
	if !ok {
		return
	}
	workspace := keys["workspace"]
	if workspace == nil || r.want(workspace, truth, "workspace") && workspace.text == "true" {
		r.remarkf(s.whole(), "island adds the folders of its workspace; they are no part of the profile's text and not granted here")
	}
	for _, c := range r.tables(keys["context"], "context", "when_beneath") {
		r.remarkf(c["when_beneath"].at, "island chooses the profile by the folder it is started in; who starts a policy names it")
	}
	for _, e := range r.tables(keys["env"], "env", "name", "literal") {
		if d.env == nil {
			d.env = map[string]string{}
		}
		name := e["name"].text
		if _, twice := d.env[name]; twice {
			r.errorf(e["name"].at, codeRepeatedKey, "environment variable %s is set twice", clip(name))
		}
		if name == "" || strings.ContainsAny(name, "=\x00") {
			r.errorf(e["name"].at, codeBadName, "%q is no name of an environment variable", clip(name))
		}
		d.env[name] = e["literal"].text
	}
}

// tables reads a list of tables whose keys must all be there and be texts.
func (r *report) tables(n *node, what string, names ...string) (tables []map[string]*node) {
	if n == nil || !r.want(n, list, what) {
		return nil
	}
	for _, item := range n.items {
		keys, ok := r.keys(item, what, names...)
		for _, name := range names {
			if ok && keys[name] == nil {
				r.errorf(item.at, codeMissingKey, "%s: %s is missing", what, name)
				ok = false
			}
			ok = ok && r.want(keys[name], text, name)
		}
		if ok {
			tables = append(tables, keys)
		}
	}
	return tables
}
