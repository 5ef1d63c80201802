package policy

import (
	"encoding/json"
	"math"

	"google.golang.org/protobuf/reflect/protoreflect"

	"policyd.dev/policyd/enforce/profile"
)

//go:generate go test -run ^TestGenerated$ -update .

// schemaID names the schema; editors that know it need not fetch it.
const schemaID = "https://policyd.dev/schema/policyd-v1.json"

type object = map[string]any

// JSONSchema is the JSON Schema (draft 2020-12) of a document, for editors: it
// knows keys, types, words and the names of rights. What it accepts may still
// be wrong (variables, abi of rights); what it refuses is.
func JSONSchema() []byte {
	defs := object{
		"fsRight":    rightSchema(profile.FS),
		"netRight":   rightSchema(profile.Net),
		"scopeRight": rightSchema(profile.Scope),
		"port": object{
			"description": "A port, or a range LOW-HIGH.",
			"anyOf": []any{
				object{"type": "integer", "minimum": 0, "maximum": 65535},
				object{"type": "string", "pattern": "^[0-9]{1,5}(-[0-9]{1,5})?$"},
			},
		},
	}
	var addDefs func(md protoreflect.MessageDescriptor)
	addDefs = func(md protoreflect.MessageDescriptor) {
		if _, ok := defs[string(md.Name())]; ok || md.Name() == "StringList" {
			return
		}
		defs[string(md.Name())] = nil
		defs[string(md.Name())] = messageSchema(md)
		for i := range md.Fields().Len() {
			if f := md.Fields().Get(i); f.Message() != nil && !f.IsMap() {
				addDefs(f.Message())
			}
		}
	}
	for _, kind := range Kinds() {
		for _, field := range []protoreflect.Name{"metadata", "spec"} {
			addDefs(messageOf(kind).Fields().ByName(field).Message())
		}
	}
	document := func(kind string) object {
		s := messageSchema(messageOf(kind))
		props := s["properties"].(object)
		props["apiVersion"] = object{"const": APIVersion}
		props["kind"] = object{"const": kind}
		s["required"] = []string{"apiVersion", "kind", "metadata", "spec"}
		return s
	}
	schema := object{
		"$schema": "https://json-schema.org/draft/2020-12/schema",
		"$id":     schemaID,
		"title":   "policyd document",
		"type":    "object",
		"if":      isKind(KindFragment),
		"then":    document(KindFragment),
		"else": object{
			"if":   isKind(KindTest),
			"then": document(KindTest),
			"else": object{
				"if":   isKind(KindSmack),
				"then": document(KindSmack),
				"else": object{
					"if":   isKind(KindBinding),
					"then": document(KindBinding),
					"else": document(KindPolicy),
				},
			},
		},
		"$defs": defs,
	}
	out, err := json.MarshalIndent(schema, "", "  ")
	if err != nil {
		panic(err) // maps of strings and numbers always encode
	}
	return append(out, '\n')
}

func isKind(kind string) object {
	return object{"properties": object{"kind": object{"const": kind}}, "required": []string{"kind"}}
}

func rightSchema(kind profile.Kind) object {
	var choices []any
	for _, r := range profile.Rights() {
		if r.Kind == kind {
			choices = append(choices, object{"const": r.Name, "description": r.Doc})
		}
	}
	for _, g := range profile.Groups() {
		if g.Kind == kind {
			choices = append(choices, object{"const": g.Name, "description": "Group: " + g.Doc})
		}
	}
	return object{"anyOf": append(choices, object{"type": "string", "pattern": "^0x[0-9A-Fa-f]{1,8}$", "description": "A mask of the kernel's bits."}, object{"type": "integer"})}
}

