package nodeidentity

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"sync"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/deploy/local/internal/datadir"
	"cofferdam.dev/pkg/strictjson"
)

const (
	// SocketName is the file in a volume.
	SocketName = "spire-agent.sock"

	// DefaultMax is how many volumes a node may have at once.
	DefaultMax = 512

	recordName = "record.json"
	folderName = "s"
	maxRecord  = 4 << 10
	nameBytes  = 8 // of the digest that a volume's folder is named by
	maxID      = 128
)

// WorkloadAPI serves identities on sockets.
type WorkloadAPI interface {
	// RegisterAt serves an identity at path, to whoever reaches it.
	RegisterAt(id spiffeid.ID, path string) error
	// DeregisterAt ends that.
	DeregisterAt(path string)
}

// Volume is what the kubelet asks for.
type Volume struct {
	ID string `json:"volume_id"`
	// Target is where it is to be mounted, KUBELET/pods/UID/volumes/kubernetes.io~csi/NAME/mount.
	Target string `json:"target"`
	Pod    Pod    `json:"pod"`
}

var (
	errOther = errors.New("nodeidentity: the volume is there already, and is another pod's or stands elsewhere")
	errFull  = errors.New("nodeidentity: the node has as many volumes as it may have")
	errShape = errors.New("nodeidentity: the request is not one that a kubelet makes for an inline volume of this pod")
)

// volumes are those of the node.
type volumes struct {
	rules Rules
	api   WorkloadAPI
	// dir has a folder for each of them, which only root can enter.
	dir, kubelet string
	most         int
	log          *slog.Logger

	mu  sync.Mutex
	all map[string]Volume // by id
}

// publish gives a pod its socket. It can be repeated.
func (v *volumes) publish(ctx context.Context, vol Volume) error {
	if err := v.check(vol); err != nil {
		return err
	}
	id, err := v.rules.Identity(vol.Pod)
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	known, again := v.all[vol.ID]
	switch {
	case again && known != vol:
		return errOther
	case !again && len(v.all) >= v.most:
		return errFull
	case !again:
		if err := v.serve(id, vol); err != nil {
			return errors.Join(err, v.forget(vol))
		}
		v.all[vol.ID] = vol
	}
	mounted, err := bound(v.folder(vol), vol.Target)
	if err != nil {
		return err
	}
	if !mounted {
		if err := bind(v.folder(vol), vol.Target); err != nil {
			return err // the kubelet repeats it, or takes the volume away
		}
	}
	v.log.InfoContext(ctx, "a pod has its identity", "spiffe_id", id.String(), "namespace", vol.Pod.Namespace, "pod_uid", vol.Pod.UID)
	return nil
}

// serve makes the folder of a volume, its record first, and the socket in it.
func (v *volumes) serve(id spiffeid.ID, vol Volume) error {
	raw, err := json.Marshal(vol)
	if err != nil {
		return err
	}
	// A pod may be any user: it is the mount that decides who enters.
	if err := os.MkdirAll(v.home(vol.ID), 0o700); err != nil {
		return err
	}
	if err := datadir.Write(filepath.Join(v.home(vol.ID), recordName), append(raw, '\n')); err != nil {
		return err
	}
	if err := os.Mkdir(v.folder(vol), 0o755); err != nil && !errors.Is(err, fs.ErrExist) { //nolint:gosec // see above
		return err
	}
	if err := os.Chmod(v.folder(vol), 0o755); err != nil { //nolint:gosec // whatever the umask is; see above
		return err
	}
	return v.api.RegisterAt(id, v.socket(vol))
}

