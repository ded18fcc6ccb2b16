package facadeclient

import (
	"crypto/sha256"
	"testing"

	"cofferdam.dev/pkg/fault"
	filebrokerv1 "cofferdam.dev/pkg/gen/harness/filebroker/v1"
	"cofferdam.dev/services/worker/internal/harness"
)

func TestRead(t *testing.T) {
	sum := func(s string) []byte { h := sha256.Sum256([]byte(s)); return h[:] }
	part := func(info *filebrokerv1.ObjectInfo, chunk string) *filebrokerv1.DownloadResponse {
		return &filebrokerv1.DownloadResponse{Info: info, Chunk: []byte(chunk)}
	}
	info := &filebrokerv1.ObjectInfo{Size: 8, Sha256: sum("contents")}
	for name, c := range map[string]struct {
		parts []*filebrokerv1.DownloadResponse
		most  int
		size  uint64
		code  fault.Code
	}{
		"whole":               {parts: []*filebrokerv1.DownloadResponse{part(info, ""), part(nil, "cont"), part(nil, "ents")}, most: 8},
		"in one part":         {parts: []*filebrokerv1.DownloadResponse{part(info, "contents")}, most: 8},
		"larger than wanted":  {parts: []*filebrokerv1.DownloadResponse{part(info, "contents")}, most: 7, code: fault.RequestTooLarge},
		"larger, as it says":  {size: 9, most: 8, code: fault.RequestTooLarge},
		"other contents":      {parts: []*filebrokerv1.DownloadResponse{part(info, "CONTENTS")}, most: 8, code: fault.PersistenceFailed},
		"shorter":             {parts: []*filebrokerv1.DownloadResponse{part(info, "cont")}, most: 8, code: fault.PersistenceFailed},
		"nothing":             {most: 8, code: fault.PersistenceFailed},
		"without its SHA-256": {parts: []*filebrokerv1.DownloadResponse{part(nil, "contents")}, most: 8, code: fault.PersistenceFailed},
		"broken off":          {parts: []*filebrokerv1.DownloadResponse{part(info, "cont"), nil}, most: 8, code: fault.DependencyUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			b := newClient(t)
			b.arm(func(b *brokers) { b.parts = c.parts })
			got, err := b.Files.Read(t.Context(), harness.File{Handle: "handle-1", Size: c.size}, c.most)
			switch {
			case c.code != "":
				if err == nil || len(got) != 0 {
					t.Fatalf("got %q, %v", got, err)
				}
				if name == "broken off" { // how a transport says so differs
					return
				}
				wantCode(t, err, c.code)
			case err != nil || string(got) != "contents":
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

func TestReadIsRefused(t *testing.T) {
	c := newClient(t)
	c.arm(func(b *brokers) { b.refuse = func(string) error { return fault.New(fault.HandleExpired, "test") } })
	_, err := c.Files.Read(t.Context(), harness.File{Handle: "handle-1"}, 10)
	wantCode(t, err, fault.HandleExpired)
}
