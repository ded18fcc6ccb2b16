// Package resultclient puts what a tool answered, and what is too large for an event,
// into the file broker.
//
// ToolBroker has no right of its own to a conversation's files. For each result
// it shows the worker's capability to the capability service and gets a narrower
// one in exchange: for the file broker, for the same run, for a minute at most,
// to store one result.
package resultclient

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	"connectrpc.com/connect/v2"

	"cofferdam.dev/pkg/capability"
	"cofferdam.dev/pkg/fence"
	capabilityv1 "cofferdam.dev/pkg/gen/harness/capability/v1"
	"cofferdam.dev/pkg/gen/harness/capability/v1/capabilityv1connect"
	filebrokerv1 "cofferdam.dev/pkg/gen/harness/filebroker/v1"
	"cofferdam.dev/pkg/gen/harness/filebroker/v1/filebrokerv1connect"
	"cofferdam.dev/pkg/rpc"
)

const (
	// chunkBytes of one message.
	chunkBytes = 256 << 10
	mimeType   = "application/json"
	name       = "tool-result.json"
)

// Client puts results. It is safe for concurrent use.
type Client struct {
	capabilities capabilityv1connect.CapabilityServiceClient
	files        filebrokerv1connect.FileBrokerServiceClient
}

// New makes a Client on connections to the capability service and the file broker.
func New(capabilities, files *connect.Client) *Client {
	return &Client{capabilityv1connect.NewCapabilityServiceClient(capabilities), filebrokerv1connect.NewFileBrokerServiceClient(files)}
}

// Put stores the content for the run of the envelope and gives the id of the
// object. token is the capability with which the worker came. The same content
// under the same idempotency key gives the same object.
//
// Faults are those of the exchange and of the file broker: stale_lease, cancelled
// and capability_expired say that the run may keep nothing any more, capacity that
// its conversation has no room.
func (c *Client) Put(ctx context.Context, env fence.Envelope, token string, content []byte) (ref string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends a stream that was not read to its end
	sum := sha256.Sum256(content)
	env.IdempotencyKey = putKey(env.IdempotencyKey, sum)
	narrowed, err := c.capabilities.Exchange(ctx, &capabilityv1.ExchangeRequest{
		Envelope: env.Proto(), SubjectToken: token, Audience: string(capability.FileBroker),
	})
	if err != nil {
		return "", err
	}
	stream, err := c.files.PutResult(rpc.WithToken(ctx, narrowed.GetToken().GetToken()))
	if err != nil {
		return "", err
	}
	msg := &filebrokerv1.PutResultRequest{Info: &filebrokerv1.ObjectInfo{
		Size: uint64(len(content)), Sha256: sum[:], MimeType: mimeType, DisplayName: name,
	}}
	for rest := content; ; {
		n := min(len(rest), chunkBytes)
		msg.Envelope, msg.Chunk, rest = env.Proto(), rest[:n], rest[n:]
		if stream.Send(msg) != nil || len(rest) == 0 { // the answer says why
			break
		}
		msg = &filebrokerv1.PutResultRequest{}
	}
	res, err := stream.CloseAndReceive()
	if err != nil {
		return "", err
	}
	return res.GetObjectId(), nil
}

// putKey is the key under which a result is stored once: a call that may be
// repeated can answer something else each time.
func putKey(call string, content [sha256.Size]byte) string {
	sum := sha256.Sum256(append([]byte(call+"\x00"), content[:]...))
	return "result:" + hex.EncodeToString(sum[:])
}
