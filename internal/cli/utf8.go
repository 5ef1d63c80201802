package cli

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// flagsOf are how fields of requests are given on the command line, where their own names do not say it.
var flagsOf = map[protoreflect.Name]string{
	"parameters": "--set", "directory": "--dir", "user": "--user", "group": "--group", "message": "--message",
	"request_id": "--request-id", "labels": "-l", "ref": "reference", "id": "sandbox",
}

// notUTF8 says which texts of a message that could not be encoded are at fault:
// protobuf's strings are UTF-8, while arguments, paths and environments of a
// kernel are any bytes. That is an error of usage; any other it gives back.
func notUTF8(message any, err error) error {
	m, ok := message.(proto.Message)
	if !ok || status.Code(err) != codes.Internal {
		return err
	}
	var found []string
	_ = protorange.Range(m.ProtoReflect(), func(p protopath.Values) error { // the function gives no error
		s, ok := p.Index(-1).Value.Interface().(string)
		if step := p.Index(-1).Step; ok && step.Kind() == protopath.MapIndexStep {
			s = step.MapIndex().String() + "=" + s
		}
		if ok && !utf8.ValidString(s) {
			found = append(found, fmt.Sprintf("%s: %q is not UTF-8", onCommandLine(p.Path, s), s))
		}
		return nil
	})
	if len(found) == 0 {
		return err
	}
	slices.Sort(found)
	return Usage(fmt.Errorf("policyd takes text in UTF-8: %s", strings.Join(found, "; ")))
}

// onCommandLine names the place a text of a request came from.
func onCommandLine(path protopath.Path, text string) string {
	step, n := path.Index(-1), 0
	switch step.Kind() {
	case protopath.ListIndexStep:
		n = step.ListIndex()
		step = path.Index(-2)
	case protopath.MapIndexStep:
		step = path.Index(-2)
	}
	field := step.FieldDescriptor()
	switch name, _, _ := strings.Cut(text, "="); {
	case field.Name() == "argv" && n == 0:
		return "program"
	case field.Name() == "argv":
		return fmt.Sprintf("argument %d of the program", n)
	case field.Name() == "environment" && utf8.ValidString(name):
		return "environment variable " + name + " (--env)"
	case field.Name() == "environment":
		return "--env"
	case field.Parent().Name() == "SourceFile":
		return "name of a file"
	}
	if flag, ok := flagsOf[field.Name()]; ok {
		return flag
	}
	return string(field.Name())
}
