package testkernel

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Feature is a set of kernel features a test needs.
type Feature uint8

const (
	// Landlock is the Landlock LSM, of any ABI.
	Landlock Feature = 1 << iota
	// Smack is the Smack LSM with its smackfs.
	Smack
)

func (f Feature) String() string {
	var names []string
	if f&Landlock != 0 {
		names = append(names, "Landlock")
	}
	if f&Smack != 0 {
		names = append(names, "Smack")
	}
	return strings.Join(names, " and ")
}

// The guests' names, as subtests and as directories of the cache.
const (
	UML61 = "uml-6.1"
	UML73 = "uml-7.3"
)

// kernel is a user-mode-linux kernel the cache may hold.
type kernel struct {
	name string
	has  Feature
	args []string // what its command line needs besides what every guest gets
	race bool     // binaries built with the race detector run in it
}

var kernels = []kernel{
	{name: UML61, has: Smack, args: []string{"security=smack"}},
	{name: UML73, has: Landlock | Smack, race: true},
}

// ErrNoKernel is returned by [Guest.Run] when the cache does not hold the kernel asked for.
var ErrNoKernel = errors.New("kernel is not in the cache: make kernels")

func kernelByName(name string) (kernel, bool) {
	for _, k := range kernels {
		if k.name == name {
			return k, true
		}
	}
	return kernel{}, false
}

// CacheDir returns the folder test/kernels/build.sh leaves kernels in: $POLICYD_KERNEL_CACHE, or policyd/kernels under
// the user's cache folder.
func CacheDir() (string, error) {
	if dir := os.Getenv("POLICYD_KERNEL_CACHE"); dir != "" {
		return dir, nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the kernel cache: %w", err)
	}
	return filepath.Join(dir, "policyd", "kernels"), nil
}

// Sandboxer returns the path of the kernel's sample Landlock launcher, built from the same source as uml-7.3.
// The error wraps [ErrNoKernel] when it is not built.
func Sandboxer() (string, error) { return cached(UML73, "sandboxer") }

func cached(kernel, file string) (string, error) {
	dir, err := CacheDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, kernel, file)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%s/%s: %w (%w)", kernel, file, ErrNoKernel, err)
	}
	return path, nil
}
