#!/bin/sh /etc/rc.common
# zoolet unit procd > /etc/init.d/zoolet; chmod +x /etc/init.d/zoolet; /etc/init.d/zoolet enable
# Add the user zoolet to /etc/passwd and /etc/group. It must own the site key and all files in
# @DATA@.

USE_PROCD=1
START=95
STOP=10

start_service() {
	procd_open_instance
	procd_set_param command @BINARY@ serve --keep-trying --config @CONFIG@
	# The server itself retries a failed start. If the process ends, procd restarts it after 5 s,
	# without a limit.
	procd_set_param respawn 3600 5 0
	procd_set_param file @CONFIG@
	# A core dump would contain znodes and session secrets.
	procd_set_param limits core="0 0" nofile="16384 16384"
	procd_set_param user zoolet
	procd_set_param group zoolet
	procd_set_param no_new_privs 1
	# Without ujail the server runs outside a jail. A jail sees only disks that were mounted before;
	# see service_triggers.
	procd_add_jail zoolet log procfs sysfs
	procd_add_jail_mount @CONFIG@ /etc/zoolet /etc/hosts /etc/resolv.conf /tmp/resolv.conf /etc/TZ
	procd_add_jail_mount_rw @DATA@ @IMAGES@
	procd_set_param stdout 1
	procd_set_param stderr 1
	# Time to hand over and close sessions.
	procd_set_param term_timeout 10
	# procd does not wait for the end of the process. A script that must wait reads its id here.
	procd_set_param pidfile /var/run/zoolet.pid
	procd_close_instance
}

service_triggers() {
	# Releases before 21.02 lack this trigger.
	! type procd_add_restart_mount_trigger > /dev/null 2>&1 || procd_add_restart_mount_trigger @DATA@
}

reload_service() {
	stop
	start
}
