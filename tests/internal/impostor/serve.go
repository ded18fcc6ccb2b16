package impostor

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"time"

	"connectrpc.com/connect/v2"
	"github.com/spiffe/go-spiffe/v2/spiffeid"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/fence"
	capabilityv1 "cofferdam.dev/pkg/gen/harness/capability/v1"
	"cofferdam.dev/pkg/gen/harness/capability/v1/capabilityv1connect"
	filebrokerv1 "cofferdam.dev/pkg/gen/harness/filebroker/v1"
	"cofferdam.dev/pkg/gen/harness/filebroker/v1/filebrokerv1connect"
	memoryv1 "cofferdam.dev/pkg/gen/harness/memory/v1"
	"cofferdam.dev/pkg/gen/harness/memory/v1/memoryv1connect"
	threadstatev1 "cofferdam.dev/pkg/gen/harness/threadstate/v1"
	"cofferdam.dev/pkg/gen/harness/threadstate/v1/threadstatev1connect"
	toolbrokerv1 "cofferdam.dev/pkg/gen/harness/toolbroker/v1"
	"cofferdam.dev/pkg/gen/harness/toolbroker/v1/toolbrokerv1connect"
	workerv1 "cofferdam.dev/pkg/gen/harness/worker/v1"
	"cofferdam.dev/pkg/gen/harness/worker/v1/workerv1connect"
	"cofferdam.dev/pkg/identity"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/pkg/telemetry"
)

// pretence is what an impostor is told first.
type pretence struct {
	// User on the host, and the identity that goes with it.
	User int    `json:"user"`
	ID   string `json:"id"`
	// Sockets by name, in the order of the descriptors; the first is the Workload
	// API's.
	Sockets []string `json:"sockets"`
	// Addresses of what is reached over a network instead, by name.
	Addresses map[string]string `json:"addresses,omitempty"`
}

// Call is one that an impostor makes.
type Call struct {
	// What is one of its calls.
	What  string `json:"what"`
	Token string `json:"token"`
	// Envelope is of the run that is named.
	Envelope fence.Envelope `json:"envelope"`
	// Adapter that the worker hosts; the scripted one where it is left out.
	Adapter Adapter `json:"adapter,omitzero"`
	// Handle of a file; one that there is not, where it is left out.
	Handle string `json:"handle,omitempty"`
	// Record is what calls of memory name. With one, that nothing is there is said as
	// not_found, and not as [Granted].
	Record *Record `json:"record,omitempty"`
}

// Record of memory that a call is about.
type Record struct {
	Scope   memoryv1.Scope `json:"scope"`
	Key     string         `json:"key"`
	Content string         `json:"content,omitempty"`
	// Expected revision; nil expects that there is none.
	Expected *uint64 `json:"expected,omitempty"`
}

// Adapter is what a worker tells a state facade of itself.
type Adapter struct {
	Harness string `json:"harness"`
	Version string `json:"version"`
	// Codec and CodecVersion are the scripted one's where they are left out.
	Codec        string `json:"codec,omitempty"`
	CodecVersion uint32 `json:"codec_version,omitempty"`
}

// What an impostor says where it got what it asked for, and where it has no identity.
const (
	Granted    = "granted"
	NoIdentity = "no identity"
)

const (
	identityTimeout = 5 * time.Second
	callTimeout     = 10 * time.Second
)

// Serve plays a pretence, as the process that [Argument] starts. It reads what it is to
// be and then calls, a JSON array at a time, and says what came of each of them:
// [Granted], or the code of the refusal. It keeps its identity until in ends, also when
// the worker that it pretends to be has long been replaced.
func Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	requests, answers := json.NewDecoder(in), json.NewEncoder(out)
	var p pretence
	if err := requests.Decode(&p); err != nil {
		return err
	}
	if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(p.User), syscall.Setuid(p.User)); err != nil {
		return err
	}
	id, err := spiffeid.FromString(p.ID)
	if err != nil {
		return err
	}
	wait, cancel := context.WithTimeout(ctx, identityTimeout)
	defer cancel()
	m := mask{domain: id.TrustDomain(), sockets: p.Sockets, addresses: p.Addresses}
	if m.source, err = identity.Open(wait, identity.Config{WorkloadAPI: descriptor(0), ID: id}, nil); err == nil {
		defer func() { _ = m.source.Close() }() // the process ends
	}
	lacks := err != nil
	if m.telemetry, err = telemetry.New(ctx, telemetry.Config{Service: "impostor"}); err != nil {
		return err
	}
	for {
		var calls []Call
		if err := requests.Decode(&calls); err != nil {
			return ignoreEOF(err)
		}
		said := make([]string, 0, len(calls))
		for _, c := range calls {
			if lacks {
				said = append(said, NoIdentity)
				continue
			}
			said = append(said, m.play(ctx, c))
		}
		if err := answers.Encode(said); err != nil {
			return err
		}
	}
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// descriptor is the address of a socket that was inherited.
func descriptor(n int) string { return fmt.Sprintf("unix:///proc/self/fd/%d", 3+n) }

