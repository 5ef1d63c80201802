package kv

import "testing"

func TestWatchFixed(t *testing.T) {
	for version, want := range map[string]bool{
		"3.4.23": false, "3.5.99": false, "3.6.13": false, "3.6.14": true, "3.6.14-rc.0": false, "3.6.15-rc.0": true, "3.7.0": false, "3.7.1": true, "3.7.1-rc.1": false,
		"3.7.3": true, "3.8.0": true, "3.8.0-alpha.0": true, "4.0.0": true, "2.3.8": false, "": false, "3.7": false, "x.y.z": false, "3.-7.9": false,
	} {
		if got := watchFixed(version); got != want {
			t.Errorf("%s: %t, want %t", version, got, want)
		}
	}
}
