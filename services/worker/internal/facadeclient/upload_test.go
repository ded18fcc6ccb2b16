package facadeclient

import (
	"strings"
	"testing"

	"cofferdam.dev/pkg/binding"
	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/gen/harness/filebroker/v1/filebrokerv1connect"
	"cofferdam.dev/services/worker/internal/harness"
)

var slot = harness.Upload{Handle: "handle-1", MaxBytes: 1 << 20}

func TestWrite(t *testing.T) {
	large := strings.Repeat("x", 3*chunkBytes) + "y"
	for name, x := range map[string]struct {
		name, mime, content string
		wantName, wantMIME  string
		parts               int
	}{
		"small":              {"a.txt", "text/plain", "content", "a.txt", "text/plain", 1},
		"empty":              {"a", "Text/Plain", "", "a", "text/plain", 1},
		"in parts":           {"a", "image/png", large, "a", "image/png", 4},
		"of no type":         {"a", "", "x", "a", anyMIMEType, 1},
		"of an odd type":     {"a", "text/plain; charset=utf-8", "x", "a", anyMIMEType, 1},
		"of a long odd name": {strings.Repeat("ü", 200) + "\xff", "text/plain", "x", strings.Repeat("ü", 127), "text/plain", 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t)
			id, err := c.Files.Write(t.Context(), slot, x.name, x.mime, []byte(x.content))
			must(t, err)
			o := c.objects[id]
			if o.content != x.content || o.parts != x.parts || o.info.GetMimeType() != x.wantMIME || o.info.GetDisplayName() != x.wantName {
				t.Errorf("object %s: %d bytes in %d parts, %v", id, len(o.content), o.parts, o.info)
			}
		})
	}
}

// More than the handle takes is not even sent.
func TestWriteIsBounded(t *testing.T) {
	c := newClient(t)
	_, err := c.Files.Write(t.Context(), harness.Upload{Handle: "handle-1", MaxBytes: 3}, "a", "text/plain", []byte("four"))
	wantCode(t, err, fault.RequestTooLarge)
	if c.count("Upload") != 0 {
		t.Error("it was sent")
	}
	_, err = c.Files.Write(t.Context(), harness.Upload{Handle: "handle-1", MaxBytes: 3}, "a", "text/plain", []byte("two"))
	must(t, err)
}

// An upload whose answers are lost happens once; the same again is that object,
// and another content under the handle is a conflict.
func TestWriteHappensOnce(t *testing.T) {
	c := newClient(t)
	twice := first(2)
	c.arm(func(b *brokers) {
		b.lose = func(p string) bool { return twice(p, filebrokerv1connect.FileBrokerServiceUploadProcedure) }
	})
	id, err := c.Files.Write(t.Context(), slot, "a", "text/plain", []byte("content"))
	must(t, err)
	again, err := c.Files.Write(t.Context(), slot, "a", "text/plain", []byte("content"))
	must(t, err)
	if id != again || len(c.acted) != 1 {
		t.Errorf("objects %s and %s, %q", id, again, c.acted)
	}
	_, err = c.Files.Write(t.Context(), slot, "a", "text/plain", []byte("other"))
	wantCode(t, err, fault.IdempotencyConflict)
}

// What stays unknown is said to be, and what a handle refuses is kept.
func TestWriteFails(t *testing.T) {
	for name, x := range map[string]struct {
		lose   bool
		refuse fault.Code
		want   fault.Code
		sent   int
	}{
		"every answer is lost":      {lose: true, want: fault.ToolOutcomeUnknown, sent: attempts},
		"the ledger does not know":  {refuse: fault.ToolOutcomeUnknown, want: fault.ToolOutcomeUnknown, sent: attempts},
		"the handle has expired":    {refuse: fault.HandleExpired, want: fault.HandleExpired, sent: 1},
		"the handle is of another":  {refuse: fault.HandleDenied, want: fault.HandleDenied, sent: 1},
		"the conversation is full":  {refuse: fault.Capacity, want: fault.Capacity, sent: 1},
		"the run is over":           {refuse: fault.StaleLease, want: fault.StaleLease, sent: 1},
		"nothing was stored at all": {refuse: fault.PersistenceFailed, want: fault.PersistenceFailed, sent: attempts},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t)
			c.arm(func(b *brokers) {
				b.lose = func(string) bool { return x.lose }
				b.refuse = func(string) error {
					if x.refuse == "" {
						return nil
					}
					return fault.New(x.refuse, "test")
				}
			})
			_, err := c.Files.Write(t.Context(), slot, "a", "text/plain", []byte(strings.Repeat("x", 2*chunkBytes)))
			wantCode(t, err, x.want)
			if n := c.count("Upload"); n != x.sent {
				t.Errorf("it was sent %d times", n)
			}
		})
	}
}

// A key of an upload is no key of a tool call, and two handles have two.
func TestUploadKey(t *testing.T) {
	long := strings.Repeat("h", 128)
	a, b := uploadKey(long), uploadKey(long[1:])
	if a == b || len(a) > 128 || strings.ContainsRune(a, '#') || uploadKey(long) != a {
		t.Errorf("%s, %s", a, b)
	}
	c := newClient(t)
	_, err := c.Files.Write(t.Context(), slot, "a", "text/plain", []byte("x"))
	must(t, err)
	rows := c.stand.Rows(t)
	if len(rows) != 1 || rows[0].Kind != "file.upload" || rows[0].State != binding.RowConcluded || rows[0].Key != uploadKey("handle-1") {
		t.Errorf("the ledger has %+v", rows)
	}
}

func TestWriteWithoutACapability(t *testing.T) {
	c := newClient(t)
	f := c.facades(t, c.endpoint("brokers"), nil)
	_, err := f.Files.Write(t.Context(), slot, "a", "text/plain", nil)
	wantCode(t, err, fault.CapabilityMissing)
	_, err = f.Memory.Get(t.Context(), harness.MemoryUser, "k")
	wantCode(t, err, fault.CapabilityMissing)
	_, err = f.Memory.Put(t.Context(), "c", harness.MemoryUser, "k", harness.MemoryRecord{})
	wantCode(t, err, fault.CapabilityMissing)
	wantCode(t, f.Thread.Interrupt(t.Context(), testCodec, 0, nil), fault.CapabilityMissing)
}
