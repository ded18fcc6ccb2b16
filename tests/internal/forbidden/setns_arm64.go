package forbidden

// sysSetns is the number of setns(2), which package syscall does not have.
const sysSetns = 268
