package journal

import (
	"fmt"
	"strings"
)

// Event is a line of the log that has an entry in the journal's catalog.
type Event struct {
	// ID is its MESSAGE_ID: 32 hexadecimal digits that never change (sd-id128(3)).
	ID string
	// Message is what policyd logs: it names the event where it happens.
	Message string
	// Subject is the entry's headline; @FIELD@ is a field of the line.
	Subject string
	// Help says what it means and what to do, in lines as they are shown.
	Help string
}

// Events is every event with an entry. To change a Message means to change it where it is logged.
var Events = []Event{
	{
		"013a19942e8f4fb6b2ef22cda8be8df9", "policyd serves",
		"policyd is there",
		"policyd @POLICYD_RELEASE@ answers. Descendants of sandboxes are ended by means of: @POLICYD_CONTAINMENT@.",
	},
	{
		"6387bcc6901743aeb66b66f0749c904b", "configuration was read again",
		"The configuration of policyd was read again",
		"What has changed in @POLICYD_FILE@ is in effect, but for keys that a warning names.",
	},
	{
		"582b1a4b58d54d22a67b1817668f95b4", "configuration was not read again; nothing is changed",
		"The new configuration of policyd has a mistake",
		`policyd goes on with the configuration it has:

@POLICYD_ERROR@

Mend the file and reload policyd again: systemctl reload policyd
With the file as it is policyd would not start.`,
	},
	{
		"cc60751f79df4f288b6087fe54f4fd30", "change takes effect at the next start",
		"A change of @POLICYD_KEY@ waits for a restart of policyd",
		`This key is read when policyd starts. Sandboxes that run detached outlive a restart:
systemctl restart policyd`,
	},
	{
		"a0ed69a893b844358816773c3b0aa8e0", "smack policy is in force",
		"The Smack policy @POLICY@ is in force",
		"Version @VERSION@ is in the kernel. policyctl smack status compares the two.",
	},
	{
		"57bf993e426445bca839d9fbaaa04461", "the assigned smack policy is not in force: no sandbox with a label is started",
		"The Smack policy of this host is not in force",
		`policyd is not ready, and starts no program with a Smack label. The reason:

@POLICYD_ERROR@

policyctl smack status says what stands in the way. To do without: policyctl smack unload`,
	},
	{
		"81354d519fd44b4c856c633d5fdfccf5", "the smack policy of this host could not be loaded at boot",
		"The Smack policy of this host could not be loaded at boot",
		`The boot went on, with the rules that systemd itself has loaded. Units that require policyd-smack.service
were not started. The reason:

@POLICYD_ERROR@

policyd tries it again when it starts. To do without: policyctl smack unload`,
	},
	{
		"2e492e10a85544d7b610c57e573f6800", "landlock cannot be used: no policy that requires it can be started",
		"This kernel has no Landlock",
		`Policies can be stored, but no program can be started under one. The reason:

@POLICYD_ERROR@

Landlock must be built into the kernel and be in its list of security modules (lsm= on its command line).`,
	},
	{
		"a2d39810ea2742f1b9d0ea87d03f675a", "records of sandboxes could not be stored, no sandbox is started until they can",
		"The store of policyd cannot be written",
		`Sandboxes that run go on, and nothing that was acknowledged is lost; what has happened since is in the journal of
sandboxes. No new sandbox is started. The reason:

@POLICYD_ERROR@

When the disk is full, free space: nothing needs a restart.`,
	},
	{
		"d6b3c28ba44144ee8179341db934ba79", "stored policy does not compile and cannot be started",
		"The stored policy @POLICY@ does not compile",
		"It cannot be started: @POLICYD_ERROR@\n\nNo other policy is concerned. Apply a version that compiles.",
	},
	{
		"d1220f9a50b14581a2223e4f3f9204e3", "policyd does not work; the service manager is not told otherwise",
		"policyd is stuck",
		`A change would not go through its store, or its own socket does not answer: @POLICYD_ERROR@

Unless that ends soon the service manager ends policyd and starts it again. Sandboxes that run detached go on.`,
	},
	{
		"533a7bb76cbc483c82c946a80e5df382", "rules that policyd had loaded were changed by somebody else and are put back",
		"Smack rules of policyd were changed by somebody else",
		"@POLICYD_RULES@ rules in the kernel were not as policyd had loaded them. They are again as the policy says.",
	},
	{
		"9f63a4d3bcc44086a89ec673f72806f2", "handler panicked",
		"A call has failed for a mistake in policyd",
		"The call @REQUEST_ID@ (@METHOD@) was refused; others go on. Please report it with this line of the journal.",
	},
	{
		"f9e8e737b5fe4d4c81b13c5d5ac86a09", "group of no known sandbox is ended",
		"Processes that belong to no known sandbox were ended",
		"policyd found the control group @SANDBOX@ among its own, and no record of such a sandbox.",
	},
}

// MessageID gives the MESSAGE_ID of a line of the log; "" when it has no entry.
func MessageID(message string) string {
	for i := range Events {
		if Events[i].Message == message {
			return Events[i].ID
		}
	}
	return ""
}

// Catalog is the file of /usr/lib/systemd/catalog with all entries.
func Catalog() string {
	var b strings.Builder
	b.WriteString("# Made from internal/journal: go test ./internal/journal -update\n")
	for _, e := range Events {
		fmt.Fprintf(&b, "\n-- %s\nSubject: %s\nDefined-By: policyd\nDocumentation: man:policyd(8)\n\n%s\n", e.ID, e.Subject, e.Help)
	}
	return b.String()
}
