// Package supervise keeps a child process running.
//
// A child that ends is started again, after a pause that doubles with each end in
// a row and begins anew once the child has lived for a while. The files of its
// Spec stay open between two lives: a child whose listeners are among them keeps
// its ports, and connections wait in the kernel until the next life accepts them.
//
// The first life is another matter: a child that ends before it was ready has a
// reason that another start would not change, and Start says so at once.
package supervise