// mask is what an impostor speaks with.
type mask struct {
	source    identity.Source
	telemetry *telemetry.Telemetry
	domain    spiffeid.TrustDomain
	sockets   []string
	addresses map[string]string
}

func (m mask) play(ctx context.Context, c Call) string {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if c.Token != "" {
		ctx = rpc.WithToken(ctx, c.Token)
	}
	c.Envelope.Deadline = time.Now().Add(callTimeout)
	err := m.call(ctx, c)
	switch code := fault.CodeOf(err); {
	case err == nil, code == fault.NotFound && c.Record == nil: // it was let in, and told that there is nothing
		return Granted
	case code == "":
		return err.Error()
	default:
		return string(code)
	}
}

func (m mask) call(ctx context.Context, c Call) error {
	if c.What == "model" {
		return m.model(ctx, c)
	}
	service, _, _ := strings.Cut(c.What, " ")
	conn, err := m.endpoint(service).Dial(m.source, m.telemetry)
	if err != nil {
		return err
	}
	env := c.Envelope.Proto()
	switch c.What {
	case "statefacade get", "statefacade put", "statefacade delete":
		err = memory(ctx, memoryv1connect.NewMemoryServiceClient(conn), c)
	case "statefacade load":
		err = load(ctx, conn, &threadstatev1.LoadHeadRequest{
			Envelope: env, Codec: c.Adapter.codec(), Adapter: c.Adapter.proto(),
		})
	case "statefacade write":
		err = write(ctx, conn, &threadstatev1.WriteSnapshotRequest{
			Envelope: env, Codec: c.Adapter.codec(), Info: &threadstatev1.SnapshotInfo{Size: 1, Sha256: sumOfX()}, Chunk: []byte("x"),
		})
	case "statefacade commit":
		_, err = threadstatev1connect.NewThreadStateServiceClient(conn).CommitHead(ctx, &threadstatev1.CommitHeadRequest{
			Envelope: env, Codec: c.Adapter.codec(), SnapshotRef: "snapshot", LastSequence: 1,
		})
	case "statefacade remember":
		_, err = memoryv1connect.NewMemoryServiceClient(conn).Get(ctx, &memoryv1.GetRequest{Envelope: env, Scope: memoryv1.Scope_SCOPE_USER, Key: "secret"})
	case "toolbroker call":
		_, err = toolbrokerv1connect.NewToolBrokerServiceClient(conn).CallTool(ctx, &toolbrokerv1.CallToolRequest{
			Envelope: env, ToolId: "fs.list_directory", ToolCallId: c.Envelope.IdempotencyKey, Arguments: []byte(`{"path":"."}`),
		})
	case "filebroker download":
		err = download(ctx, conn, &filebrokerv1.DownloadRequest{Envelope: env, Handle: cmp.Or(c.Handle, "handle")})
	case "capability mint":
		_, err = capabilityv1connect.NewCapabilityServiceClient(conn).Mint(ctx, &capabilityv1.MintRequest{Envelope: env})
	case "worker ready":
		_, err = workerv1connect.NewWorkerServiceClient(conn).Ready(ctx, &workerv1.ReadyRequest{})
	default:
		err = fmt.Errorf("there is no call %q", c.What)
	}
	return err
}

