package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"cofferdam.dev/pkg/fault"
	"cofferdam.dev/pkg/identity"
)

const (
	// maxRegistrarAnswer bounds what the registrar may say, in bytes.
	maxRegistrarAnswer = 4 << 10
	// registrarTimeout bounds one call.
	registrarTimeout = 10 * time.Second
)

// Registrar asks the machine's identity registrar over mutual TLS. It makes one
// Workload API socket for each instance, which serves that identity alone.
type Registrar struct {
	client  *http.Client
	baseURL string
}

var _ Identities = (*Registrar)(nil)

// NewRegistrar makes a Registrar. The client accepts only the registrar's
// identity.
func NewRegistrar(client *http.Client, baseURL string) *Registrar {
	return &Registrar{client: client, baseURL: strings.TrimSuffix(baseURL, "/")}
}

// Register makes the instance's Workload API socket, for one user. Errors: sandbox_capacity
// where the registrar has too many, dependency_unavailable for everything else.
func (r *Registrar) Register(ctx context.Context, instanceUID string, peer uint32) (string, error) {
	const op = "registrar.Register"
	body, err := r.do(ctx, op, http.MethodPut, url.PathEscape(instanceUID)+"?peer_uid="+strconv.FormatUint(uint64(peer), 10))
	if err != nil {
		return "", err
	}
	var out struct {
		WorkloadAPI string `json:"workload_api"`
	}
	if err := json.Unmarshal(body, &out); err != nil {
		return "", unavailable(op, fmt.Errorf("registrar's answer: %w", err))
	}
	source := identity.Config{WorkloadAPI: out.WorkloadAPI}
	if err := source.Validate(); err != nil {
		return "", unavailable(op, fmt.Errorf("registrar's answer: %w", err))
	}
	return out.WorkloadAPI, nil
}

// Deregister ends the instance's Workload API.
func (r *Registrar) Deregister(ctx context.Context, instanceUID string) error {
	_, err := r.do(ctx, "registrar.Deregister", http.MethodDelete, url.PathEscape(instanceUID))
	return err
}

func (r *Registrar) do(ctx context.Context, op, method, sandbox string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, registrarTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, r.baseURL+"/v1/sandboxes/"+sandbox, nil)
	if err != nil {
		return nil, unavailable(op, err)
	}
	res, err := r.client.Do(req)
	if err != nil {
		return nil, unavailable(op, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxRegistrarAnswer+1))
	switch {
	case err != nil:
		return nil, unavailable(op, err)
	case len(body) > maxRegistrarAnswer:
		return nil, unavailable(op, errors.New("registrar's answer is larger than 4 KiB"))
	case res.StatusCode/100 == 2:
		return body, nil
	}
	if f, ok := fault.ReadHTTP(body); ok && f.Code() == fault.SandboxCapacity {
		return nil, fault.Wrap(f, fault.SandboxCapacity, op)
	}
	return nil, unavailable(op, fmt.Errorf("registrar answered %d", res.StatusCode))
}

func unavailable(op string, cause error) error {
	return fault.Wrap(cause, fault.DependencyUnavailable, op)
}
