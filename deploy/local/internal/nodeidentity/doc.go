// Package nodeidentity gives the pods of one Kubernetes node their SPIFFE identities, for clusters without SPIRE. It is
// for development and tests: its authority is that of one node, and pods of two nodes would not know each other.
//
// It is a CSI node plugin of the name that SPIRE's own has, csi.spiffe.io, so that a pod is written alike for both: it asks
// for an inline volume, and finds a Workload API socket in it, spire-agent.sock. No pod needs a hostPath.
//
// # Who is who
//
// The kubelet says which pod a volume is for: its uid, namespace and service account. Rules turn that into one identity,
// or the volume is refused and the pod does not start:
//
//   - a service account that the rules name as a service is /svc/<service account>;
//   - one that they name as a sandbox's is /sandbox/<pod uid>, so that the next pod of the same sandbox is somebody else.
//
// Each volume is a folder of its own with one socket in it, mounted read-only into that pod. The mount is the whole
// attestation: whoever can reach the socket is that pod, or root on the node. What the kubelet says is believed because
// only root reaches the plugin's socket, and because the target path, which the kubelet makes itself, has to name the same
// pod. A pod cannot say it in the kubelet's stead as long as the CSIDriver object has podInfoOnMount (the kubelet's words
// replace the pod's), and a volume with attributes of the pod's own is refused.
//
// # Restart
//
// The authorities and a record of each volume are in a folder that root alone can enter. After a restart of the plugin a
// volume whose mount still stands has its socket again, in the same folder and so in the pod; one whose mount is gone is
// forgotten, since nobody can reach it: after the node itself was started again the kubelet asks for it anew.
package nodeidentity
