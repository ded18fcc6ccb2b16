module cofferdam.dev/deploy/cluster/gvisor

go 1.26.3

require gvisor.dev/gvisor v0.0.0-20260905035102-160fafc42237

replace github.com/containerd/containerd/v2 => ./containerd
