//go:build race

package testkernel

// raceDetector: the detector's shadow memory does not fit the 512 GiB address space of a uml-6.1 process.
const raceDetector = true
