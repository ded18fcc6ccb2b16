// Package openfga sets up the OpenFGA server of one machine: a store, the
// authorization model of cofferdam.dev/pkg/authz, and who may do what. All of it
// can be done again at each start and changes nothing then.
package openfga

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"time"

	openfga "github.com/openfga/go-sdk"
	"github.com/openfga/go-sdk/client"

	"cofferdam.dev/deploy/local/internal/datadir"
	"cofferdam.dev/pkg/authz"
)

const (
	storeName   = "cofferdam"
	callTimeout = 10 * time.Second
	maxIDsBytes = 4 << 10
)

// Config of a set-up.
type Config struct {
	// URL of the server's HTTP API, and its preshared Key.
	URL, Key string
	// IDs is the file that remembers store and model.
	IDs string
	// Grants is who may do what.
	Grants []Grant
}

// IDs name what the services ask.
type IDs struct {
	Store string `json:"store_id"`
	Model string `json:"model_id"`
	// Digest of the model that Model is the id of.
	Digest string `json:"model_digest"`
}

// Grant is one tuple, as package authz writes it.
type Grant struct{ User, Relation, Object string }

// Setup brings the server to what cfg says. Grants that are there already, and
// others, are left alone.
func Setup(ctx context.Context, cfg Config) (IDs, error) {
	known, err := load(cfg.IDs)
	if err != nil {
		return IDs{}, err
	}
	fga, err := newClient(cfg)
	if err != nil {
		return IDs{}, err
	}
	ids, err := ensureStore(ctx, fga, known)
	if err != nil {
		return IDs{}, err
	}
	if err := fga.SetStoreId(ids.Store); err != nil {
		return IDs{}, fmt.Errorf("openfga: store: %w", err)
	}
	if ids, err = ensureModel(ctx, fga, ids); err != nil {
		return IDs{}, err
	}
	if err := ensureGrants(ctx, fga, ids.Model, cfg.Grants); err != nil {
		return IDs{}, err
	}
	if ids == known {
		return ids, nil
	}
	raw, err := json.Marshal(ids)
	if err != nil {
		return IDs{}, err
	}
	return ids, datadir.Write(cfg.IDs, append(raw, '\n'))
}

func load(path string) (IDs, error) {
	var ids IDs
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return ids, nil
	}
	if err != nil {
		return ids, err
	}
	if info.Size() > maxIDsBytes {
		return ids, fmt.Errorf("openfga: %s is larger than %d bytes", path, maxIDsBytes)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return ids, err
	}
	if err := json.Unmarshal(raw, &ids); err != nil {
		return ids, fmt.Errorf("openfga: %s: %w", path, err)
	}
	return ids, nil
}

// newClient follows no redirect and uses no proxy: the key goes to the server on
// this machine and nowhere else.
func newClient(cfg Config) (*client.OpenFgaClient, error) {
	fga, err := client.NewSdkClient(&client.ClientConfiguration{
		ApiUrl: cfg.URL,
		// The SDK ignores Credentials beside an HTTP client.
		DefaultHeaders: map[string]string{"Authorization": "Bearer " + cfg.Key},
		HTTPClient: &http.Client{
			Timeout:       callTimeout,
			Transport:     &http.Transport{DisableKeepAlives: true},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	})
	if err != nil {
		return nil, fmt.Errorf("openfga: %w", err)
	}
	return fga, nil
}

// ensureStore finds the store, or makes one: the first time, and if the database
// was taken away.
func ensureStore(ctx context.Context, fga *client.OpenFgaClient, ids IDs) (IDs, error) {
	if ids.Store != "" {
		store := ids.Store
		_, err := fga.GetStore(ctx).Options(client.ClientGetStoreOptions{StoreId: &store}).Execute()
		var missing openfga.FgaApiNotFoundError
		switch {
		case err == nil:
			return ids, nil
		case !errors.As(err, &missing):
			return ids, fmt.Errorf("openfga: store: %w", err)
		}
	}
	created, err := fga.CreateStore(ctx).Body(client.ClientCreateStoreRequest{Name: storeName}).Execute()
	if err != nil {
		return ids, fmt.Errorf("openfga: create the store: %w", err)
	}
	return IDs{Store: created.GetId()}, nil
}

// ensureModel writes the model if the store does not have this very one. A model
// cannot change: a new one gets a new id, and the services pin it.
func ensureModel(ctx context.Context, fga *client.OpenFgaClient, ids IDs) (IDs, error) {
	model := authz.ModelJSON()
	sum := sha256.Sum256(model)
	digest := hex.EncodeToString(sum[:])
	if ids.Model != "" && ids.Digest == digest {
		return ids, nil
	}
	var body client.ClientWriteAuthorizationModelRequest
	if err := json.Unmarshal(model, &body); err != nil {
		return ids, fmt.Errorf("openfga: model: %w", err)
	}
	written, err := fga.WriteAuthorizationModel(ctx).Body(body).Execute()
	if err != nil {
		return ids, fmt.Errorf("openfga: write the model: %w", err)
	}
	ids.Model, ids.Digest = written.GetAuthorizationModelId(), digest
	return ids, nil
}
