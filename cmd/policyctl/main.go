// Command policyctl is the tool of those who write policies and start programs
// under them. Each command is one file; what they share is in internal/cli.
//
// It talks to policyd over its unix socket. validate, fmt, exec -f, compile -f,
// check -f, inspect and schema need no daemon; restore and db compact work on
// the store's file while no daemon has it open.
package main

import (
	"os"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
