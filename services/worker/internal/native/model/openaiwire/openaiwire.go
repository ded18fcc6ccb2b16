// Package openaiwire is what the two wires of OpenAI have in common.
package openaiwire

import (
	"context"
	"errors"
	"net/http"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"

	"cofferdam.dev/services/worker/internal/native/model"
)

// Options of a service of the SDK. A service, unlike a client, reads nothing from
// the environment. It has no credential, which the proxy adds outside, and never
// repeats a call: the loop does, which knows what was emitted.
func Options(client *http.Client, baseURL string) []option.RequestOption {
	return []option.RequestOption{option.WithBaseURL(baseURL), option.WithHTTPClient(client), option.WithMaxRetries(0)}
}

// Failure gives an error of the SDK its code. began says that the request itself
// has not failed.
func Failure(ctx context.Context, err error, began bool) error {
	var (
		api      *openai.Error
		inStream *ssestream.StreamError
	)
	switch {
	case ctx.Err() != nil:
	case errors.As(err, &api):
		var h http.Header
		if api.Response != nil {
			h = api.Response.Header
		}
		return model.Refused(api.StatusCode, h, []byte(api.RawJSON()))
	case errors.As(err, &inStream):
		return model.Reported(inStream.Event.Data)
	}
	return model.Broken(ctx, err, began)
}
