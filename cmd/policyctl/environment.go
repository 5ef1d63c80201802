package main

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"

	"policyd.dev/policyd/internal/cli"
)

// Search paths of a login, as login.defs(5) has them.
const (
	rootPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	userPath = "/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games"
)

// runEnvironment makes the environment of run: see its help. asUser is --user,
// "" for the caller.
func runEnvironment(asUser string, tty bool, flags []string) ([]string, error) {
	var env []string
	set := func(name, value string) {
		for i, e := range env {
			if strings.HasPrefix(e, name+"=") {
				env[i] = name + "=" + value
				return
			}
		}
		env = append(env, name+"="+value)
	}
	u, err := lookupUser(asUser)
	if err != nil {
		// policyd knows whether there is such a user; it says so if not.
		u = &user.User{Uid: asUser, HomeDir: "/"}
	}
	path := userPath
	if u.Uid == "0" {
		path = rootPath
	}
	set("PATH", path)
	set("HOME", u.HomeDir)
	if u.Username != "" {
		set("USER", u.Username)
		set("LOGNAME", u.Username)
	}
	set("SHELL", "/bin/sh")
	for _, e := range os.Environ() {
		name, value, _ := strings.Cut(e, "=")
		if name == "LANG" || name == "TZ" || strings.HasPrefix(name, "LC_") || tty && name == "TERM" {
			set(name, value)
		}
	}
	for _, f := range flags {
		name, value, has := strings.Cut(f, "=")
		if name == "" || strings.Contains(f, "\x00") {
			return nil, cli.Usage(fmt.Errorf("--env %q: want NAME=VALUE or NAME", f))
		}
		if !has {
			if value, has = os.LookupEnv(name); !has {
				continue // as docker: not set here, not set there
			}
		}
		set(name, value)
	}
	return env, nil
}

func lookupUser(name string) (*user.User, error) {
	if name == "" {
		return user.LookupId(strconv.Itoa(os.Geteuid()))
	}
	if _, err := strconv.ParseUint(name, 10, 32); err == nil {
		return user.LookupId(name)
	}
	return user.Lookup(name)
}
