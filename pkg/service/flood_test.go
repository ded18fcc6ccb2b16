package service

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// flood is how many streams an attacker opens and resets.
const flood = 20_000

// What a connection can end with besides what a server says: without a reason
// that arrived, or not at all.
const (
	cut   = http2.ErrCode(0)
	never = http2.ErrCode(0xffffffff)
)

// Streams that are opened and reset in a loop keep nobody else from being served,
// and no more handlers run than one connection may have (CVE-2023-39325). The
// handlers here are the worst there are: they do not notice that they were reset.
func TestRapidReset(t *testing.T) {
	var running, most, total atomic.Int64
	release := make(chan struct{})
	address, client := encrypted(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/honest" {
			_, _ = w.Write([]byte("hello"))
			return
		}
		total.Add(1)
		for n := running.Add(1); ; {
			old := most.Load()
			if n <= old || most.CompareAndSwap(old, n) {
				break
			}
		}
		<-release
		running.Add(-1)
	}), nil)
	defer close(release)

	if why := openAndReset(t, address, client); why != http2.ErrCodeEnhanceYourCalm && why != cut {
		t.Errorf("the connection ended with %v", why)
	}
	if m := most.Load(); m > maxConcurrentStreams {
		t.Errorf("%d handlers ran at once", m)
	}
	if n := total.Load(); n > maxConcurrentStreams {
		t.Errorf("%d handlers ran for streams that were reset", n)
	}
	honest := &http.Transport{TLSClientConfig: client, ForceAttemptHTTP2: true}
	defer honest.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/honest", nil)
	must(t, err)
	res, err := honest.RoundTrip(req)
	must(t, err)
	defer res.Body.Close()
	if body, err := io.ReadAll(res.Body); err != nil || string(body) != "hello" {
		t.Errorf("somebody else got %q, %v", body, err)
	}
}

// openAndReset floods a server until it has had enough, and says why the
// connection ended.
func openAndReset(t *testing.T, address string, cfg *tls.Config) http2.ErrCode {
	t.Helper()
	cfg = cfg.Clone()
	cfg.NextProtos = []string{"h2"}
	conn, err := (&tls.Dialer{Config: cfg}).DialContext(t.Context(), "tcp", address)
	must(t, err)
	defer conn.Close()
	must(t, conn.SetDeadline(time.Now().Add(patience)))
	_, err = io.WriteString(conn, http2.ClientPreface)
	must(t, err)
	fr := http2.NewFramer(conn, conn)
	must(t, fr.WriteSettings())

	ended := make(chan http2.ErrCode, 1)
	go func() { ended <- goAway(fr) }()
	var headers bytes.Buffer
	enc := hpack.NewEncoder(&headers)
	for _, f := range []hpack.HeaderField{{Name: ":method", Value: "GET"}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: "x"}, {Name: ":path", Value: "/"}} {
		must(t, enc.WriteField(f))
	}
	block := append([]byte(nil), headers.Bytes()...)
	for i := range flood {
		id := uint32(2*i + 1)
		err := fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndStream: true, EndHeaders: true})
		if err == nil {
			err = fr.WriteRSTStream(id, http2.ErrCodeCancel)
		}
		if err != nil {
			break
		}
	}
	return <-ended // the server may be behind
}

// goAway reads until the server says why it ends.
func goAway(fr *http2.Framer) http2.ErrCode {
	for {
		f, err := fr.ReadFrame()
		if ce, ok := errors.AsType[http2.ConnectionError](err); ok {
			return http2.ErrCode(ce)
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return never
		}
		if err != nil {
			return cut
		}
		if g, ok := f.(*http2.GoAwayFrame); ok {
			return g.ErrCode
		}
	}
}
