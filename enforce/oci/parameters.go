package oci

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"policyd.dev/policyd/internal/errs"
)

// Annotations with values of parameters: AnnotationParameter and the parameter's name. As of the profile, one of a
// container goes before one of its pod.
const AnnotationParameter = prefix + "param."

// maxValue bounds the value of a parameter, a path (PATH_MAX without its NUL).
const maxValue = 4095

// Parameter is the value that an annotation gives a parameter.
type Parameter struct {
	Value      string
	Annotation string // its whole key, for messages
}

// ofContainer parts a key behind the prefix into what it is about and the container it is of, "" when it is of all.
// Kubernetes takes one slash in a key alone, so a dot means the same there; names of containers have no dots.
func ofContainer(key string) (about, container string) {
	for _, mark := range []string{"/container.", ".container."} {
		if i := strings.LastIndex(key, mark); i >= 0 {
			return key[:i], key[i+len(mark):]
		}
	}
	return key, ""
}

// Parameters gives the values that annotations give parameters, for the container of that name; "" when that is not
// known. A value is one path: what holds a newline or other control characters is refused, and so is an annotation of
// a container when nothing tells whose it is.
func Parameters(annotations map[string]string, container string) (map[string]Parameter, error) {
	var keys []string
	for key := range annotations {
		if strings.HasPrefix(key, AnnotationParameter) {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return nil, nil
	}
	slices.Sort(keys)
	var out map[string]Parameter
	own := map[string]bool{}
	for _, key := range keys {
		rest := strings.TrimPrefix(key, AnnotationParameter)
		name, of := ofContainer(rest)
		value := annotations[key]
		switch {
		case name == "" || strings.ContainsAny(name, "/."):
			return nil, fmt.Errorf("%w: annotation %q names no parameter; want %sNAME", errs.ErrInvalid, key, AnnotationParameter)
		case name != rest && of == "":
			return nil, fmt.Errorf("%w: annotation %q names no container", errs.ErrInvalid, key)
		case of != "" && container == "":
			return nil, fmt.Errorf("%w: annotation %q: nothing tells the name of this container", errs.ErrInvalid, key)
		case value == "":
			return nil, fmt.Errorf("%w: annotation %q is empty", errs.ErrInvalid, key)
		case len(value) > maxValue || strings.ContainsFunc(value, unicode.IsControl):
			return nil, fmt.Errorf("%w: annotation %q: %.80q is no path: one path without control characters, of at most %d bytes, is the value", errs.ErrInvalid, key, value, maxValue)
		case of != "" && of != container, of == "" && own[name]:
			continue
		case of != "" && own[name]:
			return nil, fmt.Errorf("%w: annotations %q and %q say the same", errs.ErrInvalid, out[name].Annotation, key)
		}
		own[name] = of != ""
		if out == nil {
			out = map[string]Parameter{}
		}
		out[name] = Parameter{value, key}
	}
	return out, nil
}

// Values gives the values alone.
func Values(p map[string]Parameter) map[string]string {
	if len(p) == 0 {
		return nil
	}
	out := make(map[string]string, len(p))
	for name, v := range p {
		out[name] = v.Value
	}
	return out
}

// About says which annotations gave values, for the error of who asked with them; "" for none.
func About(p map[string]Parameter) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(p)) {
		all = append(all, fmt.Sprintf("%s=%q", p[name].Annotation, p[name].Value))
	}
	return strings.Join(all, ", ")
}
