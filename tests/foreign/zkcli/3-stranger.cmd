# A second session without alice's identity, after 2-acl.
ls /
get /mine
set /mine x
getAcl /mine
setAcl /mine world:anyone:cdrwa
create /mine/x y
delete /mine
addauth digest alice:wrong
get /mine
addauth digest alice:wonderland
get /mine
delete /mine
ls /
