package process

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math/big"
	"net"
	"sync"

	"cofferdam.dev/pkg/isolation"
)

const (
	// firstHostID and lastHostID bound the ids of sandboxes on the host. No other
	// program takes ids from there by itself: those below are for containers, those
	// above for images of other machines.
	firstHostID = 0x7000_0000
	lastHostID  = 0x7FFD_FFFF
	// blockIDs is how many ids one provider has, 8 a sandbox.
	blockIDs = 1 << 15
	// MostInstances bounds MaxInstances: a block has ids for twice as many, since what
	// has ended keeps its ids until nothing is left of it.
	MostInstances = blockIDs / isolation.IDsPerSandbox / 2
	// blockTries is how many blocks are tried before giving up.
	blockTries = 64
)

// hostIDs gives each sandbox host ids that no other sandbox of the machine has.
// A provider holds one block of them by an abstract socket, which the kernel frees
// when its process dies.
type hostIDs struct {
	base uint32
	hold net.Listener

	mu   sync.Mutex
	used map[uint32]bool
}

var errNoIDs = errors.New("no block of host ids is free")

func takeHostIDs(ctx context.Context) (*hostIDs, error) {
	var last error
	for range blockTries {
		n, err := rand.Int(rand.Reader, big.NewInt((lastHostID-firstHostID)/blockIDs))
		if err != nil {
			return nil, err
		}
		base := firstHostID + uint32(n.Uint64())*blockIDs //nolint:gosec // below lastHostID
		hold, err := new(net.ListenConfig).Listen(ctx, "unix", fmt.Sprintf("@cofferdam/host-ids/%d", base))
		if err == nil {
			return &hostIDs{base: base, hold: hold, used: map[uint32]bool{}}, nil
		}
		last = err
	}
	return nil, errors.Join(errNoIDs, last)
}

// take gives the first of the ids of one sandbox.
func (h *hostIDs) take() (uint32, error) {
	if h == nil { // ids are the caller's own
		return 0, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for id := h.base; id < h.base+blockIDs; id += isolation.IDsPerSandbox {
		if !h.used[id] {
			h.used[id] = true
			return id, nil
		}
	}
	return 0, errNoIDs
}

// give takes them back once nothing of the sandbox is left.
func (h *hostIDs) give(id uint32) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.used, id)
}

func (h *hostIDs) close() error {
	if h == nil {
		return nil
	}
	return h.hold.Close()
}
