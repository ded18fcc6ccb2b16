package nodeidentity

import (
	"context"
	"errors"
	"log/slog"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const (
	// DriverName is that of the CSIDriver object, and of SPIRE's driver.
	DriverName    = "csi.spiffe.io"
	driverVersion = "1.0.0"

	podPrefix = "csi.storage.k8s.io/"
	keyUID    = podPrefix + "pod.uid"
	keyName   = podPrefix + "pod.name"
	keySpace  = podPrefix + "pod.namespace"
	keyUser   = podPrefix + "serviceAccount.name"
	keyInline = podPrefix + "ephemeral"
)

// driver answers the kubelet.
type driver struct {
	csi.UnimplementedIdentityServer
	csi.UnimplementedNodeServer

	nodeID  string
	volumes *volumes
	log     *slog.Logger
}

// GetPluginInfo names the driver.
func (d *driver) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: DriverName, VendorVersion: driverVersion}, nil
}

// GetPluginCapabilities names none: there is no controller.
func (d *driver) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{}, nil
}

// Probe says that the driver is ready, as it is whenever it answers.
func (d *driver) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

// NodeGetInfo names the node.
func (d *driver) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: d.nodeID}, nil
}

// NodeGetCapabilities names none: a volume is not staged, measured or enlarged.
func (d *driver) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	return &csi.NodeGetCapabilitiesResponse{}, nil
}

// NodePublishVolume gives a pod its identity.
func (d *driver) NodePublishVolume(ctx context.Context, req *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	vol, err := asked(req)
	if err == nil {
		err = d.volumes.publish(ctx, vol)
	}
	if err != nil {
		return nil, d.refuse(ctx, "publish", vol, err)
	}
	return &csi.NodePublishVolumeResponse{}, nil
}

// NodeUnpublishVolume takes it away.
func (d *driver) NodeUnpublishVolume(ctx context.Context, req *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	if err := d.volumes.unpublish(ctx, req.GetVolumeId(), req.GetTargetPath()); err != nil {
		return nil, d.refuse(ctx, "unpublish", Volume{ID: req.GetVolumeId()}, err)
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

// asked reads a request, which has to be for an inline volume of a pod, read-only, and without anything else.
func asked(req *csi.NodePublishVolumeRequest) (Volume, error) {
	attributes := req.GetVolumeContext()
	vol := Volume{
		ID: req.GetVolumeId(), Target: req.GetTargetPath(),
		Pod: Pod{UID: attributes[keyUID], Namespace: attributes[keySpace], ServiceAccount: attributes[keyUser]},
	}
	for key := range attributes {
		switch key {
		case keyUID, keyName, keySpace, keyUser, keyInline:
		default:
			if strings.HasPrefix(key, podPrefix) {
				return vol, invalidError("the CSIDriver object asks the kubelet for more than podInfoOnMount")
			}
			return vol, invalidError("the volume has volumeAttributes, and the driver takes none")
		}
	}
	switch {
	case vol.Pod.UID == "":
		return vol, invalidError("the kubelet does not say which pod this is for: the CSIDriver object needs podInfoOnMount: true")
	case attributes[keyInline] != "true":
		return vol, invalidError("only inline (ephemeral) volumes are possible")
	case !req.GetReadonly():
		return vol, invalidError("the volume has to be readOnly: true")
	case req.GetVolumeCapability().GetMount() == nil:
		return vol, invalidError("the volume is a file system, not a block device")
	case len(req.GetSecrets()) > 0:
		return vol, invalidError("the driver takes no secrets")
	}
	return vol, nil
}

// invalidError is a request that no repetition makes good. Its text is what `kubectl describe pod` shows.
type invalidError string

// Error is the text.
func (e invalidError) Error() string { return "nodeidentity: " + string(e) }

// refuse logs an error and gives it the code that the kubelet reports.
func (d *driver) refuse(ctx context.Context, what string, vol Volume, err error) error {
	d.log.WarnContext(ctx, "a request of the kubelet was refused", "request", what, "volume", vol.ID, "namespace", vol.Pod.Namespace, "service_account", vol.Pod.ServiceAccount, "error", err.Error())
	code := codes.Internal
	invalid, ok := errors.AsType[invalidError](err)
	switch {
	case ok:
		return status.Error(codes.InvalidArgument, invalid.Error())
	case errors.Is(err, errShape):
		code = codes.InvalidArgument
	case errors.Is(err, ErrNoIdentity):
		code = codes.PermissionDenied
	case errors.Is(err, errOther):
		code = codes.AlreadyExists
	case errors.Is(err, errFull):
		code = codes.ResourceExhausted
	}
	return status.Error(code, err.Error())
}
