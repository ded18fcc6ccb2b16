package workloadapi

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/spiffe/go-spiffe/v2/proto/spiffe/workload"
	"github.com/spiffe/go-spiffe/v2/svid/jwtsvid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"
)

const (
	maxAudiences = 8
	maxAudience  = 256 // bytes
)

// FetchJWTSVID signs a JWT-SVID for 1 to 8 audiences of at most 256 bytes each.
func (a *api) FetchJWTSVID(ctx context.Context, req *workload.JWTSVIDRequest) (*workload.JWTSVIDResponse, error) {
	if err := checkAudiences(req.GetAudience()); err != nil {
		return nil, err
	}
	v, err := a.server.view(a.path)
	if err != nil {
		return nil, err
	}
	if want := req.GetSpiffeId(); want != "" && want != a.id.String() {
		return nil, status.Error(codes.PermissionDenied, "no identity issued")
	}
	token, err := a.signJWT(v, req.GetAudience())
	if err != nil {
		a.server.cfg.Logger.ErrorContext(ctx, "a JWT-SVID could not be signed", "error", err)
		return nil, status.Error(codes.Internal, "the JWT-SVID could not be signed")
	}
	return &workload.JWTSVIDResponse{Svids: []*workload.JWTSVID{{SpiffeId: a.id.String(), Svid: token}}}, nil
}

func checkAudiences(audiences []string) error {
	if len(audiences) == 0 || len(audiences) > maxAudiences {
		return status.Error(codes.InvalidArgument, "1 to 8 audiences are required")
	}
	for _, aud := range audiences {
		if aud == "" || len(aud) > maxAudience {
			return status.Error(codes.InvalidArgument, "an audience has 1 to 256 bytes")
		}
	}
	return nil
}

func (a *api) signJWT(v view, audiences []string) (string, error) {
	signer, err := jose.NewSigner(
		jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: v.signer.jwtKey, KeyID: v.signer.kid}},
		(&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		return "", err
	}
	now := a.server.now()
	return jwt.Signed(signer).Claims(jwt.Claims{
		Subject:  a.id.String(),
		Audience: audiences,
		IssuedAt: jwt.NewNumericDate(now),
		Expiry:   jwt.NewNumericDate(v.signer.end(now, a.server.cfg.JWTTTL)),
	}).Serialize()
}

// ValidateJWTSVID checks a JWT-SVID of the trust domain for one audience.
func (a *api) ValidateJWTSVID(_ context.Context, req *workload.ValidateJWTSVIDRequest) (*workload.ValidateJWTSVIDResponse, error) {
	if err := checkAudiences([]string{req.GetAudience()}); err != nil {
		return nil, err
	}
	v, err := a.server.view(a.path)
	if err != nil {
		return nil, err
	}
	svid, err := jwtsvid.ParseAndValidate(req.GetSvid(), v.jwtBundle(), []string{req.GetAudience()})
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, "the JWT-SVID is not valid")
	}
	claims, err := toStruct(svid.Claims)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, "the claims of the JWT-SVID are not valid")
	}
	return &workload.ValidateJWTSVIDResponse{SpiffeId: svid.ID.String(), Claims: claims}, nil
}

// toStruct goes by way of JSON, because the claims hold numbers that structpb does not take as they are.
func toStruct(claims map[string]any) (*structpb.Struct, error) {
	raw, errMarshal := json.Marshal(claims)
	s := &structpb.Struct{}
	if err := errors.Join(errMarshal, s.UnmarshalJSON(raw)); err != nil {
		return nil, err
	}
	return s, nil
}
