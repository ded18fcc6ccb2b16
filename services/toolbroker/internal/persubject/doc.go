// Package persubject keeps, for one server, the token and the session of each
// subject for whom it is called.
//
// What is one subject's is never another's: a session is negotiated with the token
// of its subject and handed to callers for that subject alone. Both are bounded. A
// session that nobody has used for a while is closed, and where there are too many
// the one that was not used for longest gives way; one that is in use never does.
package persubject