func messageSchema(md protoreflect.MessageDescriptor) object {
	props := object{}
	for i := range md.Fields().Len() {
		f := md.Fields().Get(i)
		s := fieldSchema(f)
		if doc := fieldDocs[string(md.Name())+"."+string(f.Name())]; doc != "" {
			s["description"] = doc
		}
		props[f.JSONName()] = s
	}
	s := object{"type": "object", "properties": props, "additionalProperties": false}
	if doc := fieldDocs[string(md.Name())]; doc != "" {
		s["description"] = doc
	}
	if required := requiredKeys[md.Name()]; required != nil {
		s["required"] = required
	}
	return s
}

var requiredKeys = map[protoreflect.Name][]string{
	"Metadata":     {"name"},
	"LandlockSpec": {"abi", "layers"},
	"FragmentSpec": {"abi"},
	"PathRule":     {"at"},
	"PortRule":     {"port"},
	"Parameter":    {"name"},

	"PolicyTestSpec":  {"expect"},
	"TestExpectation": {"op", "verdict"},

	"BindingSpec": {"match", "policy"},

	"SmackSpec":     {"layers"},
	"SmackRule":     {"subject", "object"},
	"SmackTemplate": {"rules"},
	"SmackCipso":    {"label"},
	"SmackHost":     {"address", "label"},
}

// memberSchemas are lists whose members are more than words.
var memberSchemas = map[string]string{
	"PathRule.allow": "fsRight", "Handles.fs": "fsRight", "Quiet.fs": "fsRight",
	"PortRule.allow": "netRight", "Handles.net": "netRight", "Quiet.net": "netRight",
	"Layer.scope": "scopeRight", "Quiet.scope": "scopeRight",
	"PortRule.port": "port",
}

// numberLimits are the least and the greatest value of numbers other than abi.
var numberLimits = map[string][2]uint32{
	"SmackSpec.label_budget": {0, math.MaxUint32},
	"SmackSettings.doi":      {1, math.MaxUint32},
	"SmackSettings.direct":   {0, 255},
	"SmackSettings.mapped":   {0, 255},
	"SmackSettings.ptrace":   {0, 2},
	"SmackSettings.logging":  {0, 3},
	"SmackCipso.level":       {0, 255},
}

func fieldSchema(f protoreflect.FieldDescriptor) object {
	key := string(f.Parent().Name()) + "." + string(f.Name())
	switch {
	case f.IsMap() && f.MapValue().Message() != nil:
		return object{"type": "object", "additionalProperties": oneOrMany(object{"type": scalarTypes})}
	case f.IsMap():
		return object{"type": "object", "additionalProperties": object{"type": scalarTypes}}
	case f.IsList() && f.Message() != nil:
		item := object{"$ref": "#/$defs/" + string(f.Message().Name())}
		if f.Message().Name() == "Parameter" {
			item = object{"anyOf": []any{object{"type": "string"}, item}}
		}
		return object{"type": "array", "items": item}
	case f.IsList() && f.Kind() == protoreflect.Uint32Kind: // categories of CIPSO
		return object{"type": "array", "items": object{"type": "integer", "minimum": 1, "maximum": 184}}
	case f.IsList():
		item := object{"type": scalarTypes}
		if ref := memberSchemas[key]; ref != "" {
			item = object{"$ref": "#/$defs/" + ref}
		}
		return oneOrMany(item)
	case f.Message() != nil:
		return object{"$ref": "#/$defs/" + string(f.Message().Name())}
	}
	switch f.Kind() {
	case protoreflect.BoolKind:
		return object{"type": "boolean"}
	case protoreflect.Uint32Kind:
		limits, ok := numberLimits[key]
		if !ok {
			limits = [2]uint32{1, profile.MaxABI} // abi
		}
		return object{"type": "integer", "minimum": limits[0], "maximum": limits[1]}
	case protoreflect.EnumKind:
		return object{"enum": enumWords(f.Enum())}
	}
	return object{"type": scalarTypes}
}

// scalarTypes are what a word may look like without quotes.
var scalarTypes = []string{"string", "integer", "number", "boolean"}

// oneOrMany is a list that may be written as its only member.
func oneOrMany(item object) object {
	return object{"anyOf": []any{item, object{"type": "array", "items": item}}}
}
