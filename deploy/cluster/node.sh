#!/usr/bin/env bash
# The node, in three steps that follow one another in one process tree:
#   cgroup     joins a cgroup of its own in every v1 hierarchy, so that the node's /kubepods is private and easy to remove
#   namespace  runs in new network, mount, pid and cgroup namespaces and waits until it has been wired and given the word
#   (then)     containerd, kubelet, kube-proxy and the policy engine, as children of process 1 of the node
# Started by cluster.sh only, with the variables it exports.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
state=$CLUSTER_STATE
node=$state/node
controllers="cpu cpuacct cpuset memory devices freezer blkio pids"

join_cgroups() {
  local controller own dir
  for controller in $controllers systemd; do
    [ -d "/sys/fs/cgroup/$controller" ] || continue
    own=$(awk -F: -v c="$controller" '{ n = split($2, names, ","); for (i = 1; i <= n; i++) if (names[i] == c || names[i] == "name=" c) print $3 }' /proc/self/cgroup)
    dir=/sys/fs/cgroup/$controller${own%/}/$CLUSTER_NAME
    # Noted before it is made, so that it is removed whatever happens next.
    printf '%s\n' "$dir" >>"$state/cgroups"
    mkdir -p "$dir"
    if [ "$controller" = cpuset ]; then
      cat "$dir/../cpuset.cpus" >"$dir/cpuset.cpus"
      cat "$dir/../cpuset.mems" >"$dir/cpuset.mems"
    fi
    echo $$ >"$dir/cgroup.procs"
  done
}

private_mounts() {
  local controller setting file
  mount --make-rslave /
  mount -t sysfs sysfs /sys
  mount -t tmpfs cgroup /sys/fs/cgroup
  for controller in $controllers; do
    mkdir "/sys/fs/cgroup/$controller"
    mount -t cgroup -o "$controller" cgroup "/sys/fs/cgroup/$controller" || rmdir "/sys/fs/cgroup/$controller"
  done
  mkdir /sys/fs/cgroup/systemd
  mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd
  # The kubelet would set these for the whole machine.
  mkdir -p "$node/sysctl"
  for setting in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1 kernel/keys/root_maxkeys=1000000 kernel/keys/root_maxbytes=25000000; do
    file=$node/sysctl/$(printf %s "${setting%%=*}" | tr / .)
    echo "${setting#*=}" >"$file"
    mount --bind "$file" "/proc/sys/${setting%%=*}"
  done
  # No program of the node shares a socket, a lock, a namespace file or an address list with the machine, and /var/lib/kubelet,
  # which CSI drivers expect by that name, is not made on it.
  mount -t tmpfs tmpfs /run
  mount -t tmpfs tmpfs /var/log
  mount -t tmpfs tmpfs /var/lib
  mkdir -p "$node/kubelet" /var/lib/kubelet /var/lib/cni
  mount --bind "$node/kubelet" /var/lib/kubelet
  mount --make-rshared /
  mkdir -p /run/netns /run/lock /run/secrets/kubernetes.io/serviceaccount
  cp "$state/policy-account/"* /run/secrets/kubernetes.io/serviceaccount/
}

# New connections from, to and between pods, and from pods to the node, wait for the verdict of the policy engine. No
# --queue-bypass: without the engine they are dropped. mangle comes before kube-proxy's accepting rules in filter.
policy_queue() {
  iptables -t mangle -A FORWARD -m conntrack --ctstate NEW -j NFQUEUE --queue-num 98
  iptables -t mangle -A INPUT -i veth+ -m conntrack --ctstate NEW -j NFQUEUE --queue-num 98
}

case $1 in
cgroup)
  join_cgroups
  exec unshare -m -n -C -p -f --kill-child --mount-proc -- "$0" namespace
  ;;
namespace)
  ip link set lo up
  until [ -e "$state/go" ]; do sleep 0.05; done
  private_mounts
  echo 1 >/proc/sys/net/ipv4/ip_forward
  policy_queue
  export PATH=$bin:$PATH
  containerd --config "$node/containerd.toml" >"$state/log/containerd" 2>&1 &
  until_true 30 ctr version || die "containerd does not answer"
  ctr -n k8s.io images import "$cache/images/pause.tar" >/dev/null
  KUBERNETES_SERVICE_HOST=$host KUBERNETES_SERVICE_PORT=6443 netpol --hostname-override=node1 --nfqueue-id=98 \
    --v=2 --metrics-bind-address=127.0.0.1:9080 >"$state/log/netpol" 2>&1 &
  kubelet --config="$node/kubelet.yaml" --kubeconfig="$state/kubelet.kubeconfig" --hostname-override=node1 \
    --node-ip=$node_address --root-dir=/var/lib/kubelet --cert-dir="$node/certs" --v=2 >"$state/log/kubelet" 2>&1 &
  kube-proxy --config="$node/kube-proxy.yaml" >"$state/log/kube-proxy" 2>&1 &
  # They belong together: when one ends, so does the node, and whoever waits is told.
  wait -n
  die "a program of the node has ended"
  ;;
esac
