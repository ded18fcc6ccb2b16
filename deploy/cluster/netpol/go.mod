module cofferdam.dev/deploy/cluster/netpol

go 1.26.0

require sigs.k8s.io/kube-network-policies v0.8.0
