package main

import "golang.org/x/sys/unix"

func number(r *unix.PtraceRegs) uint64 { return r.Orig_rax }
