package testkernel

import (
	"testing"
)

func TestSmoke(t *testing.T) {
	Each(t, Landlock, func(t *testing.T) {
		v, err := ABI()
		t.Log(v, err)
	})
}
func TestSmoke2(t *testing.T) {
	Each(t, Smack, func(t *testing.T) {
		v, err := ABI()
		t.Log(v, err)
	})
}
