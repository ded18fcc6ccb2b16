// Package cluster makes what a development installation on Kubernetes needs before its services can start, and what
// nobody should write by hand: keys, and the authorization of the demo. It speaks to no API server; what it makes is
// applied by whoever may, and can be made again from the same data folder.
//
// The keys stand in the data folder with mode 0600 and in the manifests that Secrets gives, and nowhere else: not in
// arguments, the environment, logs or errors.
package cluster
