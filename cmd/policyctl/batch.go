package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"policyd.dev/policyd/internal/cli"
	"policyd.dev/policyd/internal/cli/decide"
)

// maxBatchLine bounds a line of a batch, bytes: two paths and their quotes.
const maxBatchLine = 64 << 10

// runBatch answers one line after the other, each as soon as it is there.
func runBatch(dec *decide.Decider, from io.Reader, to io.Writer, asJSON bool) (unanswered, denied int, err error) {
	in, out := bufio.NewReaderSize(from, maxBatchLine), bufio.NewWriterSize(to, maxBatchLine)
	for n := 1; ; n++ {
		line, readErr := batchLine(in)
		if readErr == io.EOF && line == "" {
			return unanswered, denied, out.Flush()
		}
		var v *decide.Answer
		var q decide.Question
		bad := readErr
		if bad == nil || bad == io.EOF {
			if q, bad = decide.ParseLine(line); bad == nil {
				v, bad = dec.Answer(q)
			}
		} else if !errors.Is(bad, decide.ErrQuestion) {
			return unanswered, denied, errors.Join(bad, out.Flush())
		}
		switch {
		case bad == nil:
			if !v.Allowed() {
				denied++
			}
			err = writeBatchAnswer(out, n, v, asJSON)
		case !errors.Is(bad, decide.ErrNoQuestion):
			unanswered++
			err = writeBatchError(out, n, bad, asJSON)
		}
		// Whoever waits for this answer before the next question gets it.
		if err == nil && in.Buffered() == 0 {
			err = out.Flush()
		}
		if err != nil {
			return unanswered, denied, err
		}
	}
}

// batchLine reads a line. One that is too long is a question that cannot be
// read; the rest of it is skipped.
func batchLine(in *bufio.Reader) (string, error) {
	b, err := in.ReadSlice('\n')
	if err != bufio.ErrBufferFull {
		return string(b), err
	}
	for err == bufio.ErrBufferFull {
		_, err = in.ReadSlice('\n')
	}
	if err != nil && err != io.EOF {
		return "", err
	}
	return "", fmt.Errorf("%w: a line of more than %d bytes", decide.ErrQuestion, maxBatchLine)
}

type batchAnswer struct {
	Line int `json:"line"`
	*decide.Answer
}

type batchError struct {
	Line  int    `json:"line"`
	Error string `json:"error"`
}

func writeBatchAnswer(out *bufio.Writer, n int, v *decide.Answer, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(out).Encode(batchAnswer{n, v})
	}
	errno := v.Errno
	if errno == "" {
		errno = "-"
	}
	layers := make([]string, len(v.Layers))
	for i, l := range v.Layers {
		layers[i] = strings.TrimSuffix(l.Name+":"+strings.Join(l.Missing, ","), ":")
	}
	if len(layers) == 0 {
		layers = append(layers, "-")
	}
	_, err := fmt.Fprintf(out, "%d: %s %s %s %s\n", n, v.Verdict, errno, strings.Join(layers, ";"), cli.Clean(v.Operation))
	return err
}

func writeBatchError(out *bufio.Writer, n int, bad error, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(out).Encode(batchError{n, bad.Error()})
	}
	_, err := fmt.Fprintf(out, "%d: error %s\n", n, cli.Clean(bad.Error()))
	return err
}
