# Times to live, quotas, and the requests about members that a server without reconfiguration refuses.
create -t 60000 /ttl x
get -s /ttl
create -s -t 60000 /ttl/of- x
create /q x
create /q/a hello
setquota -n 5 /q
listquota /q
setquota -N 9 /q
setquota -b 1 /q
setquota -B 1000 /q
listquota /q
create /q/b world
listquota /q
setquota -n 1 /q
setquota -n 7 /q/a
create /p x
create /p/c x
setquota -b 100 /p/c
setquota -b 100 /p
ls /zookeeper/quota
delquota -b /q
listquota /q
delquota -n /q
delquota /q
listquota /q
delquota /q
ls /zookeeper/quota
delquota /p/c
ls -R /zookeeper
config
config -c
reconfig -remove 3
reconfig -add server.2=127.0.0.1:1:2:participant;3
addauth digest super:test
# The last commands of all sessions. deleteall lists all znodes first, and may not list this one.
delete /sealed
create /deleted x
deleteall /
get /deleted
