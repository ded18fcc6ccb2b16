package host

import (
	"encoding/json"

	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/services/controlplane/internal/harnesses"
	"cofferdam.dev/services/controlplane/internal/sandbox"
)

// The routes. Each answers with JSON, and with an error as fault.WriteHTTP does.
const (
	claimsPath    = "/v1/claims"
	roomPath      = "/v1/room"
	instancesPath = "/v1/instances"
	exitsPath     = "/v1/exits"
	infoPath      = "/v1/info"
)

const (
	// maxRequest and maxAnswer bound a body, in bytes. An answer may list all
	// instances, or the descriptors of all profiles.
	maxRequest = 4 << 10
	maxAnswer  = 16 << 20
)

type claim struct {
	Name    string `json:"name"`
	Profile string `json:"profile"`
	Harness string `json:"harness"`
}

type instance struct {
	ClaimName   string `json:"claim_name"`
	ClaimUID    string `json:"claim_uid"`
	SandboxUID  string `json:"sandbox_uid,omitempty"`
	UID         string `json:"uid"`
	Address     string `json:"address"`
	ID          string `json:"id"`
	ImageDigest string `json:"image_digest"`
	PID         int    `json:"pid,omitempty"`
}

func toWire(in sandbox.Instance) instance {
	return instance{in.ClaimName, in.ClaimUID, in.SandboxUID, in.UID, in.Address, in.ID.String(), in.ImageDigest, in.PID}
}

func (i instance) sandbox() (sandbox.Instance, error) {
	id, err := spiffeid.FromString(i.ID)
	return sandbox.Instance{
		ClaimName: i.ClaimName, ClaimUID: i.ClaimUID, SandboxUID: i.SandboxUID, UID: i.UID, Address: i.Address, ID: id, ImageDigest: i.ImageDigest, PID: i.PID,
	}, err
}

type instances struct {
	Instances []instance `json:"instances"`
}

type alive struct {
	Alive bool `json:"alive"`
}

// exit is a line of the stream of exits. The first line has none: it says that the
// stream stands.
type exit struct {
	ClaimName string        `json:"claim_name,omitempty"`
	UID       string        `json:"uid,omitempty"`
	Limit     sandbox.Limit `json:"limit,omitempty"`
}

// info is what does not change while a provider lives.
type info struct {
	Weaknesses []string          `json:"weaknesses"`
	Addresses  map[string]string `json:"addresses"`
	Harnesses  []harness         `json:"harnesses"`
}

// harness is what a profile runs, as its worker describes it.
type harness struct {
	Profile    string          `json:"profile"`
	Enabled    bool            `json:"enabled"`
	ID         string          `json:"harness_id"`
	Descriptor json.RawMessage `json:"descriptor"`
}

func harnessesToWire(c *harnesses.Catalogue) ([]harness, error) {
	var out []harness
	for _, e := range c.All() {
		raw, err := json.Marshal(e.Descriptor)
		if err != nil {
			return nil, err
		}
		out = append(out, harness{e.Profile, e.Enabled, e.HarnessID, raw})
	}
	return out, nil
}

func (i info) catalogue() (*harnesses.Catalogue, error) {
	entries := make([]harnesses.Entry, len(i.Harnesses))
	for n, h := range i.Harnesses {
		var err error
		if entries[n], err = harnesses.Parse(h.Profile, h.Enabled, h.ID, h.Descriptor); err != nil {
			return nil, err
		}
	}
	return harnesses.New(entries...), nil
}
