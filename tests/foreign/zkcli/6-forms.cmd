# Words, options, usage lines, the forms of ZooKeeper 3.4, and the commands about the client itself.
create /f 'two words'
get /f
set /f "it's"
get /f
set /f ""
get /f
create /f -5
set /f -- -5
get /f
set -q /f x
get -sq /f
set /f y -v
get /f -s
set /f y -sv 99
create
create /f/data x world:anyone:cdrwa more
get
set
set /f
delete
stat
ls
getAcl
setAcl
setAcl /f
addauth
sync
deleteall
deleteall /f -b x
listquota
reconfig
reconfig -add 1 -members 2
reconfig -file /no/such/file -members 2
reconfig -v x -remove 3
removewatches
addWatch
addWatch -m OTHER /f
setquota /f
setquota -n x /f
setquota -n 0 /f
setquota -N 0 /f
setquota -b -1 /f
setquota -n 1 -b 2 /f
setquota -n 1
setquota -n 1 /zookeeper/quota/f
setquota -n 1 /nope
setquota -n 1 /
setAcl /f a,b
create -t x /ttl y
create -t 0 /ttl y
create -t 1099511627776 /ttl y
create -t 5 -e /ttl y
create -t 5 -c /ttl y
ls -? /f
ls -?
ls /f true
get /f true
stat /f watch
set /f 1 77
set /f 2 0
delete /f/data 77
create /f/data x
delete /f/data 0
ls2 /f
rmr /f
get -s /f
get -w /f
create /g x
setAcl /g world:anyone:q
getAcl /g
delete /g
LS /
# no command
printwatches
printwatches off
printwatches
history
redo 9999
redo 153
redo 157
redo 145
redo
history
version
help quit
connect
ls /nowhere
close
ls /
printwatches
