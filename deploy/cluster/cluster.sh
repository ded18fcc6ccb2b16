# shellcheck shell=bash
# Starting a cluster; sourced by up.sh and run.sh, never run.
# shellcheck disable=SC2317 # functions are called by await
# shellcheck source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# cluster_up: builds, starts and waits. Sets state. An exit before it returns leaves a cluster that destroy removes.
# With die_with_parent=1 the cluster ends with the calling shell, however that ends.
cluster_up() {
  [ "$(id -u)" = 0 ] || die "needs root"
  [ -d /sys/fs/cgroup/memory ] || die "needs the hierarchies of cgroup v1; this machine has v2 only"
  "$here/build.sh"
  sweep
  local begin=$SECONDS
  if [ -n "${CLUSTER_STATE:-}" ]; then
    state=$CLUSTER_STATE
    mkdir -p "$state"
    [ -z "$(ls -A "$state")" ] || die "$state is not empty"
  else
    state=$(mktemp -d -t cofferdam-cluster.XXXXXX)
  fi
  case $(realpath "$state" "$cache") in
  */var/lib/*) die "the node has a /var/lib of its own: set TMPDIR and CLUSTER_CACHE to folders elsewhere" ;;
  esac
  chmod 0700 "$state"
  mkdir -p "$state/log" "$state/pids" "$state/commands" "$state/pki" "$state/node/cni" "$state/policy-account"
  pki=$state/pki
  machine
  export CLUSTER_STATE=$state CLUSTER_CACHE=$cache
  certificates
  node_config
  wire_node
  control_plane
  objects
  touch "$state/go"
  start sandbox-controller env KUBECONFIG="$state/sandbox.kubeconfig" "$bin/agent-sandbox-controller" --extensions --leader-elect=false \
    --metrics-bind-address=127.0.0.1:8180 --health-probe-bind-address=127.0.0.1:8181
  await 60 "the node" node_ready
  await 30 "the policy engine" queue_bound
  await 30 "kube-proxy" answers node 10256 /healthz
  await 30 "the sandbox controller" answers machine 8181 /readyz
  say "cluster ready after $((SECONDS - begin)) s"
}

# The machine of the cluster: a network and a pid namespace, and whoever keeps them open. The end of that process is the end of
# every process, link, address and route of the cluster.
machine() {
  local keeper=(unshare -n -p -f --kill-child -- sleep infinity)
  [ "${die_with_parent:-0}" = 0 ] || keeper=(setpriv --pdeathsig KILL "${keeper[@]}")
  setsid "${keeper[@]}" </dev/null >/dev/null 2>&1 &
  note machine $!
  disown
  touch "$state/.cofferdam-cluster"
  own_network() { elsewhere "$(pid_of machine)" self; }
  await 10 "the machine" own_network
  in_machine ip link set lo up
}

# elsewhere PID OTHER: whether a process that is there has another network than the other one. A process that has just ended,
# as those do that set a namespace up, has none.
elsewhere() {
  local its others
  its=$(readlink "/proc/$1/ns/net") && others=$(readlink "/proc/$2/ns/net") && [ "$its" != "$others" ]
}

issue() { # NAME SUBJECT [ALTERNATIVE-NAMES]
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$pki/$1.key" -out "$pki/$1.csr" -subj "$2" 2>/dev/null
  openssl x509 -req -in "$pki/$1.csr" -CA "$pki/ca.crt" -CAkey "$pki/ca.key" -CAcreateserial -days 3650 -out "$pki/$1.crt" \
    -extfile <(printf 'subjectAltName=%s\nextendedKeyUsage=serverAuth,clientAuth\n' "${3:-DNS:$1}") 2>/dev/null
}

kubeconfig() { # NAME
  cat >"$state/$1.kubeconfig" <<END
apiVersion: v1
kind: Config
clusters: [{name: cluster, cluster: {server: "https://$host:6443", certificate-authority: "$pki/ca.crt"}}]
users: [{name: user, user: {client-certificate: "$pki/$1.crt", client-key: "$pki/$1.key"}}]
contexts: [{name: context, context: {cluster: cluster, user: user}}]
current-context: context
END
}

certificates() {
  local name
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$pki/ca.key" -out "$pki/ca.crt" -days 3650 -subj /CN=cluster-ca 2>/dev/null
  issue apiserver /CN=kube-apiserver "DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,IP:127.0.0.1,IP:${services%.0.0/16}.0.1,IP:$host"
  issue admin /O=system:masters/CN=admin
  issue controller-manager /CN=system:kube-controller-manager
  issue scheduler /CN=system:kube-scheduler
  issue proxy /CN=system:kube-proxy
  issue sandbox /CN=agent-sandbox-controller
  issue kubelet /O=system:nodes/CN=system:node:node1 "DNS:node1,IP:$node_address"
  issue to-kubelet /O=system:masters/CN=apiserver-to-kubelet
  openssl genrsa -out "$pki/accounts.key" 2048 2>/dev/null
  openssl rsa -in "$pki/accounts.key" -pubout -out "$pki/accounts.pub" 2>/dev/null
  for name in admin controller-manager scheduler proxy sandbox kubelet; do kubeconfig $name; done
}

node_config() {
  local snapshotter=overlayfs
  # An overlay cannot lie on an overlay.
  [ "$(stat -f -c %T "$state")" != overlayfs ] || snapshotter=native
  cat >"$state/node/containerd.toml" <<END
version = 2
root = "$state/node/containerd"
state = "/run/containerd"
oom_score = 0
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.aufs"]
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "$state/node/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:local"
  restrict_oom_score_adj = true
  disable_apparmor = true
  disable_hugetlb_controller = true
  tolerate_missing_hugetlb_controller = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$state/node/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "$snapshotter"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runsc]
      runtime_type = "io.containerd.runsc.v1"
      pod_annotations = ["dev.gvisor.*"]
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runsc.options]
        TypeUrl = "io.containerd.runsc.v1.options"
        ConfigPath = "$state/node/runsc.toml"
END
  cat >"$state/node/runsc.toml" <<END
binary_name = "$bin/runsc"
log_path = "$state/log/runsc-shim"
[runsc_config]
  platform = "systrap"
  debug = "false"
  host-uds = "open"
END
  # Routed (ptp), not bridged: every packet between pods passes the FORWARD chain and so the policy queue.
  cat >"$state/node/cni/10-ptp.conflist" <<END
{"cniVersion": "0.4.0", "name": "pods", "plugins": [
  {"type": "ptp", "ipMasq": false, "ipam": {"type": "host-local", "ranges": [[{"subnet": "$pods"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
END
  cat >"$state/node/kubelet.yaml" <<END
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: "$pki/ca.crt"}}
authorization: {mode: Webhook}
tlsCertFile: "$pki/kubelet.crt"
tlsPrivateKeyFile: "$pki/kubelet.key"
clusterDNS: ["$dns"]
clusterDomain: cluster.local
resolvConf: ""
evictionHard: {memory.available: "50Mi", nodefs.available: "200Mi", imagefs.available: "200Mi"}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
nodeStatusUpdateFrequency: 5s
oomScoreAdj: 0
podLogsDir: "$state/node/logs"
volumePluginDir: "$state/node/volume-plugins"
enforceNodeAllocatable: [pods]
maxPods: 200
podPidsLimit: 512
END
  cat >"$state/node/kube-proxy.yaml" <<END
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
clientConnection: {kubeconfig: "$state/proxy.kubeconfig"}
hostnameOverride: node1
clusterCIDR: $pods
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
oomScoreAdj: 0
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
END
}

wire_node() {
  local name
  name=cofferdam-cluster-$(pid_of machine)
  start node env CLUSTER_NAME="$name" "$here/node.sh" cgroup
  own_namespace() { elsewhere "$(node_pid)" "$(pid_of machine)"; }
  await 10 "the node's namespaces" own_namespace
  in_machine ip link add node type veth peer name eth0 netns "$(node_pid)"
  in_machine ip addr add "$host/24" dev node
  in_machine ip link set node up
  nsenter -t "$(node_pid)" -n -- ip addr add "$node_address/24" dev eth0
  nsenter -t "$(node_pid)" -n -- ip link set eth0 up
  nsenter -t "$(node_pid)" -n -- ip route add default via "$host"
  in_machine ip route add "$pods" via "$node_address"
}

control_plane() {
  local etcd=http://127.0.0.1:2379 peer=http://127.0.0.1:2380 name flags
  # No fsync: nothing of this cluster is kept.
  start etcd "$bin/etcd" --data-dir "$state/etcd" --listen-client-urls $etcd --advertise-client-urls $etcd --listen-peer-urls $peer \
    --initial-advertise-peer-urls $peer --initial-cluster default=$peer --unsafe-no-fsync --log-level warn
  start apiserver "$bin/kube-apiserver" --etcd-servers=$etcd --bind-address="$host" --advertise-address="$host" \
    --secure-port=6443 --tls-cert-file="$pki/apiserver.crt" --tls-private-key-file="$pki/apiserver.key" --client-ca-file="$pki/ca.crt" \
    --service-account-key-file="$pki/accounts.pub" --service-account-signing-key-file="$pki/accounts.key" \
    --service-account-issuer=https://kubernetes.default.svc --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction \
    --service-cluster-ip-range="$services" --allow-privileged=true --anonymous-auth=false \
    --kubelet-client-certificate="$pki/to-kubelet.crt" --kubelet-client-key="$pki/to-kubelet.key" \
    --kubelet-preferred-address-types=InternalIP --kubelet-certificate-authority="$pki/ca.crt"
  await 120 "the API server" kubectl get --raw /readyz
  for name in controller-manager scheduler; do
    flags=(--kubeconfig="$state/$name.kubeconfig" --authentication-kubeconfig="$state/$name.kubeconfig"
      --authorization-kubeconfig="$state/$name.kubeconfig" --leader-elect=false --bind-address=127.0.0.1)
    [ $name = scheduler ] || flags+=(--flex-volume-plugin-dir="$state/volume-plugins"
      --service-account-private-key-file="$pki/accounts.key" --root-ca-file="$pki/ca.crt"
      --use-service-account-credentials=true --allocate-node-cidrs=true --cluster-cidr="$pods" --node-cidr-mask-size=24
      --cluster-signing-cert-file="$pki/ca.crt" --cluster-signing-key-file="$pki/ca.key")
    start $name "$bin/kube-$name" "${flags[@]}"
  done
}

objects() {
  local crds=("$cache/manifests"/*agents.x-k8s.io_*.yaml)
  kubectl create "${crds[@]/#/-f}" -f "$cache/manifests/rbac.generated.yaml" -f "$cache/manifests/extensions-rbac.generated.yaml" -f "$here/objects.yaml" >/dev/null
  if [ "${GVISOR:-0}" = 1 ]; then kubectl create -f "$here/gvisor/runtimeclass.yaml" >/dev/null; fi
  kubectl -n kube-system create token policy-engine --duration=8760h >"$state/policy-account/token"
  cp "$pki/ca.crt" "$state/policy-account/"
  printf kube-system >"$state/policy-account/namespace"
  kubectl wait --for=condition=Established crd --all --timeout=60s >/dev/null
}

kubectl() { in_machine "$bin/kubectl" --kubeconfig "$state/admin.kubeconfig" "$@"; }
node_ready() { kubectl wait --for=condition=Ready node/node1 --timeout=1s; }
queue_bound() { grep -q '^ *98 ' "/proc/$(node_pid)/net/netfilter/nfnetlink_queue"; }

# answers machine|node PORT PATH: whether a program on that loopback answers 200.
answers() {
  local pid
  if [ "$1" = node ]; then pid=$(node_pid); else pid=$(pid_of machine); fi
  # shellcheck disable=SC2016 # expanded by the inner shell
  nsenter -t "$pid" -n -- timeout 5 bash -c 'exec 3<>"/dev/tcp/127.0.0.1/$0" && printf "GET %s HTTP/1.0\r\n\r\n" "$1" >&3 && grep -q " 200 " <&3' "$2" "$3"
}
