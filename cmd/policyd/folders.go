package main

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// ownFolder makes a folder with the mode, or checks one that exists: another user who owned it or could write in it
// would own what policyd keeps there.
func ownFolder(dir string, mode fs.FileMode) error {
	if err := os.MkdirAll(dir, mode); err != nil {
		return fmt.Errorf("folder: %w", err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("folder: %w", err)
	}
	if owner := info.Sys().(*syscall.Stat_t).Uid; int(owner) != os.Geteuid() {
		return fmt.Errorf("folder %s belongs to uid %d, and policyd runs as uid %d", dir, owner, os.Geteuid())
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("others can write in folder %s (mode %04o); chmod go-w it", dir, info.Mode().Perm())
	}
	return nil
}
