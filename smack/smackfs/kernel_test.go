package smackfs

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"policyd.dev/policyd/internal/testkernel"
)

// kernelIs says which kernel this is, for the model.
func kernelIs(t *testing.T) ModelKernel {
	t.Helper()
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		t.Fatal(err)
	}
	old := unix.ByteSliceToString(uts.Release[:])[:2] == "6."
	return ModelKernel{Old: old, Bringup: !old}
}

func TestKernel(t *testing.T) {
	testkernel.Each(t, testkernel.Smack, func(t *testing.T) {
		testkernel.RequireRoot(t)
		runtime.LockOSThread()
		kernel := Dir("/sys/fs/smackfs")
		model := NewModel(kernelIs(t)).As(Root)
		t.Run("side by side", func(t *testing.T) {
			runtime.LockOSThread()
			if d := diffShown(model, kernel); d != "" {
				t.Fatalf("after boot: %s", d)
			}
			testSideBySide(t, model, kernel, 1, 2500)
		})
		t.Run("load", func(t *testing.T) { loadTests(t, kernel) })
	})
}