func memory(ctx context.Context, facade memoryv1connect.MemoryServiceClient, c Call) (err error) {
	env, r := c.Envelope.Proto(), c.Record
	switch {
	case r == nil:
		err = fmt.Errorf("%s: of which record?", c.What)
	case c.What == "statefacade get":
		_, err = facade.Get(ctx, &memoryv1.GetRequest{Envelope: env, Scope: r.Scope, Key: r.Key})
	case c.What == "statefacade put":
		_, err = facade.Put(ctx, &memoryv1.PutRequest{
			Envelope: env, Scope: r.Scope, Key: r.Key, Kind: memoryv1.Kind_KIND_SEMANTIC,
			ContentType: "text/plain", Content: []byte(r.Content), ExpectedRevision: r.Expected,
		})
	default:
		req := &memoryv1.DeleteRequest{Envelope: env, Scope: r.Scope, Key: r.Key}
		if r.Expected != nil {
			req.ExpectedRevision = *r.Expected
		}
		_, err = facade.Delete(ctx, req)
	}
	return err
}

func (a Adapter) proto() *threadstatev1.Adapter {
	if a == (Adapter{}) {
		a = Adapter{Harness: "scripted", Version: "1.0.0"}
	}
	return &threadstatev1.Adapter{HarnessId: a.Harness, Version: a.Version}
}

// endpoint of a service, or of the other worker, whose identity is not looked at:
// it is the one who has to refuse.
func (m mask) endpoint(service string) rpc.Endpoint {
	if address, ok := m.addresses[service]; ok {
		return rpc.Endpoint{Address: address, ID: identity.Service(m.domain, service)}
	}
	for n, name := range m.sockets {
		if kind, uid, of := strings.Cut(name, "/"); kind == service && of {
			return rpc.Endpoint{Address: descriptor(n), ID: identity.Sandbox(m.domain, uid)}
		} else if kind == service {
			return rpc.Endpoint{Address: descriptor(n), ID: identity.Service(m.domain, service)}
		}
	}
	return rpc.Endpoint{}
}

func sumOfX() []byte {
	sum := sha256.Sum256([]byte("x"))
	return sum[:]
}

func (a Adapter) codec() *threadstatev1.Codec {
	if a.Codec == "" {
		return &threadstatev1.Codec{Name: "cofferdam.scripted", Version: 1}
	}
	return &threadstatev1.Codec{Name: a.Codec, Version: a.CodecVersion}
}

func load(ctx context.Context, conn *connect.Client, req *threadstatev1.LoadHeadRequest) error {
	s, err := threadstatev1connect.NewThreadStateServiceClient(conn).LoadHead(ctx, req)
	if err != nil {
		return err
	}
	for err == nil {
		_, err = s.Receive()
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func write(ctx context.Context, conn *connect.Client, req *threadstatev1.WriteSnapshotRequest) error {
	s, err := threadstatev1connect.NewThreadStateServiceClient(conn).WriteSnapshot(ctx)
	if err != nil {
		return err
	}
	_ = s.Send(req) // what is wrong, the answer says
	_, err = s.CloseAndReceive()
	return err
}

func download(ctx context.Context, conn *connect.Client, req *filebrokerv1.DownloadRequest) error {
	s, err := filebrokerv1connect.NewFileBrokerServiceClient(conn).Download(ctx, req)
	if err != nil {
		return err
	}
	for err == nil {
		_, err = s.Receive()
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// model asks the model proxy, which speaks plain HTTP behind the same door.
func (m mask) model(ctx context.Context, c Call) error {
	ep := m.endpoint("modelproxy")
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, ep.BaseURL()+"/v1/chat/completions",
		strings.NewReader(`{"model":"demo","messages":[{"role":"user","content":"hello"}]}`))
	if err != nil {
		return err
	}
	header, err := rpc.EncodeEnvelope(c.Envelope)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(rpc.EnvelopeHeader, header)
	if c.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.Token)
	}
	res, err := ep.HTTPClient(m.source).Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }() // it was read
	raw, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil || res.StatusCode == http.StatusOK {
		return err
	}
	var doc struct {
		Error struct {
			Code fault.Code `json:"code"`
		} `json:"error"`
	}
	if err := json.Unmarshal(raw, &doc); err != nil || !doc.Error.Code.Known() {
		return fmt.Errorf("status %d: %.200q", res.StatusCode, raw)
	}
	return fault.New(doc.Error.Code, "impostor.model")
}
