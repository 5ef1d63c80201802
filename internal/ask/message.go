package ask

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// Field numbers of GetProfileRequest, Workload, GetProfileResponse, VersionInfo and MissingRight (api/policyd/v1).
const (
	requestRef, requestParameters, requestWorkload                                           = 1, 2, 5
	workloadImage, workloadAnnotations, workloadLabels, workloadNamespace, workloadContainer = 1, 2, 3, 4, 8
	responseProfile, responseDigest, responseVersion, responseMissing                        = 2, 3, 4, 5
	responseBinding, responseSmackLabel, responseSmackError, responseProcess                 = 8, 9, 10, 11
	versionName, versionNumber                                                               = 2, 3
	processUmask, processLimits, processEnvironment                                          = 2, 3, 4
	missingLayer, missingKind, missingRight, missingABI                                      = 1, 2, 3, 4
)

// Wire types (protobuf's encoding).
const (
	varint, fixed64, bytesType, fixed32 = 0, 1, 2, 5
)

func (q *Question) encode() []byte {
	b := appendText(nil, requestRef, q.Ref)
	b = appendMap(b, requestParameters, q.Parameters)
	if w := q.Workload; w != nil {
		m := appendText(nil, workloadImage, w.Image)
		m = appendMap(m, workloadAnnotations, w.Annotations)
		m = appendMap(m, workloadLabels, w.Labels)
		m = appendText(m, workloadNamespace, w.Namespace)
		m = appendText(m, workloadContainer, w.Container)
		b = appendField(b, requestWorkload, m)
	}
	return b
}

func appendField[T ~[]byte | ~string](b []byte, field uint64, v T) []byte {
	b = binary.AppendUvarint(b, field<<3|bytesType)
	b = binary.AppendUvarint(b, uint64(len(v)))
	return append(b, v...)
}

// appendText leaves an empty text out, as protobuf does.
func appendText(b []byte, field uint64, s string) []byte {
	if s == "" {
		return b
	}
	return appendField(b, field, s)
}

func appendMap(b []byte, field uint64, m map[string]string) []byte {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		b = appendField(b, field, appendField(appendField(nil, 1, k), 2, m[k]))
	}
	return b
}

func decode(b []byte) (*Answer, error) {
	a := &Answer{}
	var name string
	var number uint64
	err := fields(b, func(field uint64, text []byte) error {
		switch field {
		case responseProfile:
			a.Profile = text
		case responseDigest:
			a.Digest = string(text)
		case responseBinding:
			a.Binding = string(text)
		case responseSmackLabel:
			a.SmackLabel = string(text)
		case responseSmackError:
			a.SmackError = string(text)
		case responseProcess:
			return fields(text, func(field uint64, _ []byte) error {
				name := map[uint64]string{processUmask: "umask", processLimits: "limits", processEnvironment: "environment"}[field]
				if name != "" && !slices.Contains(a.Process, name) {
					a.Process = append(a.Process, name)
				}
				return nil
			}, func(uint64, uint64) {})
		case responseVersion:
			return fields(text, func(field uint64, text []byte) error {
				if field == versionName {
					name = string(text)
				}
				return nil
			}, func(field, n uint64) {
				if field == versionNumber {
					number = n
				}
			})
		case responseMissing:
			m, err := missing(text)
			a.Missing = append(a.Missing, m)
			return err
		}
		return nil
	}, func(uint64, uint64) {})
	if err != nil {
		return nil, err
	}
	a.Version = fmt.Sprintf("%s@%d", name, number)
	return a, nil
}

func missing(b []byte) (string, error) {
	var layer, kind, right string
	var abi uint64
	err := fields(b, func(field uint64, text []byte) error {
		switch field {
		case missingLayer:
			layer = string(text)
		case missingKind:
			kind = string(text)
		case missingRight:
			right = string(text)
		}
		return nil
	}, func(field, n uint64) {
		if field == missingABI {
			abi = n
		}
	})
	if kind == "smack" {
		return fmt.Sprintf("Smack label %s (this kernel has no Smack)", right), err
	}
	return fmt.Sprintf("%s %s of layer %s (Landlock ABI %d)", kind, right, layer, abi), err
}

// fields gives each field of a message by its type: texts and messages, and numbers. Those of other types are nothing
// of ours, as protobuf has it for a field that is not of the type it should be.
func fields(b []byte, text func(field uint64, v []byte) error, number func(field, v uint64)) error {
	for len(b) > 0 {
		tag, n := binary.Uvarint(b)
		if n <= 0 || tag>>3 == 0 {
			return broken("a field without a number")
		}
		b = b[n:]
		skip := 0
		switch tag & 7 {
		case varint:
			v, n := binary.Uvarint(b)
			if n <= 0 {
				return broken("a number that is cut off")
			}
			b = b[n:]
			number(tag>>3, v)
		case bytesType:
			v, n := binary.Uvarint(b)
			if n <= 0 || v > uint64(len(b)-n) {
				return broken("field %d is cut off", tag>>3)
			}
			b = b[n:]
			if err := text(tag>>3, b[:v:v]); err != nil {
				return err
			}
			b = b[v:]
		case fixed64:
			skip = 8
		case fixed32:
			skip = 4
		default:
			return broken("field %d has type %d", tag>>3, tag&7)
		}
		if len(b) < skip {
			return broken("field %d is cut off", tag>>3)
		}
		b = b[skip:]
	}
	return nil
}
