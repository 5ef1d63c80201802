package cli

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
)

// notUTF8 says which texts of a message that could not be encoded are at fault:
// protobuf's strings are UTF-8, while arguments, paths and environments of a
// kernel are any bytes. Any other error it gives back.
func notUTF8(message any, err error) error {
	m, ok := message.(proto.Message)
	if !ok || status.Code(err) != codes.Internal {
		return err
	}
	var found []string
	_ = protorange.Range(m.ProtoReflect(), func(p protopath.Values) error { // the function gives no error
		if s, ok := p.Index(-1).Value.Interface().(string); ok && !utf8.ValidString(s) {
			// The path begins with the message's name in brackets.
			_, field, _ := strings.Cut(p.Path.String(), ").")
			found = append(found, field+": "+strconv.Quote(s)+" is not UTF-8")
		}
		return nil
	})
	if len(found) == 0 {
		return err
	}
	slices.Sort(found)
	return status.Errorf(codes.InvalidArgument, "policyd takes text in UTF-8: %s", strings.Join(found, "; "))
}
