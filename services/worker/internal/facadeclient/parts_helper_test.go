package facadeclient

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"

	"google.golang.org/protobuf/proto"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/fault"
	filebrokerv1 "cofferdam.dev/pkg/gen/harness/filebroker/v1"
	"cofferdam.dev/pkg/gen/harness/filebroker/v1/filebrokerv1connect"
	"cofferdam.dev/pkg/rpc"
)

// partial is an upload in parts, by its handle.
type partial struct {
	info  *filebrokerv1.ObjectInfo
	parts [][]byte
}

func (p partial) next() (n uint64) {
	for _, part := range p.parts {
		n += uint64(len(part))
	}
	return n
}

// UploadPart goes the way of the real broker: a part is there as a whole where the
// parts before it end, or not at all.
func (b *brokers) UploadPart(_ context.Context, in filebrokerv1connect.FileBrokerServiceUploadPartServerStream) (*filebrokerv1.UploadPartResponse, error) {
	if err := b.enter("UploadPart"); err != nil {
		return nil, err
	}
	first, err := in.Receive()
	if err != nil {
		return nil, err
	}
	content := bytes.Clone(first.GetChunk())
	for {
		m, err := in.Receive()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		content = append(content, m.GetChunk()...)
	}
	p, sum := first.GetPart(), sha256.Sum256(content)
	if p.GetSize() != uint64(len(content)) || !bytes.Equal(p.GetSha256(), sum[:]) {
		return nil, fault.New(fault.InvalidRequest, "test")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sent = append(b.sent, p.GetOffset())
	if _, done := b.objects["obj-"+first.GetHandle()]; done {
		return nil, fault.New(fault.HandleDenied, "test")
	}
	u, ok := b.partials[first.GetHandle()]
	if !ok {
		u = &partial{info: p.GetWhole()}
		b.partials[first.GetHandle()] = u
	}
	if !proto.Equal(u.info, p.GetWhole()) {
		return nil, fault.New(fault.IdempotencyConflict, "test")
	}
	var at uint64
	for _, have := range u.parts {
		if at == p.GetOffset() && bytes.Equal(have, content) {
			return &filebrokerv1.UploadPartResponse{NextOffset: u.next()}, nil
		}
		at += uint64(len(have))
	}
	if at != p.GetOffset() {
		return nil, fault.New(fault.RevisionConflict, "test")
	}
	u.parts = append(u.parts, content)
	return &filebrokerv1.UploadPartResponse{NextOffset: u.next()}, nil
}

// UploadStatus tells where an upload goes on.
func (b *brokers) UploadStatus(_ context.Context, req *filebrokerv1.UploadStatusRequest) (*filebrokerv1.UploadStatusResponse, error) {
	if err := b.enter("UploadStatus"); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, done := b.objects["obj-"+req.GetHandle()]; done {
		return &filebrokerv1.UploadStatusResponse{Completed: true}, nil
	}
	if u, ok := b.partials[req.GetHandle()]; ok {
		return &filebrokerv1.UploadStatusResponse{NextOffset: u.next()}, nil
	}
	return &filebrokerv1.UploadStatusResponse{}, nil
}

// CompleteUpload is the effect.
func (b *brokers) CompleteUpload(ctx context.Context, req *filebrokerv1.CompleteUploadRequest) (*filebrokerv1.CompleteUploadResponse, error) {
	if err := b.enter("CompleteUpload"); err != nil {
		return nil, err
	}
	g, err := rpc.GrantFrom(ctx)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	u := b.partials[req.GetHandle()]
	b.mu.Unlock()
	if u == nil || u.next() != u.info.GetSize() {
		return nil, fault.New(fault.RevisionConflict, "test")
	}
	content := bytes.Join(u.parts, nil)
	sum := sha256.Sum256(content)
	if !bytes.Equal(sum[:], u.info.GetSha256()) {
		return nil, fault.New(fault.InvalidRequest, "test")
	}
	out, err := b.effects.Do(ctx, g, binding.Effect{
		Key: g.Envelope().IdempotencyKey, Kind: "file.upload", ArgsDigest: req.GetHandle() + hex.EncodeToString(sum[:]), Repeatable: true,
	}, func(context.Context) ([]byte, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		id := "obj-" + req.GetHandle()
		b.objects[id] = object{info: u.info, content: string(content), parts: len(u.parts)}
		b.acted = append(b.acted, req.GetHandle())
		return []byte(id), nil
	})
	if err != nil {
		return nil, err
	}
	return &filebrokerv1.CompleteUploadResponse{ObjectId: string(out.Body), Sha256: sum[:], Replayed: out.Replayed}, nil
}
