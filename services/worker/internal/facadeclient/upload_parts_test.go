package facadeclient

import (
	"context"
	"crypto/sha256"
	"slices"
	"strings"
	"testing"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/fault"
	filebrokerv1 "cofferdam.dev/pkg/gen/harness/filebroker/v1"
	"cofferdam.dev/pkg/gen/harness/filebroker/v1/filebrokerv1connect"
	"cofferdam.dev/services/worker/internal/harness"
)

// roomy takes what goes in parts.
var roomy = harness.Upload{Handle: "handle-1", MaxBytes: 8 << 20}

// long has no two parts alike, so that no part passes for another one.
func long(bytes int) []byte {
	var b strings.Builder
	for n := byte('a'); b.Len() < bytes; n++ {
		b.WriteString(strings.Repeat(string(rune(n)), partBytes))
	}
	return []byte(b.String()[:bytes])
}

func TestWriteInParts(t *testing.T) {
	for name, x := range map[string]struct {
		bytes int
		sent  []uint64
	}{
		"as much as goes in one": {partBytes, nil},
		"a byte more":            {partBytes + 1, []uint64{0, partBytes}},
		"three parts":            {3 * partBytes, []uint64{0, partBytes, 2 * partBytes}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t)
			content := long(x.bytes)
			id, err := c.Files.Write(t.Context(), roomy, "a", "text/plain", content)
			must(t, err)
			if !slices.Equal(c.sent, x.sent) || c.objects[id].content != string(content) || len(c.acted) != 1 {
				t.Errorf("parts at %v, %d bytes, %q", c.sent, len(c.objects[id].content), c.acted)
			}
			rows := c.stand.Rows(t)
			if len(rows) != 1 || rows[0].State != binding.RowConcluded || rows[0].Key != uploadKey("handle-1") {
				t.Errorf("the ledger has %+v", rows)
			}
		})
	}
}

// Whichever answers are lost, each part is there once and the upload happens once. A
// part that arrived is not sent again.
func TestAnUploadInPartsGoesOn(t *testing.T) {
	content := long(3*partBytes + 7)
	for name, x := range map[string]struct {
		lose  string
		times int
		sent  []uint64
	}{
		"answers to parts":      {filebrokerv1connect.FileBrokerServiceUploadPartProcedure, 4, []uint64{0, partBytes, 2 * partBytes, 3 * partBytes}},
		"answers to completion": {filebrokerv1connect.FileBrokerServiceCompleteUploadProcedure, 2, []uint64{0, partBytes, 2 * partBytes, 3 * partBytes}},
		"answers to questions":  {filebrokerv1connect.FileBrokerServiceUploadStatusProcedure, 3, []uint64{0, partBytes, 2 * partBytes, 3 * partBytes}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t)
			lost := first(x.times)
			c.arm(func(b *brokers) { b.lose = func(p string) bool { return lost(p, x.lose) } })
			id, err := c.Files.Write(t.Context(), roomy, "a", "text/plain", content)
			must(t, err)
			if !slices.Equal(c.sent, x.sent) || c.objects[id].content != string(content) || len(c.acted) != 1 {
				t.Errorf("parts at %v, %d bytes, %q", c.sent, len(c.objects[id].content), c.acted)
			}
		})
	}
}

// What an attempt that broke off has left, the next one goes on from; and what is
// complete is not sent again.
func TestAnUploadInPartsIsTakenUp(t *testing.T) {
	c := newClient(t)
	content := long(3 * partBytes)
	left := 2
	c.arm(func(b *brokers) {
		b.refuse = func(procedure string) error {
			if procedure != "UploadPart" {
				return nil
			}
			if left--; left < 0 {
				return fault.New(fault.RateLimited, "test")
			}
			return nil
		}
	})
	_, err := c.Files.Write(t.Context(), roomy, "a", "text/plain", content)
	wantCode(t, err, fault.RateLimited)
	if len(c.objects) != 0 {
		t.Error("half of it is visible")
	}
	c.arm(func(b *brokers) { b.refuse = nil })
	id, err := c.Files.Write(t.Context(), roomy, "a", "text/plain", content)
	must(t, err)
	again, err := c.Files.Write(t.Context(), roomy, "a", "text/plain", content)
	must(t, err)
	if want := []uint64{0, partBytes, 2 * partBytes}; id != again || !slices.Equal(c.sent, want) || len(c.acted) != 1 {
		t.Errorf("%s and %s, parts at %v, %q", id, again, c.sent, c.acted)
	}
	_, err = c.Files.Write(t.Context(), roomy, "a", "text/plain", long(3*partBytes+1))
	wantCode(t, err, fault.IdempotencyConflict)
}

// A handle under which another content stands, whole but not complete, does not make
// that one visible.
func TestAnUploadOfAnotherContentIsNotCompleted(t *testing.T) {
	c := newClient(t)
	other := long(2 * partBytes)
	c.arm(func(b *brokers) {
		sum := sha256.Sum256(other)
		b.partials["handle-1"] = &partial{
			info:  &filebrokerv1.ObjectInfo{Size: uint64(len(other)), Sha256: sum[:], MimeType: "text/plain", DisplayName: "a"},
			parts: [][]byte{other[:partBytes], other[partBytes:]},
		}
	})
	_, err := c.Files.Write(t.Context(), roomy, "a", "text/plain", long(3*partBytes))
	wantCode(t, err, fault.IdempotencyConflict)
	if len(c.objects)+len(c.acted) != 0 {
		t.Errorf("%q became visible", c.acted)
	}
}

// What is unknown is only the completion: a part is no effect.
func TestAnUploadInPartsFails(t *testing.T) {
	for name, x := range map[string]struct {
		procedure string // that loses every answer
		code      fault.Code
		refused   string
		want      fault.Code
	}{
		"every answer to a question is lost": {procedure: filebrokerv1connect.FileBrokerServiceUploadStatusProcedure, want: fault.Internal},
		"every answer to completion is lost": {procedure: filebrokerv1connect.FileBrokerServiceCompleteUploadProcedure, want: fault.ToolOutcomeUnknown},
		"the run is over at a part":          {refused: "UploadPart", code: fault.StaleLease, want: fault.StaleLease},
		"no room for it":                     {refused: "UploadPart", code: fault.Capacity, want: fault.Capacity},
		"the broker contradicts itself":      {refused: "UploadPart", code: fault.RevisionConflict, want: fault.RevisionConflict},
		"the run is over at its completion":  {refused: "CompleteUpload", code: fault.StaleLease, want: fault.StaleLease},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t)
			c.arm(func(b *brokers) {
				b.lose = func(p string) bool { return p == x.procedure }
				b.refuse = func(p string) error {
					if p == x.refused {
						return fault.New(x.code, "test")
					}
					return nil
				}
			})
			_, err := c.Files.Write(t.Context(), roomy, "a", "text/plain", long(2*partBytes))
			wantCode(t, err, x.want)
		})
	}
	c := newClient(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := c.Files.Write(ctx, roomy, "a", "text/plain", long(2*partBytes))
	wantCode(t, err, fault.Cancelled)
}
