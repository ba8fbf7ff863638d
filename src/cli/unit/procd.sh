#!/bin/sh /etc/rc.common
# zoolet unit procd > /etc/init.d/zoolet; chmod +x /etc/init.d/zoolet; /etc/init.d/zoolet enable
# The user zoolet must be in /etc/passwd and /etc/group; the site key and what is in @DATA@ must be its own.

USE_PROCD=1
START=95
STOP=10

start_service() {
	procd_open_instance
	procd_set_param command @BINARY@ serve --keep-trying --config @CONFIG@
	# What hinders its start it waits for itself. Whatever ends it, it is started again 5 s later, for ever.
	procd_set_param respawn 3600 5 0
	procd_set_param file @CONFIG@
	# A core has the znodes and the secrets of the sessions in it.
	procd_set_param limits core="0 0" nofile="16384 16384"
	procd_set_param user zoolet
	procd_set_param group zoolet
	procd_set_param no_new_privs 1
	# Where there is no ujail, it runs without. In a jail it sees a disk only if that is mounted before: see service_triggers.
	procd_add_jail zoolet log procfs sysfs
	procd_add_jail_mount @CONFIG@ /etc/zoolet /etc/hosts /etc/resolv.conf /tmp/resolv.conf /etc/TZ
	procd_add_jail_mount_rw @DATA@ @IMAGES@
	procd_set_param stdout 1
	procd_set_param stderr 1
	# It hands over and closes its sessions first.
	procd_set_param term_timeout 10
	# procd only tells it to end; whoever has to know when it has, finds here whom to wait for.
	procd_set_param pidfile /var/run/zoolet.pid
	procd_close_instance
}

service_triggers() {
	# Releases before 21.02 have none of these.
	! type procd_add_restart_mount_trigger > /dev/null 2>&1 || procd_add_restart_mount_trigger @DATA@
}

reload_service() {
	stop
	start
}
