package workloadapi

import (
	"context"

	"github.com/spiffe/go-spiffe/v2/proto/spiffe/workload"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// securityHeader must be in every request. A browser or another program that is tricked into sending one cannot set it
// (SPIFFE Workload Endpoint, section 3).
const securityHeader = "workload.spiffe.io"

// api is the Workload API of one identity.
type api struct {
	workload.UnimplementedSpiffeWorkloadAPIServer

	server *Server
	id     spiffeid.ID
	path   string // of the socket
}

func checkHeader(ctx context.Context) error {
	md, _ := metadata.FromIncomingContext(ctx)
	if values := md.Get(securityHeader); len(values) != 1 || values[0] != "true" {
		return status.Error(codes.InvalidArgument, "security header missing from request")
	}
	return nil
}

func unaryHeader(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if err := checkHeader(ctx); err != nil {
		return nil, err
	}
	return handler(ctx, req)
}

func streamHeader(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if err := checkHeader(stream.Context()); err != nil {
		return err
	}
	return handler(srv, stream)
}

// FetchX509SVID sends the SVID and the bundle, and again whenever one of them changes.
func (a *api) FetchX509SVID(_ *workload.X509SVIDRequest, stream grpc.ServerStreamingServer[workload.X509SVIDResponse]) error {
	return follow(a, stream, func(v view) (*workload.X509SVIDResponse, error) {
		return &workload.X509SVIDResponse{Svids: []*workload.X509SVID{{
			SpiffeId: a.id.String(), X509Svid: v.svid.cert, X509SvidKey: v.svid.key, Bundle: v.x509Bundle(),
		}}}, nil
	})
}

// FetchX509Bundles sends the bundle, and again whenever anything changes.
func (a *api) FetchX509Bundles(_ *workload.X509BundlesRequest, stream grpc.ServerStreamingServer[workload.X509BundlesResponse]) error {
	return follow(a, stream, func(v view) (*workload.X509BundlesResponse, error) {
		return &workload.X509BundlesResponse{Bundles: map[string][]byte{v.td.IDString(): v.x509Bundle()}}, nil
	})
}

// FetchJWTBundles sends the public keys of the JWT-SVIDs, and again whenever anything changes.
func (a *api) FetchJWTBundles(_ *workload.JWTBundlesRequest, stream grpc.ServerStreamingServer[workload.JWTBundlesResponse]) error {
	return follow(a, stream, func(v view) (*workload.JWTBundlesResponse, error) {
		jwks, err := v.jwtBundle().Marshal()
		if err != nil {
			return nil, err
		}
		return &workload.JWTBundlesResponse{Bundles: map[string][]byte{v.td.IDString(): jwks}}, nil
	})
}

// follow sends what render makes of the present state, and again after each change, until the stream or the
// registration ends.
func follow[T any](a *api, stream grpc.ServerStreamingServer[T], render func(view) (*T, error)) error {
	for {
		v, err := a.server.view(a.path)
		if err != nil {
			return err
		}
		response, err := render(v)
		if err != nil {
			a.server.cfg.Logger.ErrorContext(stream.Context(), "a Workload API answer could not be made", "error", err)
			return status.Error(codes.Internal, "the answer could not be made")
		}
		if err := stream.Send(response); err != nil {
			return err
		}
		select {
		case <-v.changed:
		case <-stream.Context().Done():
			// Not Canceled, should it ever arrive: go-spiffe gives up watching for good then.
			return status.Error(codes.Unavailable, "the stream has ended")
		}
	}
}
