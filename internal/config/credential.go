package config

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// credentialPrefix starts a value that names a credential of the service manager instead of a file.
const credentialPrefix = "credential:"

// CredentialsEnv names the folder of the credentials (systemd.exec(5), LoadCredential=).
const CredentialsEnv = "CREDENTIALS_DIRECTORY"

// checkFile says what is wrong with the name of a file that holds a secret or a certificate.
func checkFile(value string) error {
	name, ok := strings.CutPrefix(value, credentialPrefix)
	switch {
	case !ok && !filepath.IsAbs(value):
		return fmt.Errorf("%q is not an absolute path, nor credential:NAME", value)
	case ok && (name == "" || name == "." || name == ".." || len(name) > 255 || strings.ContainsAny(name, "/\x00")):
		return fmt.Errorf("%q is not the name of a credential", name)
	}
	return nil
}

// File gives the path of a file that the configuration names: an absolute path as it is, and of credential:NAME the file
// that the service manager has put there for this service. The error says what the unit lacks.
func File(value string) (string, error) {
	if err := checkFile(value); err != nil {
		return "", err
	}
	name, ok := strings.CutPrefix(value, credentialPrefix)
	if !ok {
		return value, nil
	}
	dir := os.Getenv(CredentialsEnv)
	if dir == "" {
		return "", fmt.Errorf("%s: the service manager gave no credentials; the unit needs LoadCredential=%s:/PATH", value, name)
	}
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%s: the service manager gave no credential of that name; the unit needs LoadCredential=%s:/PATH: %w", value, name, err)
	}
	return path, nil
}
