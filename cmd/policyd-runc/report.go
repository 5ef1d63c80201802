package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"
)

// report tells an error on stderr and, as the runtimes do and engines expect it
// (containerd shows the last error there), in the file that --log names.
func report(l *line, err error) {
	if err == nil {
		return
	}
	text := "policyd-runc: " + err.Error()
	fmt.Fprintln(os.Stderr, text)
	path := l.opts["log"]
	if path == "" {
		return
	}
	f, ferr := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if ferr != nil {
		fmt.Fprintln(os.Stderr, "policyd-runc:", ferr)
		return
	}
	defer f.Close()
	now := time.Now().UTC().Format(time.RFC3339)
	if l.opts["log-format"] == "json" {
		entry, _ := json.Marshal(map[string]string{"level": "error", "msg": text, "time": now}) // strings always have a form
		fmt.Fprintf(f, "%s\n", entry)
		return
	}
	fmt.Fprintf(f, "time=%s level=error msg=%s\n", strconv.Quote(now), strconv.Quote(text))
}
