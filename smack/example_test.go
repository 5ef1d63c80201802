package smack_test

import (
	"fmt"

	"policyd.dev/policyd/smack"
)

// A platform's rules under a ceiling that decides on reading, writing and locking,
// and leaves everything else alone.
func ExampleBuilder() {
	b := smack.NewBuilder("phone")
	platform := b.Layer("platform", smack.AllAccess)
	ceiling := b.Layer("ceiling", smack.Read|smack.Write|smack.Lock)
	if err := platform.Text("platform.rules", []byte("App Data rwx\nApp Log a\n")); err != nil {
		fmt.Println(err) // every error, each with file:line:column
	}
	if err := ceiling.Set(smack.Place{}, "App", "Data", smack.Read); err != nil {
		fmt.Println(err)
	}
	p, _, err := b.Build()
	if err != nil {
		fmt.Println(err)
	}
	for r := range p.Effective().All() {
		fmt.Print(string(r.Append(nil)))
	}
	fmt.Println(p.Decide(smack.Query{Subject: "App", Object: "Data", Access: smack.Write}, false))
	// Output:
	// App Data rx
	// App Log a
	// denied: the rule App Data rx lacks w; layer ceiling refuses w
}

func ExampleParseRules() {
	_, _, err := smack.ParseRules("app.rules", []byte("App Data waxbeans\nApp a/b r\n"))
	fmt.Println(err)
	// Output:
	// app.rules:1:14: access "waxbeans": 'e' (0x65) is not one of the letters rwxatlb or -; the kernel would stop there without an error and take "wxab"
	// app.rules:2:6: label "a/b": '/' (0x2f) cannot stand in a label; the kernel would cut it to "a" without an error
}