// unpublish takes a pod's identity, and then its mount. It can be repeated, also for a volume that is not known any more.
func (v *volumes) unpublish(ctx context.Context, id, target string) error {
	if !v.kubelets(target) || id == "" || len(id) > maxID {
		return errShape
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	vol, ok := v.all[id]
	if ok && vol.Target != target {
		return errOther
	}
	if ok {
		v.api.DeregisterAt(v.socket(vol))
	}
	if err := unbind(target); err != nil {
		return err
	}
	if !ok {
		return nil
	}
	if err := v.forget(vol); err != nil {
		return err
	}
	delete(v.all, id)
	v.log.InfoContext(ctx, "a pod's identity is gone", "namespace", vol.Pod.Namespace, "pod_uid", vol.Pod.UID)
	return nil
}

// forget ends the socket of a volume and removes what is kept of it.
func (v *volumes) forget(vol Volume) error {
	v.api.DeregisterAt(v.socket(vol))
	return os.RemoveAll(v.home(vol.ID))
}

// restore opens the sockets of the volumes whose mounts outlived the last plugin, and forgets the others.
func (v *volumes) restore(ctx context.Context) error {
	if err := os.MkdirAll(v.dir, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(v.dir)
	if err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, e := range entries {
		home := filepath.Join(v.dir, e.Name())
		vol, err := v.restoreOne(home)
		if err == nil {
			v.all[vol.ID] = vol
			continue
		}
		v.log.WarnContext(ctx, "a volume of before is not served any more", "folder", home, "reason", err.Error())
		if err := os.RemoveAll(home); err != nil {
			return err
		}
	}
	return nil
}

var errUnmounted = errors.New("its mount is gone, and so nobody can reach it")

func (v *volumes) restoreOne(home string) (Volume, error) {
	raw, err := datadir.ReadKey(filepath.Join(home, recordName), maxRecord)
	if err != nil {
		return Volume{}, err
	}
	vol, err := decodeRecord(raw)
	if err != nil {
		return Volume{}, err
	}
	if err := v.check(vol); err != nil {
		return Volume{}, err
	}
	if v.home(vol.ID) != home {
		return Volume{}, errors.New("its record is another volume's")
	}
	id, err := v.rules.Identity(vol.Pod)
	if err != nil {
		return Volume{}, err
	}
	mounted, err := bound(v.folder(vol), vol.Target)
	if err != nil {
		return Volume{}, err
	}
	if !mounted {
		return Volume{}, errUnmounted
	}
	return vol, v.api.RegisterAt(id, v.socket(vol))
}

func decodeRecord(raw []byte) (Volume, error) {
	var vol Volume
	return vol, strictjson.Unmarshal(raw, &vol, strictjson.Options{MaxBytes: maxRecord, RequireFields: true})
}

// check refuses what no kubelet asks for.
func (v *volumes) check(vol Volume) error {
	if vol.ID == "" || len(vol.ID) > maxID || !podUID.MatchString(vol.Pod.UID) || !v.kubelets(vol.Target) {
		return errShape
	}
	if podOf(vol.Target) != vol.Pod.UID {
		return fmt.Errorf("%w: the target is of another pod", errShape)
	}
	return nil
}

var targetName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$`)

const (
	// targetDepth is how many folders lie between a kubelet's and the mount: pods/UID/volumes/kubernetes.io~csi/NAME/mount.
	targetDepth = 6
	csiFolder   = "kubernetes.io~csi"
)

// kubelets says whether a target is one that the kubelet makes for a CSI volume.
func (v *volumes) kubelets(target string) bool {
	rest := target
	var parts []string
	for range targetDepth {
		parts = append(parts, filepath.Base(rest))
		rest = filepath.Dir(rest)
	}
	return target == filepath.Clean(target) && rest == v.kubelet && parts[5] == "pods" && podUID.MatchString(parts[4]) &&
		parts[3] == "volumes" && parts[2] == csiFolder && targetName.MatchString(parts[1]) && parts[0] == "mount"
}

// podOf is the pod whose uid stands in a target.
func podOf(target string) string {
	for range targetDepth - 2 {
		target = filepath.Dir(target)
	}
	return filepath.Base(target)
}

// home is what is kept of a volume. Its name is short: the path of a socket has 107 bytes at most.
func (v *volumes) home(id string) string {
	sum := sha256.Sum256([]byte(id))
	return filepath.Join(v.dir, hex.EncodeToString(sum[:nameBytes]))
}

func (v *volumes) folder(vol Volume) string { return filepath.Join(v.home(vol.ID), folderName) }

func (v *volumes) socket(vol Volume) string { return filepath.Join(v.folder(vol), SocketName) }
