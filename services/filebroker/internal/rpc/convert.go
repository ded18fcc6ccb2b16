package rpc

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"

	"cofferdam.dev/pkg/blob"
	"cofferdam.dev/pkg/fault"
	filebrokerv1 "cofferdam.dev/pkg/gen/harness/filebroker/v1"
	"cofferdam.dev/pkg/rpc"
	"cofferdam.dev/services/filebroker/internal/files"
)

// callerFrom is what the door found out about a sandbox's request.
func callerFrom(ctx context.Context) (files.Caller, error) {
	g, err := rpc.GrantFrom(ctx)
	if err != nil {
		return files.Caller{}, err
	}
	claims, ok := rpc.ClaimsFrom(ctx)
	if !ok {
		return files.Caller{}, fault.Wrap(errors.New("no capability behind the door"), fault.Internal, "rpc.caller")
	}
	return files.Caller{Grant: g, Handles: claims.Handles}, nil
}

func infoFrom(i *filebrokerv1.ObjectInfo) (files.Info, error) {
	if i == nil {
		return files.Info{}, fault.New(fault.InvalidRequest, "rpc.info", fault.Detail("info: required in the first part"))
	}
	size, err := sizeFrom(i.GetSize(), "info.size")
	if err != nil {
		return files.Info{}, err
	}
	if len(i.GetSha256()) != sha256.Size {
		return files.Info{}, fault.New(fault.InvalidRequest, "rpc.info", fault.Detail("info.sha256: 32 bytes"))
	}
	return files.Info{Content: blob.Content{Size: size, SHA256: [sha256.Size]byte(i.GetSha256())}, MIME: i.GetMimeType(), Name: i.GetDisplayName()}, nil
}

func infoProto(i *files.Info) *filebrokerv1.ObjectInfo {
	if i == nil {
		return nil
	}
	return &filebrokerv1.ObjectInfo{Size: uint64(max(i.Size, 0)), Sha256: i.SHA256[:], MimeType: i.MIME, DisplayName: i.Name}
}

func sizeFrom(n uint64, field string) (int64, error) {
	if n > files.MaxObjectBytes {
		return 0, fault.New(fault.RequestTooLarge, "rpc.size", fault.Detail(field+": at most 64 MiB"))
	}
	return int64(n), nil
}

func rangeFrom(r interface {
	GetOffset() uint64
	GetLength() uint64
},
) (out files.Range, err error) {
	if out.Offset, err = sizeFrom(r.GetOffset(), "offset"); err == nil {
		out.Length, err = sizeFrom(r.GetLength(), "length")
	}
	return out, err
}

// directionFrom gives "" for what is no direction; the domain refuses it.
func directionFrom(d filebrokerv1.Direction) files.Direction {
	switch d {
	case filebrokerv1.Direction_DIRECTION_DOWNLOAD:
		return files.DirectionDownload
	case filebrokerv1.Direction_DIRECTION_UPLOAD:
		return files.DirectionUpload
	case filebrokerv1.Direction_DIRECTION_UNSPECIFIED:
	}
	return ""
}

// part is a message of a stream whose first one says what will come.
type part[I any] interface {
	GetInfo() *I
	GetChunk() []byte
}

// parts gives the chunks of a stream whose first message was received already.
func parts[I any, P part[I]](first P, receive func() (P, error)) blob.Parts {
	began := false
	return func() ([]byte, error) {
		if !began {
			began = true
			return first.GetChunk(), nil
		}
		m, err := receive()
		if err != nil {
			return nil, err
		}
		if m.GetInfo() != nil {
			return nil, fault.New(fault.InvalidRequest, "rpc.parts", fault.Detail("info: only in the first part"))
		}
		return m.GetChunk(), nil
	}
}

// firstError is the fault of a stream that ended before its first message.
func firstError(err error) error {
	if errors.Is(err, io.EOF) {
		return fault.New(fault.InvalidRequest, "rpc.parts", fault.Detail("body: at least one part"))
	}
	return err
}
