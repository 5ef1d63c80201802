package policy

import (
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"

	apiv1 "policyd.dev/policyd/api/policyd/v1"
)

// APIVersion is the first line of every document.
const APIVersion = "policyd/v1"

// The kinds of documents. Each is the name of its message; which there are, the
// oneof of apiv1.Resource says.
const (
	KindPolicy   = "LandlockPolicy"
	KindFragment = "Fragment"
	KindTest     = "PolicyTest"
	KindSmack    = "SmackPolicy"
	KindBinding  = "Binding"
)

// kindFields are the fields of apiv1.Resource, one for each kind.
var kindFields = (&apiv1.Resource{}).ProtoReflect().Descriptor().Oneofs().ByName("kind").Fields()

// Kinds returns the names of the kinds of documents, sorted.
func Kinds() []string {
	names := make([]string, kindFields.Len())
	for i := range names {
		names[i] = string(kindFields.Get(i).Message().Name())
	}
	slices.Sort(names)
	return names
}

// messageOf is the message of a kind, nil when there is none of that name.
func messageOf(kind string) protoreflect.MessageDescriptor {
	if f := kindField(kind); f != nil {
		return f.Message()
	}
	return nil
}

func kindField(kind string) protoreflect.FieldDescriptor {
	for i := range kindFields.Len() {
		if f := kindFields.Get(i); string(f.Message().Name()) == kind {
			return f
		}
	}
	return nil
}

// newResource makes an empty document of a kind and gives its content to be
// filled; nil when there is no such kind.
func newResource(kind string) (*apiv1.Resource, protoreflect.Message) {
	f := kindField(kind)
	if f == nil {
		return nil, nil
	}
	res := &apiv1.Resource{}
	return res, res.ProtoReflect().Mutable(f).Message()
}

// contentOf gives the kind of a document and its content; "" when it has none.
func contentOf(res *apiv1.Resource) (string, protoreflect.Message) {
	f := res.ProtoReflect().WhichOneof(kindFields.Get(0).ContainingOneof())
	if f == nil {
		return "", nil
	}
	return string(f.Message().Name()), res.ProtoReflect().Get(f).Message()
}

// MetadataOf gives the metadata of a document of any kind, nil when it has none.
func MetadataOf(res *apiv1.Resource) *apiv1.Metadata {
	_, m := contentOf(res)
	if m == nil {
		return nil
	}
	v, _ := m.Get(m.Descriptor().Fields().ByName("metadata")).Message().Interface().(*apiv1.Metadata)
	return v
}
