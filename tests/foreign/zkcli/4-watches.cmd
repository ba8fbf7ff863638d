# Watches: what fires, once or always, and in which order (the events stand at the end, in theirs).
create /w x
get -w /w
set /w 1
set /w 2
get -w /w
get -w /w
set /w 3
stat -w /w/new
create /w/new x
stat -w /w/new
delete /w/new
ls -w /w
create /w/c1 x
create /w/c2 x
ls -w /w
set /w 4
delete /w/c1
get -w /w/c2
ls -w /w/c2
delete /w/c2
ls -w /nope
get -w /nope
addWatch -m PERSISTENT /p
create /p x
set /p 1
set /p 2
create /p/c x
set /p/c 1
delete /p/c
delete /p
create /p again
removewatches /p -a
set /p silent
addWatch -m PERSISTENT_RECURSIVE /r
create /r x
create /r/1 x
create /r/1/2 x
set /r/1/2 y
delete /r/1/2
deleteall /r
create /r x
removewatches /r -a -l
removewatches /p -a
addWatch -m NONSENSE /x
create -e /w/e x
ls -w /w
delete /w/e
get -w /w
set /w quiet
get -w /w
set /w loud
getAcl /w
sync /w
