// Package workloadapi is a SPIFFE Workload API for one machine, with an authority of its own.
//
// In production SPIRE gives every process its identity. Here the process that starts all others does, over the same API,
// so that the code which uses it is the same: go-spiffe cannot tell the difference. It serves X.509-SVIDs, JWT-SVIDs and
// bundles; the experimental WIT-SVIDs are answered with Unimplemented.
//
// # Who is who
//
// Each identity has a Unix socket of its own, and whoever can connect to a socket is that identity: a process is given
// its identity by being given the path, or by having the socket bound into its sandbox. The sockets stand in a directory
// that only this user can enter, and the kernel is asked for the user of each caller. Processes of one user can reach
// each other's sockets unless a sandbox keeps them apart, as they could reach each other's memory.
//
// The sockets of RegisterAt are the exception: they answer whoever reaches them, and stand in folders of which each is
// mounted into one pod.
//
// # Rotation
//
// An SVID is replaced when half of its lifetime is over. An authority is replaced in three steps, so that nobody meets an
// SVID whose authority it does not know yet: at half of its lifetime its successor is published, at three quarters the
// successor begins to sign, and when the old one has expired it leaves the bundle. The keys of the
// authorities are in memory only, and after a restart nothing that was issued before is trusted, unless the configuration
// names a file for them.
package workloadapi
