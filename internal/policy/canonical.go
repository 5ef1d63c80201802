package policy

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"math"
	"sort"
	"strconv"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
)

// Canonical gives the one encoding of a message that digests are taken over:
// JSON with sorted keys, without spaces and without default values
// (docs/formats.md). It takes any message, not only documents.
func Canonical(m proto.Message) []byte { return appendMessage(nil, m.ProtoReflect()) }

// ContentDigest is "sha256:" and the hash of a document's canonical content and
// pins. Equal digests mean equal content.
func ContentDigest(r *apiv1.Resource, pins []*apiv1.Pin) string {
	h := sha256.New()
	h.Write([]byte("policyd/v1 document\n"))
	h.Write(Canonical(r))
	h.Write([]byte("\n"))
	ordered := append([]*apiv1.Pin(nil), pins...)
	sort.Slice(ordered, func(i, j int) bool { return ordered[i].GetName() < ordered[j].GetName() })
	for _, pin := range ordered {
		h.Write(Canonical(pin))
		h.Write([]byte("\n"))
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

func appendMessage(b []byte, m protoreflect.Message) []byte {
	type set struct {
		name  string
		field protoreflect.FieldDescriptor
		value protoreflect.Value
	}
	var fields []set
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		fields = append(fields, set{f.JSONName(), f, v})
		return true
	})
	sort.Slice(fields, func(i, j int) bool { return fields[i].name < fields[j].name })
	b = append(b, '{')
	for i, f := range fields {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, f.name)
		b = append(b, ':')
		switch {
		case f.field.IsMap():
			b = appendMap(b, f.value.Map(), f.field.MapValue())
		case f.field.IsList():
			b = append(b, '[')
			l := f.value.List()
			for j := range l.Len() {
				if j > 0 {
					b = append(b, ',')
				}
				b = appendValue(b, l.Get(j), f.field)
			}
			b = append(b, ']')
		default:
			b = appendValue(b, f.value, f.field)
		}
	}
	return append(b, '}')
}

func appendMap(b []byte, m protoreflect.Map, value protoreflect.FieldDescriptor) []byte {
	keys := make([]protoreflect.MapKey, 0, m.Len())
	m.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
		keys = append(keys, k)
		return true
	})
	sort.Slice(keys, func(i, j int) bool { return keys[i].String() < keys[j].String() })
	b = append(b, '{')
	for i, k := range keys {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(b, k.String())
		b = append(b, ':')
		b = appendValue(b, m.Get(k), value)
	}
	return append(b, '}')
}

func appendValue(b []byte, v protoreflect.Value, f protoreflect.FieldDescriptor) []byte {
	switch f.Kind() {
	case protoreflect.MessageKind:
		return appendMessage(b, v.Message())
	case protoreflect.BoolKind:
		return strconv.AppendBool(b, v.Bool())
	case protoreflect.EnumKind:
		return strconv.AppendInt(b, int64(v.Enum()), 10)
	case protoreflect.StringKind:
		return appendString(b, v.String())
	case protoreflect.BytesKind: // in requests: the text of files
		return appendString(b, base64.StdEncoding.EncodeToString(v.Bytes()))
	case protoreflect.FloatKind, protoreflect.DoubleKind: // by their bits: they have many texts
		return strconv.AppendUint(b, math.Float64bits(v.Float()), 10)
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind, protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return strconv.AppendInt(b, v.Int(), 10)
	}
	return strconv.AppendUint(b, v.Uint(), 10)
}

// appendString writes a JSON string: only ", \ and what is below U+0020 is
// escaped, the latter as \u00xx in lower case.
func appendString(b []byte, s string) []byte {
	const hexDigits = "0123456789abcdef"
	b = append(b, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r < 0x20:
			b = append(b, '\\', 'u', '0', '0', hexDigits[r>>4], hexDigits[r&15])
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}
