package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"

	"go.yaml.in/yaml/v4"
)

// writeYAML writes JSON as YAML: the same keys in the same order, numbers as
// they are written.
func writeYAML(w io.Writer, raw []byte) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	n, err := yamlNode(dec)
	if err != nil {
		return err
	}
	text, err := yaml.Dump(n, yaml.WithV3Defaults(), yaml.WithIndent(2), yaml.WithLineWidth(-1))
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

// looksOtherwise are strings that readers of YAML 1.1 take for something else:
// truth values, numbers (12:30 is one), dates.
var looksOtherwise = regexp.MustCompile(`^(?i:y|n|yes|no|on|off|=|<<|[-+.]?[0-9].*)$`)

// yamlNode reads one value; a map of Go would lose the order.
func yamlNode(dec *json.Decoder) (*yaml.Node, error) {
	token, err := dec.Token()
	if err != nil {
		return nil, err
	}
	scalar := func(tag, value string) (*yaml.Node, error) {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value}, nil
	}
	switch v := token.(type) {
	case nil:
		return scalar("!!null", "null")
	case bool:
		return scalar("!!bool", fmt.Sprint(v))
	case json.Number:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: v.String()}, nil
	case string:
		n, err := scalar("!!str", v)
		if looksOtherwise.MatchString(v) {
			n.Style = yaml.DoubleQuotedStyle
		}
		return n, err
	}
	n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
	if token == json.Delim('{') {
		n.Kind, n.Tag = yaml.MappingNode, "!!map"
	}
	for dec.More() { // of a mapping, keys and values in turn
		inner, err := yamlNode(dec)
		if err != nil {
			return nil, err
		}
		n.Content = append(n.Content, inner)
	}
	if len(n.Content) == 0 {
		n.Style = yaml.FlowStyle // [] and {}
	}
	_, err = dec.Token() // the end
	return n, err
}
