package smack

// Settings are everything in smackfs that is not a rule.
type Settings struct {
	Unconfined string
}
