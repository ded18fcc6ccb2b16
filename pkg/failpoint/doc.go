// Package failpoint names the places in the code of a turn at which the tests of
// crashes kill a process: `make chaos-state`.
//
// In every ordinary build [Reach] has no body: the compiler leaves nothing of a
// call, and there is nothing that could be turned on. Only a program that was
// built with the tag "failpoint", which no target of the Makefile but the one of
// the tests sets, stops at a point. It does so once it was sent the point's
// real-time signal, which takes the same user or root on the same machine; it
// reads no environment, no flag, no file and no network for it. A goroutine that
// reaches the point then stays there for good, and the process shows it to whoever
// may look at it by ignoring the signal from then on. The test does the killing.
package failpoint
