//go:build !race

package smack

const raceEnabled = false
