# The tree: every create mode zkCli knows but TTL, reads, versions, and the exact text of every error.
ls /
ls /zookeeper
create /a
get /a
get -s /a
create /a
create /nope/x
create a
create /a//b
create /a/
create /a/. x
create /a/empty ""
get /a/empty
create /a/data hello
get -s /a/data
set /a/data again
set -s -v 1 /a/data third
set -v 1 /a/data fourth
set /nope x
get /nope
get /a/
create -s /a/s- one
create -s /a/s- two
create -s -e /a/e- three
create -e /a/eph four
create /a/eph/child x
stat /a/eph
create -c /a/container
create -c /a/container/x
create -e -c /a/bad
stat /a
ls /a
ls -s /a/container
ls -R /a
ls /nope
ls -R /nope
getAllChildrenNumber /a
getAllChildrenNumber /nope
getEphemerals /a
getEphemerals /nope
getEphemerals
stat /nope
sync /
sync /nope
delete /a
delete -v 9 /a/data
delete -v 2 /a/data
delete /a/data
delete /
create /
delete /a/s-0000000000
create -s /a/s- after-delete
set / root
get -s /a/s-0000000003
create -s /a/
create /deep
create /deep/1
create /deep/1/2
create /deep/1/2/3 leaf
ls -R /deep
ls -sR /deep
deleteall /deep
ls -R /deep
deleteall /nope
listquota /a
listquota /nope
delquota /a
config
config -c
config -s
get /zookeeper/config
stat /zookeeper
delete /zookeeper
delete /zookeeper/config
reconfig -remove 3
removewatches /a
whoami
set /a ünïcödé
get /a
create /ünïcödé x
ls /
delete /ünïcödé
