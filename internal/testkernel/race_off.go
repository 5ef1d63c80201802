//go:build !race

package testkernel

const raceDetector = false
