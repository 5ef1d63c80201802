package systemd_test

// attachFiles are of the machine of TestAttach. Every service tries to read /srv/secret, which no policy grants, and
// leaves in /srv/out what came of it.
var attachFiles = map[string]string{
	"/srv/secret": "told\n",
	"/opt/probe": `#!/bin/sh
{ cat /srv/secret 2>&1; grep NoNewPrivs /proc/self/status; } >/srv/out/$1
`,
	"/opt/args": `#!/bin/sh
out=$1; shift
for a in "$0" "$@"; do printf '<%s>\n' "$a"; done >/srv/out/$out
`,
	"/opt/forking": `#!/bin/sh
/opt/probe forking
sleep 1000 &
echo $! >/run/forking.pid
`,
	"/opt/notify": `#!/bin/sh
/opt/probe notify
echo said by notify
systemd-notify --ready --status="pid $$"
exec sleep 1000
`,
	"/opt/socket": `#!/usr/bin/perl
use Socket;
open(my $listen, "+<&=", 3) or die;
accept(my $c, $listen) or die;
my $secret = open(my $s, "<", "/srv/secret") ? "read" : "$!";
my $mine = $ENV{LISTEN_PID} == $$ ? "mine" : "not mine";
syswrite($c, "$ENV{LISTEN_FDS} $mine $secret\n");
`,
	"/opt/client": `#!/usr/bin/perl
use Socket;
socket(my $s, AF_UNIX, SOCK_STREAM, 0) or die; connect($s, sockaddr_un("/run/sock")) or die $!;
print <$s>;
`,
	"/opt/dynamic": `#!/bin/sh
echo "$(id -u) $(cat $CREDENTIALS_DIRECTORY/key)" >$STATE_DIRECTORY/it && /opt/probe dynamic
exec sleep 1000
`,
	"/opt/private": `#!/bin/sh
echo x >/tmp/private; /opt/probe private
echo said by private
exec sleep 1000
`,
	"/srv/root/opt/inside": `#!/bin/sh
{ cat /secret 2>&1; echo "seen: $(echo /*)"; } >/out/$1
`,
	"/srv/root/secret":                    "told\n",
	"/srv/root/out/x":                     "",
	"/srv/root/usr/x":                     "",
	"/etc/systemd/system/forking.service": "[Service]\nType=forking\nPIDFile=/run/forking.pid\nExecStart=/opt/forking\n",
	"/etc/systemd/system/notify.service":  "[Service]\nType=notify\nNotifyAccess=all\nSyslogIdentifier=notified\nExecStart=/opt/notify\nExecReload=/opt/probe reload\n",
	"/etc/systemd/system/sock.socket":     "[Socket]\nListenStream=/run/sock\n",
	"/etc/systemd/system/sock.service":    "[Service]\nUser=nobody\nExecStart=/opt/socket\n",
	"/etc/systemd/system/dynamic.service": "[Service]\nDynamicUser=yes\nStateDirectory=dynamic\nSetCredential=key:opens\nProtectSystem=strict\nReadWritePaths=/srv/out\nExecStart=/opt/dynamic\n",
	"/etc/systemd/system/private.service": "[Service]\nPrivateTmp=yes\nTemporaryFileSystem=/var/lib/policyd-units\nExecStart=/opt/private\n",
	"/etc/systemd/system/root.service":    "[Service]\nType=oneshot\nRemainAfterExit=yes\nRootDirectory=/srv/root\nBindReadOnlyPaths=/usr\nExecStart=/opt/inside it\nExecStart=!/opt/inside plus\n",
	"/etc/systemd/system/inst@.service":   "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/opt/args inst-%i %I\n",
	"/etc/systemd/system/lines.service": `[Service]
Type=oneshot
RemainAfterExit=yes
Environment=WORDS="two words" EMPTY=
ExecStart=/opt/probe first
ExecStart=-/bin/false
ExecStart=@/bin/sh other-name -c 'echo $0 >/srv/out/second'
ExecStart=+/opt/probe third ; !/opt/probe fourth
ExecStart=/opt/args fifth "a b" 'c"d' $WORDS ${WORDS} $EMPTY $$x %% %n \x41\x20b \; e\
  "f \
 g" \"h
ExecStart=:/opt/args sixth $WORDS "${X}"
`,
	"/etc/systemd/system/lines.service.d/override.conf": "[Service]\nExecStart=/opt/args seventh\n",
	"/etc/systemd/system/other.service":                 "[Service]\nExecStart=/bin/sleep 1000\n",
	"/etc/systemd/system/bare.service":                  "[Service]\nType=oneshot\nExecStop=/bin/true\n",
	"/etc/systemd/system/broken.service":                "[Service]\nExecStart=/bin/sleep \"1000\nExecStart=/bin/sleep 1\n",
	"/etc/systemd/system/lost.service":                  "[Service]\nType=oneshot\nExecStart=/opt/probe lost\n",
	"/etc/systemd/system/labelled.service":              "[Service]\nType=oneshot\nStandardOutput=truncate:/srv/out/labelled\nStandardError=inherit\nExecStart=/bin/sh -c 'cat /proc/self/attr/current; cat /srv/secret; exit 0'\n",
	"/etc/systemd/system/alice.service": "[Service]\nType=notify\nUser=alice\nDelegate=yes\nEnvironment=HOME=/home/alice XDG_RUNTIME_DIR=/run/user/1000\n" +
		"ExecStartPre=+/bin/sh -c 'mkdir -p /run/user/1000; chown -R 1000:1000 /run/user/1000 /home/alice; chmod 700 /run/user/1000'\nExecStart=/usr/lib/systemd/systemd --user --unit=basic.target\n",
	"/home/alice/.config/systemd/user/mine.service": "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/opt/probe mine\n",
	"/opt/labelled.yaml": `apiVersion: policyd/v1
kind: LandlockPolicy
metadata: {name: labelled}
spec:
  abi: 3
  layers:
    - {name: box, paths: [{allow: [read, execute], at: [/usr, /bin, /lib, /lib64, /etc, /proc, /dev]}]}
  process: {smackLabel: Job}
`,
	"/etc/systemd/system-generators/gen": "#!/bin/sh\nprintf '[Service]\\nExecStart=/bin/true\\n' >$1/generated.service\n",
	"/opt/svc.yaml": `apiVersion: policyd/v1
kind: LandlockPolicy
metadata: {name: svc}
spec:
  abi: 3
  layers:
    - paths:
        - {allow: [read, execute], at: [/usr, /bin, /lib, /lib64, /opt, /etc, /proc, /dev, /sys]}
        - {allow: [read, write, create, remove], at: [/srv/out, /run, /tmp, /dev/null]}
        - {allow: [read, write, create, remove], at: [/var/lib], missing: skip}
`,
	"/opt/inside.yaml": `apiVersion: policyd/v1
kind: LandlockPolicy
metadata: {name: inside}
spec:
  abi: 3
  layers:
    - paths:
        - {allow: [read_dir], at: [/]}
        - {allow: [read, execute], at: [/usr, /opt]}
        - {allow: [read, write, create, remove], at: [/out]}
`,
	"/opt/tight.yaml": `apiVersion: policyd/v1
kind: LandlockPolicy
metadata: {name: tight}
spec:
  abi: 3
  layers:
    - {name: box, paths: [{allow: [read, execute], at: [/usr]}]}
`,
}
