#!/bin/sh /etc/rc.common
# zoolet unit procd > /etc/init.d/zoolet; chmod +x /etc/init.d/zoolet; /etc/init.d/zoolet enable

USE_PROCD=1
START=95
STOP=10

start_service() {
	procd_open_instance
	procd_set_param command @BINARY@ serve --keep-trying --config @CONFIG@
	# What hinders its start it waits for itself. Whatever ends it, it is started again 5 s later, for ever.
	procd_set_param respawn 3600 5 0
	procd_set_param file @CONFIG@
	procd_set_param limits nofile="16384 16384"
	procd_set_param stdout 1
	procd_set_param stderr 1
	# It hands over and closes its sessions first.
	procd_set_param term_timeout 10
	# procd only tells it to end; whoever has to know when it has, finds here whom to wait for.
	procd_set_param pidfile /var/run/zoolet.pid
	procd_close_instance
}

reload_service() {
	stop
	start
}
