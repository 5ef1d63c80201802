// Package testkernel runs tests on real kernels, as ordinary processes of any user.
//
// A test that needs Landlock or Smack wraps its body in [Each]. The body runs on the host when the host's kernel has the
// feature, and in user-mode-linux guests that have it:
//
//	uml-6.1   Debian 12's package: Smack without Landlock
//	uml-7.3   built by test/kernels/build.sh (`make kernels`): Landlock ABI 11 and Smack together, audit
//
// A guest's root is the host's root, read-only, with tmpfs over the places tests write to. Its init is the running test
// binary itself: this package's init function acts only as process 1 with the harness's job in the environment, sets
// the guest up, runs the test binary again for the one subtest, and powers off. The subtest's output and result become
// those of the host's subtest; a guest that gives no result is a failure.
//
// A [System] is another kind of guest, for tests of boots and units: its process 1 is the distribution's systemd, it can be
// booted again with what it has stored, and the test gives it files, units and a script.
//
// Only tests import this package. It may import the standard library and golang.org/x/sys/unix.
package testkernel
