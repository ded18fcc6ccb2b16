package cli

import (
	"time"

	"cofferdam.dev/deploy/local/internal/apiclient"
	"cofferdam.dev/deploy/local/internal/datadir"
	"cofferdam.dev/deploy/local/internal/issuer"
)

// callTTL is how long a token lives that is made for one call.
const callTTL = time.Minute

// client makes a client of an API that speaks for a subject, with the issuer of
// the data folder.
func client(d datadir.Dir, baseURL, subject string) (*apiclient.Client, error) {
	i, err := issuer.Load(d)
	if err != nil {
		return nil, err
	}
	return apiclient.New(baseURL, func() (string, error) {
		return i.Token(issuer.Request{Subject: subject, TTL: callTTL})
	})
}
