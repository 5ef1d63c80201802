package exchange

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"
)

var errDepth = fmt.Errorf("nested more than %d deep", maxDepth)

// yaml reads the documents of a YAML text. nil when it has errors, which are reported.
func (r *report) yaml(s *source) []*node {
	if !r.text(s) {
		return nil
	}
	limits := loaderlimits.New(loaderlimits.DepthFunc(func(depth int, _ *loaderlimits.DepthContext) error {
		if depth > maxDepth {
			return errDepth
		}
		return nil
	}))
	loader, err := yaml.NewLoader(bytes.NewReader(s.Data), yaml.WithPlugin(limits))
	var docs []*node
	for err == nil {
		var doc yaml.Node
		if err = loader.Load(&doc); err == nil && doc.Kind == yaml.DocumentNode && len(doc.Content) == 1 {
			root := doc.Content[0]
			if root.Kind == yaml.ScalarNode && root.Value == "" {
				continue // nothing between two markers
			}
			n, ok := r.yamlNode(s, root)
			if !ok {
				return nil
			}
			docs = append(docs, n)
		}
	}
	if !errors.Is(err, io.EOF) {
		at := s.whole()
		message := err.Error()
		if load, is := errors.AsType[*yaml.LoadError](err); is {
			at, message = spot{file: s, line: max(load.Mark.Line, 1), col: max(load.Mark.Column, 1)}, load.Message
		}
		r.errorf(at, codeSyntax, "not YAML: %s", message)
		return nil
	}
	return docs
}

func (r *report) yamlNode(s *source, y *yaml.Node) (*node, bool) {
	n := &node{kind: other, at: spot{file: s, line: max(y.Line, 1), col: max(y.Column, 1)}}
	if y.Kind == yaml.AliasNode || y.Anchor != "" || y.Style&yaml.TaggedStyle != 0 {
		r.errorf(n.at, codeAlias, "anchors, aliases and tags are not read here")
		return nil, false
	}
	switch y.Kind {
	case yaml.ScalarNode:
		n.text = y.Value
		switch y.ShortTag() {
		case "!!str":
			n.kind = text
		case "!!int":
			n.kind = number
		case "!!bool":
			n.kind = truth
		}
	case yaml.SequenceNode:
		n.kind = list
		for _, y := range y.Content {
			item, ok := r.yamlNode(s, y)
			if !ok {
				return nil, false
			}
			n.items = append(n.items, item)
		}
	case yaml.MappingNode:
		n.kind = object
		for i := 0; i+1 < len(y.Content); i += 2 {
			key, ok := r.yamlNode(s, y.Content[i])
			if !ok {
				return nil, false
			}
			if y.Content[i].ShortTag() == "!!merge" || y.Content[i].Kind != yaml.ScalarNode {
				r.errorf(key.at, codeAlias, "a key that is no word")
				return nil, false
			}
			value, ok := r.yamlNode(s, y.Content[i+1])
			if !ok {
				return nil, false
			}
			if n.get(key.text) != nil {
				r.errorf(key.at, codeRepeatedKey, "key %q stands twice", clip(key.text))
				return nil, false
			}
			n.put(key.text, key.at, value)
		}
	}
	return n, true
}
