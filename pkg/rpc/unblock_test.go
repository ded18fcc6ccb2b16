package rpc

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"
)

// A client that opens a stream and sends nothing does not keep its handler.
func TestFirstPartIsBounded(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			ended := make(chan error, 1)
			server := httptest.NewUnstartedServer(unblockable(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				_, err := io.ReadAll(r.Body)
				ended <- err
			}), 50*time.Millisecond))
			server.EnableHTTP2 = http2
			server.StartTLS()
			defer server.Close()
			body, sends := io.Pipe()
			defer func() { _ = sends.Close() }()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, body)
			if err != nil {
				t.Fatal(err)
			}
			answered := make(chan struct{})
			go func() {
				defer close(answered)
				if res, err := server.Client().Do(req); err == nil {
					_ = res.Body.Close()
				}
			}()
			select {
			case err := <-ended:
				if !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("the handler got %v", err)
				}
			case <-time.After(time.Minute):
				t.Error("the handler still waits")
			}
			_ = sends.Close()
			<-answered
		})
	}
}

// A peer that does not read cannot hold a handler past the end of its context.
func TestABlockedWriteEndsWithTheContext(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			ended := make(chan struct{})
			server := httptest.NewUnstartedServer(unblockable(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				ctx, cancel := context.WithTimeout(r.Context(), 50*time.Millisecond)
				defer cancel()
				defer connFrom(ctx).endWith(ctx)()
				part := make([]byte, 64<<10)
				for {
					if _, err := w.Write(part); err != nil {
						close(ended)
						return
					}
				}
			}), time.Minute))
			server.EnableHTTP2 = http2
			server.StartTLS()
			defer server.Close()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
			if err != nil {
				t.Fatal(err)
			}
			res, err := server.Client().Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = res.Body.Close() }()
			select {
			case <-ended:
			case <-time.After(time.Minute):
				t.Error("the handler still writes to a peer that does not read")
			}
		})
	}
}
