package main

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	openfgav1 "github.com/openfga/api/proto/openfga/v1"
	"github.com/openfga/openfga/pkg/logger"
	httpmiddleware "github.com/openfga/openfga/pkg/middleware/http"
	"github.com/openfga/openfga/pkg/middleware/recovery"
	"github.com/openfga/openfga/pkg/server"
	serverErrors "github.com/openfga/openfga/pkg/server/errors"
	"google.golang.org/grpc/status"
)

// maxBodyBytes bounds a request; an authorization model has at most 256 KiB.
const maxBodyBytes = 1 << 20

// newHandler serves OpenFGA's HTTP API to bearers of key, and /healthz to
// everybody. The API calls the server in process, where each method validates
// its own request; streamed answers are not available on that path.
func newHandler(ctx context.Context, srv *server.Server, key []byte, log logger.Logger) (http.Handler, error) {
	api := runtime.NewServeMux(
		runtime.WithForwardResponseOption(httpmiddleware.HTTPResponseModifier),
		runtime.WithErrorHandler(writeError),
	)
	if err := openfgav1.RegisterOpenFGAServiceHandlerServer(ctx, api, srv); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		if ready, err := srv.IsReady(r.Context()); err != nil || !ready {
			http.Error(w, "not ready", http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	mux.Handle("/", requireKey(key, http.MaxBytesHandler(api, maxBodyBytes)))
	return recovery.HTTPPanicRecoveryHandler(mux, log), nil
}

// requireKey answers 401 unless the request bears key, before a byte of the
// body is read.
func requireKey(key []byte, next http.Handler) http.Handler {
	want := sha256.Sum256(key)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		got := sha256.Sum256([]byte(token))
		// Of equal length whatever was presented, so the time tells nothing.
		if subtle.ConstantTimeCompare(got[:], want[:]) != 1 || !strings.EqualFold(scheme, "Bearer") {
			w.Header().Set("WWW-Authenticate", "Bearer")
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusUnauthorized)
			// A client that went away does not need the body.
			_, _ = w.Write([]byte(`{"code":"unauthenticated","message":"unauthenticated"}` + "\n"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

// writeError answers in the shape that OpenFGA's clients expect.
func writeError(ctx context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, r *http.Request, err error) {
	code := serverErrors.ConvertToEncodedErrorCode(status.Convert(err))
	httpmiddleware.CustomHTTPErrorHandler(ctx, w, r, serverErrors.NewEncodedError(code, err.Error()))
}
