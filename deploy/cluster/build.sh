#!/usr/bin/env bash
# Builds every binary of the cluster into $CLUSTER_CACHE. A binary is built again only when it is missing or when its sources,
# its module files, its flags or the Go version changed. GVISOR=1 builds gVisor as well. Everything that is downloaded is
# downloaded here.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
export CGO_ENABLED=0 GOWORK=off GOFLAGS="-mod=readonly -buildvcs=false -trimpath"
mkdir -p "$bin" "$cache/images" "$cache/manifests"
exec 9>"$cache/.lock"
flock 9

packages() {
  local missing=() pair
  for pair in runc:runc iptables:iptables ip:iproute2 openssl:openssl nsenter:util-linux conntrack:conntrack; do
    command -v "${pair%%:*}" >/dev/null || missing+=("${pair#*:}")
  done
  [ -x /usr/lib/cni/ptp ] || missing+=(containernetworking-plugins)
  [ ${#missing[@]} -eq 0 ] || die "missing; as root: apt-get install --no-install-recommends ${missing[*]}"
}

# stamp DIR EXTRA...: what a binary was built from.
stamp() {
  local dir=$1
  shift
  { go version && printf '%s\n' "$GOFLAGS" "$@" && (cd "$dir" && find . -type f ! -name '*_test.go' -print0 | sort -z | xargs -0 sha256sum); } |
    sha256sum | cut -d' ' -f1
}

# fresh NAME WANT: whether the binary is there and was built from what is wanted.
fresh() { [ -e "$bin/$1" ] && [ "$(cat "$bin/.$1.version" 2>/dev/null)" = "$2" ]; }

# build NAME DIR PACKAGE [LDFLAGS [TAGS]]
build() {
  local name=$1 dir=$2 package=$3 ldflags="-s -w ${4:-}" tags=${5:-} want begin=$SECONDS
  want=$(stamp "$dir" "$package" "$ldflags" "$tags")
  ! fresh "$name" "$want" || return 0
  say "building $name ..."
  rm -f "$bin/.$name.version"
  (cd "$dir" && go build -tags "$tags" -ldflags "$ldflags" -o "$bin/$name" "$package")
  printf '%s\n' "$want" >"$bin/.$name.version"
  say "built $name in $((SECONDS - begin)) s, $(($(stat -c %s "$bin/$name") >> 20)) MiB"
}

# module_dir DIR MODULE: where the module cache keeps a module that DIR requires.
module_dir() { (cd "$1" && go mod download -json "$2@$(go list -m -f '{{.Version}}' "$2")" | sed -n 's/.*"Dir": "\(.*\)",/\1/p'); }

kubernetes() {
  local version minor applet pkg=k8s.io/component-base/version
  version=$(cd "$here/kube" && go list -m -f '{{.Version}}' k8s.io/kubernetes)
  minor=${version#v1.}
  build kube "$here/kube" . "-X $pkg.gitVersion=$version -X $pkg.gitMajor=1 -X $pkg.gitMinor=${minor%%.*} -X $pkg.gitTreeState=clean"
  for applet in kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubelet kubectl; do ln -sf kube "$bin/$applet"; done
}

# From source because a containerd before 2 has no NRI, through which the policy engine learns a pod's address before its first
# program runs; without it a new pod is unrestricted for the better part of a second.
runtime() {
  local program pkg=github.com/containerd/containerd/v2 version
  version=$(cd "$here/containerd" && go list -m -f '{{.Version}}' $pkg)
  for program in containerd containerd-shim-runc-v2 ctr; do
    build $program "$here/containerd" $pkg/cmd/$program "-X $pkg/version.Version=${version#v}" no_btrfs,no_devmapper,no_zfs
  done
}

sandbox_controller() {
  local dir
  build agent-sandbox-controller "$here/agentsandbox" sigs.k8s.io/agent-sandbox/cmd/agent-sandbox-controller
  dir=$(module_dir "$here/agentsandbox" sigs.k8s.io/agent-sandbox)
  install -m 0644 "$dir"/k8s/crds/*.yaml "$dir/k8s/rbac.generated.yaml" "$dir/k8s/extensions-rbac.generated.yaml" "$cache/manifests/"
}

# The shim sets an OOM score below that of its parent, which needs CAP_SYS_RESOURCE. A container or CI machine often has it not:
# the one line that insists is relaxed in a copy of the containerd module.
gvisor() {
  local copy=$cache/gvisor want version source
  want=$(stamp "$here/gvisor" gvisor)
  if fresh runsc "$want" && fresh containerd-shim-runsc-v1 "$want"; then return; fi
  say "building gVisor ..."
  rm -rf "$copy" "$bin/.runsc.version" "$bin/.containerd-shim-runsc-v1.version"
  mkdir -p "$copy"
  cp "$here/gvisor/go.mod" "$here/gvisor/go.sum" "$copy/"
  version=$(cd "$copy" && go mod edit -dropreplace github.com/containerd/containerd/v2 &&
    GOFLAGS=-mod=mod go list -m -f '{{.Path}}@{{.Version}}' github.com/containerd/containerd/v2)
  source=$(go mod download -json "$version" | sed -n 's/.*"Dir": "\(.*\)",/\1/p')
  cp -r "$source" "$copy/containerd"
  chmod -R u+w "$copy/containerd"
  sed -i 's/if os.IsPermission(err) && (/if os.IsPermission(err) || (/' "$copy/containerd/pkg/sys/oom_linux.go"
  grep -q 'if os.IsPermission(err) || (' "$copy/containerd/pkg/sys/oom_linux.go" || die "the source of containerd changed; see gvisor() in build.sh"
  cp "$here/gvisor/go.mod" "$here/gvisor/go.sum" "$copy/"
  (
    cd "$copy"
    export GOFLAGS="-mod=mod -buildvcs=false -trimpath"
    go build -ldflags '-s -w' -o "$bin/runsc" gvisor.dev/gvisor/runsc
    go build -ldflags '-s -w' -o "$bin/containerd-shim-runsc-v1" gvisor.dev/gvisor/shim
  )
  printf '%s\n' "$want" | tee "$bin/.runsc.version" >"$bin/.containerd-shim-runsc-v1.version"
  rm -rf "$copy"
}

# The image of every pod's infrastructure container, by the tool that makes the images of the services.
pause_image() {
  build images "$here/../../tools/images" .
  build pause "$here/pause" .
  "$bin/images" pack --program "$bin/pause" --reference localhost/pause:local --archive "$cache/images/pause.tar" >/dev/null
}

packages
kubernetes
runtime
build etcd "$here/etcd" go.etcd.io/etcd/server/v3
sandbox_controller
build netpol "$here/netpol" sigs.k8s.io/kube-network-policies/cmd
pause_image
if [ "${GVISOR:-0}" = 1 ]; then gvisor; fi
