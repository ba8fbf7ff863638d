# Access control: one identity added on the way, so the same znode is seen from outside and from inside.
getAcl /
create /open x
getAcl /open
getAcl -s /open
setAcl /open nonsense
setAcl /open nosuch:x:r
setAcl /open digest:alice:r
setAcl /open world:nobody:r
setAcl /open ip:300.1.1.1:r
setAcl /open ip:127.0.0.1/99:r
setAcl /open auth::cdrwa
setAcl /nope world:anyone:r
setAcl -v 5 /open world:anyone:r
setAcl -s /open world:anyone:r,ip:127.0.0.1/32:cdrwa
getAcl /open
setAcl -v 1 /open world:anyone:cdrwa,world:anyone:cdrwa
getAcl /open
create /sealed secret digest:alice:TLHKZ+RGoKfcaJEWcGnFhXZmAyk=:cdrwa
getAcl /sealed
get /sealed
set /sealed x
ls /sealed
getAllChildrenNumber /sealed
create /sealed/child x
setAcl /sealed world:anyone:cdrwa
create /refused x digest:alice:r
create /refused x nosuch:x:r
create /refused x nonsense
addauth digest alice:wonderland
whoami
create /mine secret auth::cdrwa
getAcl /mine
get /mine
create /mine/child x auth:ignored:r
getAcl /mine/child
set /mine/child y
addauth digest bob:builder
whoami
setAcl /mine auth::rwa
create /mine/second x
delete /mine/child
setAcl /mine auth::cdrwa
delete /mine/child
create /reader x world:anyone:r
get /reader
set /reader y
setAcl /reader world:anyone:cdrwa
delete /reader
create /list x
create /list/1 x
setAcl -R /list world:anyone:cdr
getAcl /list/1
set /list/1 y
ls -R /list
deleteall /list
ls /
