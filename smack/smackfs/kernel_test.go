package smackfs

import (
	"errors"
	"runtime"
	"strings"
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
		if !strings.HasPrefix(t.Name(), "TestKernel/uml-") {
			t.Skip("of guests only: a machine's own Smack is not to be played with")
		}
		runtime.LockOSThread()
		kernel := Dir("/sys/fs/smackfs")
		model := NewModel(kernelIs(t)).As(Root)
		t.Run("side by side", func(t *testing.T) {
			runtime.LockOSThread()
			if d := diffShown(model, kernel); d != "" {
				t.Fatalf("after boot: %s", d)
			}
			testSideBySide(t, model, kernel, 1, operations(t))
		})
		t.Run("observed", func(t *testing.T) {
			runtime.LockOSThread()
			restored(t, kernel)
			testObserved(t, kernel, kernelIs(t))
			testObservedQuestions(t, kernel)
		})
		t.Run("settings", func(t *testing.T) {
			runtime.LockOSThread()
			testSettings(t, kernel, kernelIs(t))
			restored(t, kernel)
		})
		t.Run("file modes", func(t *testing.T) { testFiles(t, kernelIs(t)) })
		t.Run("privilege", func(t *testing.T) { testPrivilege(t, kernel, kernelIs(t)) })
		t.Run("files", testFileLabels)
		t.Run("processes", testProcessLabels)
		t.Run("ask", func(t *testing.T) { testAsk(t, kernel, kernelIs(t), queries(t)) })
		t.Run("killed child", func(t *testing.T) { testKilledChild(t, kernel) })
		t.Run("window", func(t *testing.T) { testWindow(t, kernel, 20) })
		t.Run("load", func(t *testing.T) { loadTests(t, kernel) })
		t.Run("memory", func(t *testing.T) {
			memoryTests(t, kernel, otherProcess)
			testMemoryPrivilege(t)
		})
		t.Run("hostile", func(t *testing.T) { hostileTests(t, kernel) })
		t.Run("mounts", testMounts)
		t.Run("covered", testCovered)
		t.Run("hostile settings", func(t *testing.T) { testSettingsHostile(t, kernel) })
		t.Run("writers", func(t *testing.T) { testWriters(t, kernel) })
	})
}

// restored brings every value back to what it is after boot.
func restored(t *testing.T, fs FS) {
	t.Helper()
	for file, v := range map[string]string{
		fileDoi: "3", fileDirect: "250", fileMapped: "251", fileAmbient: "_", fileSyslog: "*", fileOnlycap: "-",
		fileLogging: "1", filePtrace: "0", fileUnconf: "-",
	} {
		if err := writeFile(fs, file, []byte(v)); err != nil && !errors.Is(err, unix.ENOENT) {
			t.Fatal(err)
		}
	}
}
