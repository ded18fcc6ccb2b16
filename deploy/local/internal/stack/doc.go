// Package stack starts everything that Cofferdam is on one machine and keeps it
// running: an authority for identities, an OpenFGA server, and each service as a
// process of its own, all on loopback.
//
// The listeners of the services are opened here and inherited by them, so that a
// service that is started again keeps its ports, and connections wait for it
// instead of failing. The services start with an empty environment; secrets reach
// them as paths of files.
//
// Nothing outlives the process that calls [Run], however it ends: the kernel ends
// its children with it, and each service sees to its own in the same way.
package stack
